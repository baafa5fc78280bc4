"""Every registered policy, under any sequence of turns: what must stay stays, the budget holds, nothing leaks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from confkv.engine import Engine
from confkv.policies import list_policies, parse_policy
from confkv.policies.budget import ByConfidence, Past
from confkv.session import Session
from tests.confkv.test_store import LANES, STEP, Driver, _run

#: Each policy at a size at which little is fed before it evicts.
SMALL = {
    "full": "full",
    "window": "window:16,sinks=3",
    "confkv": "confkv:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5",
    "confkv-l": "confkv-l:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,floor=8",
    "streaming": "streaming:16",
    "streaming-rel": "streaming-rel:16",
    "h2o": "h2o:16",
    "scissorhands": "scissorhands:18",
    "snapkv": "snapkv:16,w=5,pool=3",
    "pyramidkv": "pyramidkv:16,w=5,pool=3",
    "zigzag": "zigzag:14,w=5,pool=3",
    "adakv": "adakv:16,w=5,pool=3",
    "tova": "tova:16",
    "knorm": "knorm:16,protect=4",
    "random": "random:16,protect=4",
    "recency": "recency:16,protect=4",
    "mass": "mass:16,protect=4",
}
MORE = [
    SMALL["confkv"] + ",adaptive=0.5",
    SMALL["confkv"] + ",shuffle=1",
    "confkv:n_high=16,n_low=24,protect=4,sinks=2,tau=0.5,block=8",
    "confkv-l:n_high=20,n_low=24,protect=4,sinks=2,tau=0.5,floor=16,block=8",
    "h2o:16,scope=layer,sinks=2",
    "snapkv:16,w=5,pool=3,pooling=avg,scope=layer,sinks=1",
    "tova:16,scope=head,protect=3",
    "adakv:14,w=4,pool=1,floor=0,sinks=2",
    SMALL["confkv"] + ",scope=head,heads=ada",
    SMALL["confkv-l"] + ",scope=head,heads=ada,head_floor=0.5",
    "confkv-mean:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,heads=ada",
    SMALL["confkv"] + ",scope=head,heads=ada,head_floor=0,guard=0.5",
    SMALL["confkv-l"].replace(",floor=8", ",curve=pyramidkv") + ",guard=0.2,scope=head,heads=ada",
    "confkv-mean:n_high=14,n_low=20,protect=4,sinks=2,tau=0.5,values=1,guard=0.4,heads=ada",
    "confkv-mean:n_high=14,n_low=20,protect=4,sinks=2,tau=0.5,values=1",
    "confkv-slow:n_high=14,n_low=20,sinks=2,tau=0.5",
    "confkv-slow:n_high=14,n_low=20,sinks=2,tau=0.5,recent=0.3,guard=0.2,heads=ada",
    "confkv-mean:n_high=14,n_low=20,protect=4,sinks=2,tau=0.5,values=1,guard=0.4,scope=layer",
    SMALL["confkv"] + ",guard=0.5",
    SMALL["confkv-l"].replace(",floor=8", ",curve=pyramidkv") + ",guard=0.2,scope=head",
    "confkv:n_high=20,n_low=24,protect=4,sinks=2,tau=0.5,block=8,guard=0.25",
]
INT8 = [
    "h2o:60,int8=1,w=12",
    "scissorhands:60,int8=1,w=12,sinks=4",
    "snapkv:60,w=8,pool=3,int8=1,fp=12",
    "pyramidkv:60,w=8,pool=3,int8=1,fp=12",
    "zigzag:50,w=8,pool=3,int8=1,fp=12,scope=layer",
    "knorm:60,protect=8,int8=1,w=12",
    "adakv:60,w=8,pool=3,int8=1,fp=12",
    "confkv-mean:n_high=60,n_low=90,protect=8,tau=0.5,int8=1,w=12,heads=ada",
    "confkv:n_high=60,n_low=90,protect=8,sinks=2,tau=0.5,int8=1,w=12,block=8",
    "confkv-mean:n_high=60,n_low=90,protect=8,tau=0.5,int8=1,w=12,values=1,guard=0.3",
    "confkv-mean:n_high=60,n_low=90,protect=8,tau=0.5,int8=1,w=12,values=1,guard=0.3,heads=ada",
]


def test_every_policy_is_here() -> None:
    names = {info.name for info in list_policies()}
    assert {name for name in names if not name.startswith("confkv-")} <= set(SMALL) <= names
    assert all(parse_policy(text).name == name for name, text in SMALL.items())


@pytest.mark.parametrize("policy", [*SMALL.values(), *MORE])
@given(steps=st.lists(STEP, min_size=1, max_size=8), seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_what_must_stay_stays_and_the_budget_holds(policy: str, steps: list[tuple[str, int, int]], seed: int) -> None:
    _run(Driver(policy, seed), steps, 0.0)


@pytest.mark.parametrize("policy", INT8)
def test_int8_under_every_ranker(policy: str) -> None:
    # As an engine does: what INT8 spares is what policies usually take for sinks.
    driver = Driver(policy, 1, sinks=max(4, parse_policy(policy).sinks))
    _run(driver, [("feed", 60, 0), ("observation", 40, 2), ("decode", 40, 1), ("observation", 30, 2)], 0.015)
    _run(driver, [("feed", 70, 0), ("decode", 50, 0)], 0.015)
    assert max(driver.store.n_history) > 0 and not all(driver.whole)


def _tokens(session: Session, length: int, seed: int, ids: Any) -> list[tuple[int, float, float]]:
    session.extend(ids(length, seed), "observation")
    session.extend(ids(20, seed + 7), "observation")
    return [(t.id, t.confidence, t.kept) for t in session.generate(20, stop_ids=[])]


@pytest.mark.parametrize("policy", [*SMALL.values(), *MORE[:3], *MORE[-10:]])
def test_one_policy_object_serves_two_sessions_without_a_trace(policy: str, tiny: Any, ids: Any) -> None:
    parsed = parse_policy(policy)
    before = copy.deepcopy(parsed)

    def engine() -> Engine:
        return Engine(tiny("llama", max_position_embeddings=400), None, parsed, chunk=16)

    alone = [_tokens(engine().session(), *what, ids) for what in ((50, 1), (21, 2))]
    shared = engine()
    assert [_tokens(shared.session(), *what, ids) for what in ((50, 1), (21, 2))] == alone
    first, second = shared.session(), shared.session()
    for session, (length, seed) in ((first, (50, 1)), (second, (21, 2))):
        session.extend(ids(length, seed), "observation")
    for session, seed in ((second, 2), (first, 1)):
        session.extend(ids(20, seed + 7), "observation")
    pairs = list(zip(first.generate(20, stop_ids=[]), second.generate(20, stop_ids=[]), strict=True))
    for i in range(2):
        assert [(pair[i].id, pair[i].confidence, pair[i].kept) for pair in pairs] == alone[i]
    assert parsed == before


@pytest.mark.parametrize("policy", ["snapkv:16,w=5,pool=3", "zigzag:14,w=5,pool=3"])
def test_kept_queries_count_as_bytes(policy: str, tiny: Any, ids: Any) -> None:
    session = Engine(tiny("llama", max_position_embeddings=400), None, policy, chunk=16).session()
    session.extend(ids(60))
    manager, store = session._manager, session.cache.store
    assert manager is not None and store is not None
    assert manager.nbytes == 2 * 4 * 5 * 8 * 4
    assert session.stats.bytes_by_kind["meta"] == store.meta.nbytes + manager.nbytes


def test_the_window_of_queries_is_the_newest_and_follows_a_rebasing(tiny: Any, ids: Any) -> None:
    """Queries taken out of the model as it runs, and turned with their keys: scores in the window stay."""
    engine = Engine(tiny("llama"), None, "snapkv:16,w=5,pool=3", chunk=7)
    session, seen = engine.session(), []
    session.extend(ids(30, 1))
    for i in range(20):
        session.score(ids(1, i))
        cache, manager = session.cache, session._manager
        assert manager is not None and manager.window is not None and manager.window.q is not None
        seen.append(torch.cat(cache.queries).clone())
    assert torch.equal(manager.window.q, torch.cat(seen[-5:], 2))

    def scores() -> torch.Tensor:
        store = cache.store
        assert store is not None and manager is not None and manager.window is not None
        assert manager.window.q is not None
        order = store.meta[:, :, : store.lengths[0], 2].argsort(-1)[..., -5:]
        keys = store.k.gather(2, order.unsqueeze(-1).expand(-1, -1, -1, 8)).repeat_interleave(2, 1)
        return manager.window.q @ keys.transpose(-1, -2)

    before = scores()
    from confkv import positions

    limit, engine.max_positions = engine.max_positions, session.cache.seen
    positions.rebase_if_needed(session, 1)
    engine.max_positions = limit
    assert session.stats.rebases == 1 and session.cache.seen == 16
    torch.testing.assert_close(scores(), before, atol=1e-4, rtol=1e-4)


# -- budgets that follow the session's confidences ----------------------------------------------------------------


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("level", [0.3, 0.9])
def test_adaptive_threshold_prunes_the_target_share(share: float, level: float) -> None:
    """Whatever the model's confidences are: here all below tau, or all above it, and drifting."""
    budget = ByConfidence(10, 20, tau=0.7, adaptive=share)
    past, g, high = Past(), torch.Generator().manual_seed(4), 0
    for step in range(1200):
        c = level + 0.1 * float(torch.rand(1, generator=g)) - 0.00002 * step
        high += step >= 200 and budget.at(c, past) == 10
        past.add(c)
    assert abs(high / 1000 - share) < 0.05
    assert past.count == 1200 and len(past.values) == 256
    assert budget.at(None, past) == 20


