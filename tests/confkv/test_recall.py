"""Recall and second look in a session: what they may hold, what they report, and where they do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from confkv.confidence import confidence
from confkv.engine import Engine
from confkv.policies import parse_policy
from confkv.policies.mean import MeanMass
from confkv.rows import read_rows
from confkv.session import Session

SMALL = "n_high=12,n_low=20,protect=4,sinks=2,tau=0.6,page=4,opening=0"
WHOLE = {"max_position_embeddings": 400}
POLICIES = [
    f"confkv-recall:{SMALL}",
    f"confkv-recall:{SMALL},scope=head,gate=always",
    f"confkv-recall:{SMALL},gate=random,rate=0.4",
    f"confkv-look:{SMALL}",
    f"confkv-look:{SMALL},scope=head,gate=random",
    f"confkv-look:{SMALL},gate=always,index=device,archive=fp",
    "confkv-look:n_high=50,n_low=60,protect=4,sinks=2,tau=0.6,page=4,opening=0,int8=1,w=8,scope=head",
]


def _session(tiny: Any, ids: Any, policy: str, family: str = "llama") -> Session:
    session = Engine(tiny(family, **WHOLE), None, policy, chunk=8).session()
    session.extend(ids(5, 1), "system")
    session.extend(ids(70, 2), "text")
    return session


@pytest.mark.parametrize("policy", POLICIES)
def test_the_budget_is_never_exceeded(policy: str, tiny: Any, ids: Any, recorder: Any) -> None:
    session = _session(tiny, ids, policy)
    recall, budget = session.engine.policy.recall, session.engine.policy.budget
    store = session.cache.store
    assert recall is not None and store is not None
    session.extend(ids(9, 3), "observation")
    log, low, high = recorder(session.engine).logits, budget.at(None), budget.at(1.0)
    before, told = session.stats, set()
    for token in ids(60, 4):
        lengths, passes, seen = list(store.lengths), len(log), session.seen
        session.score([token])
        step = session.steps[-1]
        told.add(step.budget)
        assert step.budget == (low if recall.fires(confidence(log[passes]), seen) else high), "the first pass sets it"
        assert store.held == [14] * store.lanes
        # What came back made room for itself: the token just fed is all that was added.
        assert store.lengths == [min(n + 1, 14 + step.budget) for n in lengths]
        assert step.kept == sum(store.lengths) / store.lanes
        for lane in range(store.lanes):
            for row in session.original_positions(lane):
                assert bool((row.diff() > 0).all())
                kept = set(row.tolist())
                assert {0, 1, 2, 3, 4} <= kept, "the system segment is pinned"
                assert set(range(75, 84)) <= kept, "the newest observation is protected"
                assert set(range(session.seen - 4, session.seen)) <= kept, "the newest are protected"
    stats = session.stats
    assert told == ({low} if recall.gate == "always" else {low, high})
    assert stats.recalls - before.recalls > 5
    assert (stats.looks > 2) == (recall.look and recall.gate != "always")


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
    session = _session(tiny, ids, f"confkv-look:{SMALL},gate=always,archive_mb=0,horizon=0,scope=layer")
    plain = _session(tiny, ids, "confkv:n_high=20,n_low=20,protect=4,sinks=2")
    log, other = recorder(session.engine).logits, recorder(plain.engine).logits
    for each in (session, plain):
        each.score(ids(30, 4))
    assert session.stats.looks == session.stats.recalls == 0 < session.stats.evictions
    assert len(log) == len(other) == 30
    assert all(torch.equal(a, b) for a, b in zip(log, other, strict=True))


@pytest.mark.parametrize("name", ["confkv-recall", "confkv-look"])
@pytest.mark.parametrize("gate", ["confidence", "always"])
def test_a_budget_without_room_for_pages(gate: str, name: str, tiny: Any, ids: Any, recorder: Any) -> None:
    policy = f"{name}:n_high=6,n_low=6,protect=4,sinks=2,page=4,gate={gate}"
    session = Engine(tiny("llama", **WHOLE), None, policy, chunk=8).session()
    session.extend(ids(70, 2), "text")
    log = recorder(session.engine).logits
    for token in ids(20, 4):
        before = len(log)
        session.score([token])
        assert all(torch.equal(log[before], again) for again in log[before + 1 :]), "a look that found nothing new"
    stats = session.stats
    assert stats.recalls == stats.fetched == 0 < stats.host_bytes and len(log) == 20 + stats.looks
    assert (stats.looks > 0) == (name == "confkv-look" and gate == "confidence")
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
    assert scores(f"confkv-recall:{SMALL},gate=always") == always, "every pass comes with its pages: none is looked at"
    assert scores(f"confkv-look:{SMALL},gate=random,rate=1") == always
    assert scores(f"confkv-look:{SMALL.replace('0.6', '1.5')}") == always
    own = "reads=0,horizon=0,scope=layer"  # ranked as confkv ranks
    never = scores(f"confkv-look:{SMALL},gate=random,rate=0,{own}")
    assert scores(f"confkv-look:{SMALL.replace('0.6', '-1')},{own}") == never != always
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
    looks, recalls = (_session(tiny, ids, f"{name}:{SMALL}") for name in ("confkv-look", "confkv-recall"))
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


def test_without_reads_a_prefill_pass_is_left_alone(tiny: Any, ids: Any, recorder: Any) -> None:
    session = _session(tiny, ids, f"confkv-recall:{SMALL},reads=0,horizon=0,scope=layer")
    plain = _session(tiny, ids, "confkv:n_high=20,n_low=20,protect=4,sinks=2")
    log, other = recorder(session.engine).logits, recorder(plain.engine).logits
    assert session.extend(ids(20, 4), "goal").recalled > 0 == session.stats.fetched
    plain.extend(ids(20, 4), "goal")
    assert len(log) == len(other) == 3 and all(torch.equal(a, b) for a, b in zip(log, other, strict=True))
