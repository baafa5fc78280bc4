"""Recall and second look in a session: when they happen, what they may hold, what they report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from confkv.confidence import confidence
from confkv.engine import Engine
from confkv.policies import parse_policy
from confkv.policies.budget import Past
from confkv.policies.mean import MeanMass
from confkv.rows import read_rows
from confkv.session import Session
from confkv.store import ORIGIN
from confkv_kernels import page_scores

SMALL = "n_high=12,n_low=20,protect=4,sinks=2,tau=0.6,page=4"
WHOLE = {"max_position_embeddings": 400}
POLICIES = [
    f"confkv-recall:{SMALL}",
    f"confkv-recall:{SMALL},scope=head,gate=always",
    f"confkv-recall:{SMALL},gate=random,rate=0.4",
    f"confkv-look:{SMALL}",
    f"confkv-look:{SMALL},scope=head,gate=random",
    f"confkv-look:{SMALL},gate=always,index=device,archive=fp",
    "confkv-look:n_high=50,n_low=60,protect=4,sinks=2,tau=0.6,page=4,int8=1,w=8,scope=head",
]


def _session(tiny: Any, ids: Any, policy: str, family: str = "llama") -> Session:
    session = Engine(tiny(family, **WHOLE), None, policy, chunk=8).session()
    session.extend(ids(5, 1), "system")
    session.extend(ids(70, 2), "text")
    return session


@pytest.mark.parametrize("policy", POLICIES)
def test_the_budget_is_never_exceeded(policy: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, policy)
    recall = session.engine.policy.recall
    store = session.cache.store
    assert recall is not None and store is not None
    low, high = session.engine.policy.budget.at(None), session.engine.policy.budget.at(1.0)
    session.extend(ids(9, 3), "observation")
    fed = session.seen
    for i, token in enumerate(ids(60, 4)):
        session.score([token])
        held = store.held[0]
        step = session.steps[-1]
        assert held == 14 and step.budget in (low, high)
        assert step.kept <= held + step.budget
        if step.recalled:
            assert step.budget == low, "recalled positions may fill the budget of an uncertain step"
        for lane in range(store.lanes):
            for row in session.original_positions(lane):
                assert bool((row.diff() > 0).all())
                kept = set(row.tolist())
                assert {0, 1, 2, 3, 4} <= kept, "the system segment is pinned"
                assert set(range(75, 84)) <= kept, "the newest observation is protected"
                assert set(range(fed + i + 1 - 4, fed + i + 1)) <= kept, "the newest are protected"
    stats = session.stats
    assert stats.recalls > 5 and (stats.looks > 5) == recall.look


@pytest.mark.parametrize("gate", ["confidence", "always", "random"])
def test_a_look_is_one_more_pass_of_the_same_token(gate: str, tiny: Any, ids: Any, recorder: Any) -> None:
    session = _session(tiny, ids, f"confkv-look:{SMALL},gate={gate}")
    recall = session.engine.policy.recall
    assert recall is not None
    log = recorder(session.engine).logits
    for i, token in enumerate(ids(40, 4)):
        before, seen, tokens = len(log), session.seen, len(session.tokens)
        session.score([token])
        step, passes = session.steps[-1], log[before:]
        assert session.seen == seen + 1 and len(session.tokens) == tokens + 1, "the token counts once"
        assert len(session.steps) == i + 1
        assert len(passes) == 1 + step.looked <= 2
        assert step.confidence == confidence(passes[-1]), "that of the distribution to sample from"
        assert step.looked == (step.recalled > 0) == recall.fires(confidence(passes[0]), seen)
    stats = session.stats
    assert stats.looks == stats.recalls == sum(step.looked for step in session.steps) > 10
    assert stats.recalled == sum(step.recalled for step in session.steps)


def test_a_sampled_token_that_was_run_again_is_there_once(tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, f"confkv-look:{SMALL},gate=always")
    seen = session.seen
    reply = [token.id for token in session.generate(12, temperature=1.0, seed=1, stop_ids=[])]
    assert session.stats.looks == 11, "all but the first, which no decode step led to"
    assert [step.looked for step in session.steps] == [False] + [True] * 11
    assert session.tokens[seen:] == reply and session.seen == seen + 11


def test_recall_acts_after_the_step(tiny: Any, ids: Any, recorder: Any) -> None:
    session = _session(tiny, ids, f"confkv-recall:{SMALL}")
    log = recorder(session.engine).logits
    for token in ids(40, 4):
        session.score([token])
        step = session.steps[-1]
        assert (step.recalled > 0) == (step.confidence < 0.6) and not step.looked
    assert len(log) == 40 and session.stats.looks == 0 < session.stats.recalls


@pytest.mark.parametrize("segment", ["goal", "observation", "text", "reply", "system"])
def test_pages_come_back_for_a_new_goal_or_observation(segment: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, f"confkv-recall:{SMALL}")
    before = session.stats.recalls
    turn = session.extend(ids(6, 3), segment)
    assert (turn.recalled > 0) == (segment in ("goal", "observation"))
    assert session.stats.recalls - before == (turn.recalled > 0)
    assert session.stats.bytes <= session.stats.peak_bytes


@pytest.mark.parametrize("policy", ["confkv-recall:gate=always", "confkv-look:gate=always", "confkv-look:gate=random"])
def test_nothing_evicted_nothing_done(policy: str, tiny: Any, ids: Any, recorder: Any) -> None:
    session = Engine(tiny("llama", **WHOLE), None, policy, chunk=16).session()
    log = recorder(session.engine).logits
    session.extend(ids(60), "observation")
    session.score(ids(20, 2))
    stats = session.stats
    assert (stats.looks, stats.recalls, stats.recalled, stats.evictions) == (0, 0, 0, 0)
    assert len(log) == 4 + 20
    store = session.cache.store
    assert store is not None
    assert stats.host_bytes == 2 * 4 * store.lanes * store.heads * store.dim, "the scales of an empty archive"


def test_where_nothing_comes_back_the_pass_stands(tiny: Any, ids: Any, recorder: Any) -> None:
    """An archive that may hold nothing: looks are due at every step and none is run."""
    session = _session(tiny, ids, f"confkv-look:{SMALL},gate=always,archive_mb=0")
    plain = _session(tiny, ids, "confkv:n_high=20,n_low=20,protect=4,sinks=2")
    log, other = recorder(session.engine).logits, recorder(plain.engine).logits
    for each in (session, plain):
        each.score(ids(30, 4))
    assert session.stats.looks == session.stats.recalls == 0 < session.stats.evictions
    assert len(log) == len(other) == 30
    assert all(torch.equal(a, b) for a, b in zip(log, other, strict=True))


@pytest.mark.parametrize("name", ["confkv-recall", "confkv-look"])
def test_a_budget_without_room_for_pages(name: str, tiny: Any, ids: Any, recorder: Any) -> None:
    policy = f"{name}:n_high=6,n_low=6,protect=4,sinks=2,page=4,gate=always"
    session = Engine(tiny("llama", **WHOLE), None, policy, chunk=8).session()
    session.extend(ids(70, 2), "text")
    log = recorder(session.engine).logits
    session.score(ids(20, 4))
    assert session.stats.recalls == 0 < session.stats.host_bytes and len(log) == 20
    assert session.steps[-1].kept == 6, "the sinks and the newest alone fill it"


def test_the_random_gate_keeps_its_rate_and_its_seed() -> None:
    def steps(text: str) -> list[bool]:
        recall = parse_policy(f"confkv-look:gate=random,{text}").recall
        assert recall is not None
        return [recall.fires(0.9, seen) for seen in range(4000)]

    for rate in (0.1, 0.5, 0.9):
        assert abs(sum(steps(f"rate={rate}")) / 4000 - rate) < 0.03
    assert steps("rate=0.5") == steps("rate=0.5,seed=0") != steps("rate=0.5,seed=1")
    assert not any(steps("rate=0")) and all(steps("rate=1"))


def test_gates_that_always_and_never_open(tiny: Any, ids: Any) -> None:
    def scores(policy: str) -> list[float]:
        return _session(tiny, ids, policy).score(ids(40, 4))

    always = scores(f"confkv-look:{SMALL},gate=always")
    assert scores(f"confkv-look:{SMALL},gate=random,rate=1") == always
    assert scores(f"confkv-look:{SMALL.replace('0.6', '1.5')}") == always
    never = scores(f"confkv-look:{SMALL},gate=random,rate=0,reads=0")
    assert scores(f"confkv-look:{SMALL.replace('0.6', '-1')},reads=0") == never != always
    assert scores("confkv:n_high=12,n_low=20,protect=4,sinks=2,tau=-1") == never, "without recall it is confkv"


@pytest.mark.parametrize("policy", [POLICIES[3], POLICIES[5], POLICIES[6]])
def test_bytes_of_host_and_device_are_those_allocated(policy: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, policy)
    session.extend(ids(20, 3), "observation")
    session.score(ids(30, 4))
    manager, stats = session._manager, session.stats
    assert manager is not None and manager.archive is not None
    tensors = [x for x in vars(manager.archive).values() if isinstance(x, torch.Tensor)]
    index = manager.archive.centre.nbytes
    on_device = "index=device" in policy
    assert stats.host_bytes == sum(x.nbytes for x in tensors) - index * on_device > 0
    assert stats.bytes_by_kind["index"] == index * on_device
    assert sum(stats.bytes_by_kind.values()) == stats.bytes <= stats.peak_bytes
    assert session.steps[-1].bytes == stats.bytes


def test_seconds_are_told_apart(tiny: Any, ids: Any) -> None:
    looks, recalls = (_session(tiny, ids, f"{name}:{SMALL},gate=always") for name in ("confkv-look", "confkv-recall"))
    for session in (looks, recalls):
        session.score(ids(20, 4))
        seconds = session.stats.seconds
        assert set(seconds) == {"prefill", "decode", "manage", "recall", "look"}
        assert min(seconds.values()) >= 0 and seconds["recall"] > 0
        assert sum(step.seconds for step in session.steps) >= seconds["decode"] + seconds["look"]
    assert looks.stats.seconds["look"] > 0 == recalls.stats.seconds["look"]


@pytest.mark.parametrize("policy", [POLICIES[1], POLICIES[4]])
def test_one_policy_object_serves_two_sessions(policy: str, tiny: Any, ids: Any) -> None:
    parsed = parse_policy(policy)

    def engine() -> Engine:
        return Engine(tiny("qwen3", **WHOLE), None, parsed, chunk=16)

    def start(session: Session, seed: int, length: int) -> Session:
        session.extend(ids(length, seed), "observation")
        return session

    alone = [start(engine().session(), seed, length).score(ids(30, 9)) for seed, length in ((1, 50), (2, 33))]
    shared = engine()
    pair = [start(shared.session(), seed, length) for seed, length in ((1, 50), (2, 33))]
    mixed: list[list[float]] = [[], []]
    for token in ids(30, 9):
        for session, out in zip(pair, mixed, strict=True):
            out += session.score([token])
    assert mixed == alone
    assert parsed == parse_policy(policy)


def test_what_comes_back_has_the_norm_of_its_value(tiny: Any, ids: Any) -> None:
    """No registered policy has both recall and norms."""
    policy = replace(parse_policy(f"confkv-look:{SMALL},scope=head,archive=fp"), ranker=MeanMass(values=True))
    session = Engine(tiny("llama", **WHOLE), None, policy, chunk=8).session()
    session.extend(ids(70, 2), "text")
    session.score(ids(20, 3))
    store = session.cache.store
    assert store is not None and store.norms == 4 and session.stats.recalled > 0
    n = store.lengths[0]
    _, v = read_rows(store, torch.arange(n).expand(store.lanes, store.heads, n).contiguous())
    torch.testing.assert_close(store.meta[:, :, :n, store.norms], v.abs().sum(-1))


def test_looks_are_for_the_least_certain_share_of_the_session() -> None:
    recall = parse_policy("confkv-look:looks=0.25,tau=0.7").recall
    assert recall is not None
    past = Past([0.1, 0.9, 0.3, 0.95, 0.5, 0.8, 0.2], 7)
    assert recall.looks_again(0.69, past, 0) and not recall.looks_again(0.7, past, 0), "too few: tau alone decides"
    past.add(0.6)
    # 0.1 0.2 | 0.3 0.5 0.6 0.8 0.9 0.95: two of eight lie below 0.3.
    assert recall.looks_again(0.29, past, 0) and not recall.looks_again(0.3, past, 0)
    sure = Past([0.9 + i / 1000 for i in range(20)], 20)
    assert recall.looks_again(0.69, sure, 0) and not recall.looks_again(0.8, sure, 0), "never above tau"
    assert not parse_policy("confkv-look:looks=0").recall.looks_again(0.0, past, 0)  # type: ignore[union-attr]
    assert parse_policy("confkv-look:looks=1").recall.looks_again(0.69, past, 0)  # type: ignore[union-attr]
    assert not parse_policy("confkv-recall").recall.looks_again(0.0, past, 0)  # type: ignore[union-attr]


def test_random_looks_keep_their_rate_whatever_the_confidence() -> None:
    def steps(text: str) -> list[bool]:
        recall = parse_policy(f"confkv-look:look_gate=random,{text}").recall
        assert recall is not None
        return [recall.looks_again(0.99, Past(), seen) for seen in range(4000)]

    for rate in (0.1, 0.25):
        assert abs(sum(steps(f"looks={rate}")) / 4000 - rate) < 0.03
    assert steps("looks=0.25") == steps("looks=0.25,seed=0") != steps("looks=0.25,seed=1")
    gate = parse_policy("confkv-look:gate=random,rate=0.25").recall
    assert gate is not None and steps("looks=0.25") != [gate.fires(0.99, seen) for seen in range(4000)]


def test_uncertain_steps_that_are_no_looks_recall_for_the_next_token(tiny: Any, ids: Any, recorder: Any) -> None:
    session = _session(tiny, ids, f"confkv-look:{SMALL},looks=0.2")
    log, first = recorder(session.engine).logits, []
    past, looked, plain = Past(), 0, 0
    recall = session.engine.policy.recall
    assert recall is not None
    for token in ids(60, 4):
        before = len(log)
        session.score([token])
        c, step = confidence(log[before]), session.steps[-1]
        first.append(c)
        due = recall.looks_again(c, past, 0)
        assert len(log) - before == 1 + step.looked and (due or not step.looked)
        assert due or (step.recalled > 0) <= (c < 0.6), "only uncertain steps bring something back"
        looked += step.looked
        plain += step.recalled > 0 and not step.looked
        past.add(c)
    manager = session._manager
    assert manager is not None and manager.past.values == first, "a look does not change what was remembered"
    assert 5 <= looked <= 0.3 * 60 + 8 and plain > 5


@pytest.mark.parametrize(
    "policy", [f"confkv-recall:{SMALL}", f"confkv-look:{SMALL},scope=head,index=device,archive=fp"]
)
def test_a_prefill_pass_gets_the_pages_of_its_own_queries(policy: str, tiny: Any, ids: Any) -> None:
    session = _session(tiny, ids, policy)
    store, manager = session.cache.store, session._manager
    assert manager is not None and store is not None
    archive = manager.archive
    assert archive is not None
    seen: list[int] = []

    def spy(lane: int, q: torch.Tensor, scale: float, softcap: float | None) -> None:
        # What was asked for, from the same queries: the pages, best first, of each kept set.
        centre = archive.centre[lane : lane + 1, :, : archive.pages]
        score = page_scores(q, centre, scale=torch.tensor([scale]), softcap=softcap)[0]
        score = score.mean(0, keepdim=True) if session.engine.policy.scope == "layer" else score
        n = store.lengths[lane]
        free = manager.competes(session.cache.seen)[lane, :, :n]
        held = store.meta[lane, : score.shape[0], :n, ORIGIN].long()
        plain(lane, q, scale, softcap)
        now = store.meta[lane, : score.shape[0], :n, ORIGIN].long()
        assert store.lengths[lane] == n, "a lane keeps its length"
        for head in range(score.shape[0]):
            stays = set(held[head][~free[head if free.shape[0] > 1 else 0]].tolist())
            pages = archive.page_starts()[score[head].argsort(descending=True)]
            order = (pages.unsqueeze(-1) + torch.arange(4)).flatten()
            best = [origin for origin in order.tolist() if origin not in stays][: n - len(stays)]
            assert set(now[head].tolist()) == stays | set(best)
        seen.append(lane)

    plain: Any = None
    forward = session.engine.forward

    def spied(tokens: torch.Tensor, at: torch.Tensor, to: Any) -> torch.Tensor:
        nonlocal plain
        plain, to.fetch = to.fetch, spy if to.fetch is not None else None
        return forward(tokens, at, to)

    session.engine.forward = spied  # type: ignore[method-assign]
    before = session.stats
    turn = session.extend(ids(16, 6), "text")
    stats = session.stats
    assert len(seen) == 2 * store.lanes and stats.fetched > before.fetched
    assert turn.recalled == 0 and (stats.recalls, stats.recalled) == (before.recalls, before.recalled)
    del seen[:]
    turn = session.extend(ids(6, 7), "goal")
    assert len(seen) == 2 * store.lanes, "the token that an answer starts from has a pass of its own"
    assert turn.recalled > 0 and session.stats.recalled == stats.recalled + turn.recalled
    assert session.stats.fetched == stats.fetched and session.stats.recalls == stats.recalls + 1
    del seen[:]
    session.score(ids(5, 8))
    reads = session.engine.policy.recall.reads  # type: ignore[union-attr]
    assert seen == [0, 1] * 5 * (reads == 2), "else decoding recalls between its steps"


def test_without_reads_a_prefill_pass_is_left_alone(tiny: Any, ids: Any, recorder: Any) -> None:
    session = _session(tiny, ids, f"confkv-recall:{SMALL},reads=0")
    plain = _session(tiny, ids, "confkv:n_high=20,n_low=20,protect=4,sinks=2")
    log, other = recorder(session.engine).logits, recorder(plain.engine).logits
    assert session.extend(ids(20, 4), "goal").recalled > 0 == session.stats.fetched
    plain.extend(ids(20, 4), "goal")
    assert len(log) == len(other) == 3 and all(torch.equal(a, b) for a, b in zip(log, other, strict=True))