def test_adaptive_starts_with_tau_and_uses_the_quantile_after_eight_steps() -> None:
    budget = ByConfidence(10, 20, tau=0.7, adaptive=0.25)
    past = Past([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65], 7)
    assert (budget.at(0.66, past), budget.at(0.7, past)) == (20, 10)
    past.add(0.05)
    # Of eight, the upper quarter is 0.6 and 0.65.
    assert (budget.at(0.59, past), budget.at(0.6, past)) == (20, 10)


def test_shuffle_keeps_the_distribution_and_loses_the_step() -> None:
    plain, shuffled = ByConfidence(10, 20, tau=0.7), ByConfidence(10, 20, tau=0.7, shuffle=5)
    past, g = Past(), torch.Generator().manual_seed(4)
    budgets: list[tuple[int | None, int | None]] = []
    for _ in range(2000):
        c = 0.9 if float(torch.rand(1, generator=g)) < 0.4 else 0.2
        budgets.append((plain.at(c, past), shuffled.at(c, past)))
        assert shuffled.at(c, past) == budgets[-1][1], "a draw is a function of seed and step"
        past.add(c)
    a, b = ([x == 10 for x in column] for column in zip(*budgets, strict=True))
    share_a, share_b = sum(a) / 2000, sum(b) / 2000
    assert abs(share_a - share_b) < 0.05
    both = sum(x and y for x, y in zip(a, b, strict=True)) / 2000
    assert abs(both - share_a * share_b) < 0.04, "independent of the step's own confidence"
    other = ByConfidence(10, 20, tau=0.7, shuffle=6)
    assert any(
        other.at(0.2, Past(past.values[:k], k)) != shuffled.at(0.2, Past(past.values[:k], k)) for k in range(9, 60)
    )


def test_decode_steps_of_a_session_feed_the_quantile(tiny: Any, ids: Any) -> None:
    policy = SMALL["confkv"] + ",adaptive=0.5"
    session = Engine(tiny("qwen3", max_position_embeddings=400), None, policy, chunk=16).session()
    session.extend(ids(40))
    for _ in session.generate(120, temperature=1.0, seed=3, stop_ids=[]):
        pass
    manager = session._manager
    assert manager is not None
    assert manager.past.values == [step.confidence for step in session.steps[1:]]
    share = sum(step.budget == 12 for step in session.steps[20:]) / len(session.steps[20:])
    assert 0.35 < share < 0.65


# -- blocks -------------------------------------------------------------------------------------------------------


def test_whole_blocks_leave_worst_mean_first() -> None:
    driver = Driver("confkv:n_high=40,n_low=40,protect=6,sinks=2,alpha=1,block=8")
    driver.feed(40)
    store = driver.store
    driver.manager.record = lambda *_: None  # type: ignore[method-assign]
    mass = torch.zeros(50)
    # Block means of positions 8-15, 16-23, 24-31, 32-39: 0.5, 0.25, 0.75 and 0.125, each in one position alone.
    for at, value in ((9, 4.0), (17, 2.0), (30, 6.0), (33, 1.0), (4, 5.0)):
        mass[at] = value
    store.meta[..., 0] = mass[: store.meta.shape[2]]
    driver.feed(1, confidence=0.9)  # 41 of 40: one block leaves, but not 32-39, which the protected window reaches
    gone = set(range(41)) - set(store.positions(0)[0].tolist())
    assert gone == set(range(16, 24))
    for expected in (33, 40, 33):
        while max(store.lengths) < 40:
            driver.feed(1, confidence=0.9)
        driver.check()
        driver.feed(1, confidence=0.9)
        driver.check()
        assert store.lengths == [33] * LANES or expected == 40
    positions = store.positions(0)[0]
    blocks = positions[(positions >= 2) & (positions < driver.seen - 14)] // 8
    counts = torch.bincount(blocks)
    assert set(counts[1:].tolist()) <= {0, 8}, "blocks are held whole or not at all"


def test_pinned_positions_stay_when_their_block_leaves() -> None:
    driver = Driver("confkv:n_high=30,n_low=30,protect=4,sinks=0,alpha=0,block=8")
    driver.feed(11)
    driver.feed(3, 8)  # positions 11, 12, 13 are pinned
    driver.feed(40)
    kept = driver.store.positions(0)[0].tolist()
    assert {11, 12, 13} <= set(kept) and not {8, 9, 10, 14, 15} & set(kept)
    driver.check()
