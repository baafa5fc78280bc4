"""The layout for uneven budgets: memory follows each lane, and nothing else differs from the stacked layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from confkv.engine import Engine
from confkv.policies import parse_policy
from confkv.policies.base import Policy
from confkv.policies.budget import ByConfidence, Pyramid
from confkv.ragged import RaggedStore
from confkv.rows import open_slots, read_rows, write_rows
from confkv.session import Session
from confkv.store import PINNED, PROTECTED, Store
from tests.confkv.conftest import Recorder
from tests.confkv.test_policy_properties import INT8 as RANKERS_INT8
from tests.confkv.test_policy_properties import MORE, SMALL
from tests.confkv.test_store import DIM, HEADS, INT8, LANES, POLICIES, STEP, Driver

#: Metadata of their own: norms of values, origins.
GUARDED = MORE[-8:-1]


class Apart(Store):
    """The stacked layout, whose keys are read lane by lane as the ragged one's: sums then run in the same order."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.by_lane = True


def _same(ragged: Store, stacked: Store) -> None:
    assert ragged.lengths == stacked.lengths and ragged.n_fp == stacked.n_fp
    assert ragged.n_history == stacked.n_history and ragged.held == stacked.held
    for lane, n in enumerate(ragged.lengths):
        for a, b in zip(ragged.dequantised(lane), stacked.dequantised(lane), strict=True):
            assert torch.equal(a, b)
        assert torch.equal(ragged.meta[lane, :, :n], stacked.meta[lane, :, :n])


def _both(policy: str, seed: int) -> tuple[Driver, Driver]:
    return Driver(policy, seed, layout=RaggedStore), Driver(policy, seed, layout=Apart)


@pytest.mark.parametrize(
    "policy", [*POLICIES, *(SMALL[name] for name in ("pyramidkv", "zigzag", "adakv", "knorm", "h2o")), *GUARDED]
)
@given(steps=st.lists(STEP, min_size=1, max_size=8), seed=st.integers(0, 1000))
@settings(max_examples=6, deadline=None)
def test_both_layouts_hold_the_same_in_the_same_slots(
    policy: str, steps: list[tuple[str, int, int]], seed: int
) -> None:
    drivers = _both(policy, seed)
    for kind, count, flag in steps:
        for driver in drivers:
            if kind == "observation":
                driver.release()
            for i in range(count if kind == "decode" else 1):
                driver.feed(1 if kind == "decode" else count, 0 if kind == "decode" else flag, (0.9, 0.1)[i % 2])
            driver.check()
        _same(drivers[0].store, drivers[1].store)


@pytest.mark.parametrize("policy", [*INT8[:4], *RANKERS_INT8[3:6]])
def test_both_layouts_code_the_same(policy: str) -> None:
    drivers = _both(policy, 2)
    freq = 1.0 / 100.0 ** (torch.arange(0, DIM, 2) / DIM)
    for turn in range(3):
        for driver in drivers:
            driver.release()
            driver.feed(70, PROTECTED if turn else PINNED)
        for step in range(30):
            for driver in drivers:
                driver.feed(1, confidence=0.9 if (step // 4 + turn) % 2 else 0.1, grow=1.0 + step / 10)
                driver.check(0.015)
            _same(drivers[0].store, drivers[1].store)
    assert max(drivers[0].store.n_history) > 30
    for driver in drivers:
        driver.store.rebase(max(driver.store.lengths), [freq, None])
    _same(drivers[0].store, drivers[1].store)


@pytest.mark.parametrize("policy", [POLICIES[2], INT8[2], SMALL["zigzag"]])
def test_a_copy_is_exact_and_apart(policy: str) -> None:
    driver, twin = (Driver(policy, 5) for _ in range(2))
    driver.feed(130)
    for _ in range(20):
        driver.feed(1, confidence=0.9)
    state = driver.store.state()
    assert state["k"].shape == (1, HEADS, sum(driver.store.n_fp), DIM)
    kept = {name: tensor.clone() for name, tensor in state.items()}
    twin.store.load_state(state)
    _same(twin.store, driver.store)
    for other in (driver, twin):
        other.feed(3)
        other.feed(1, confidence=0.9)
    assert all(torch.equal(tensor, state[name]) for name, tensor in kept.items())
    for part, other_part in zip(driver.store.parts, twin.store.parts, strict=True):
        assert part.k.data_ptr() != other_part.k.data_ptr()


@pytest.mark.parametrize("policy", [POLICIES[2], INT8[2]])
def test_single_rows_are_those_of_the_stacked_layout(policy: str) -> None:
    drivers = _both(policy, 7)
    for driver in drivers:
        driver.feed(130)
        for _ in range(30):
            driver.feed(1, confidence=0.9)
    stores = [driver.store for driver in drivers]
    g = torch.Generator().manual_seed(1)
    slots = torch.stack([torch.randint(0, n, (HEADS, 9), generator=g) for n in stores[0].lengths])
    for a, b in zip(*(read_rows(store, slots) for store in stores), strict=True):
        assert torch.equal(a, b)
    new = [open_slots(store, [2, 5]) for store in stores]
    assert torch.equal(new[0], new[1])
    lane, head, slot = new[0].unsqueeze(1).expand(-1, HEADS, -1).nonzero(as_tuple=True)
    # Besides the slots that opened, the first of each lane: with INT8, one of its history.
    lane, head, slot = (
        torch.cat([x, y])
        for x, y in ((lane, torch.arange(LANES)), (head, torch.tensor([1, 0])), (slot, torch.zeros(2).long()))
    )
    k, v = torch.randn(2, lane.shape[0], DIM, generator=g)
    for store in stores:
        write_rows(store, lane, head, slot, k, v)
        store.meta[lane, head, slot] = 0.0
    _same(*stores)


def test_what_was_allocated_stays_until_a_lane_outgrows_it() -> None:
    driver = Driver(POLICIES[2], 1)
    driver.feed(40)
    store = driver.store
    assert isinstance(store, RaggedStore)
    store.allocate([300, 45])
    for _ in range(30):
        driver.feed(1, confidence=0.9)
        driver.check()
    assert [part.capacity for part in store.parts] == [300, 45] and store.capacity == 300
    driver.feed(80, PINNED)
    driver.feed(1, confidence=0.9)
    driver.check()
    first, second = (part.capacity for part in store.parts)
    assert first == 300 and second > 80


# -- sessions -----------------------------------------------------------------------------------------------------

LAYERS = {"num_hidden_layers": 4}
RECALL = "confkv-look:n_high=24,n_low=40,protect=4,sinks=2,tau=0.6,page=4,archive=fp"
UNEVEN = {
    "confkv-l": "confkv-l:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,floor=8",
    "confkv-l-head": "confkv-l:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,floor=8,scope=head",
    "confkv-l-int8": "confkv-l:n_high=50,n_low=60,protect=4,sinks=2,tau=0.5,floor=40,int8=1,w=8,scope=head",
    "pyramidkv": "pyramidkv:20,w=5,pool=3",
    "zigzag": "zigzag:16,w=5,pool=3",
    "confkv-l-line": "confkv-l:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,curve=pyramidkv,guard=0.2",
    "adakv": "adakv:16,w=5,pool=3",
    "confkv-ada-int8": "confkv:n_high=36,n_low=40,protect=4,sinks=2,tau=0.5,int8=1,w=8,scope=head,heads=ada",
    "confkv-ada-guard": "confkv-mean:n_high=12,n_low=20,protect=4,sinks=2,tau=0.5,values=1,guard=0.3,heads=ada",
}


def _uneven_recall(text: str) -> Policy:
    """Recall whose budgets fall with depth; no registered policy has both."""
    return replace(parse_policy(text), budget=Pyramid(ByConfidence(24, 40, 0.6), floor=12, ratio=0.4))


def _play(engine: Engine, ids: Any) -> list[Tensor]:
    recorder = Recorder(engine)
    session = engine.session()
    session.extend(ids(8, 1), "system")
    for turn in range(3):
        session.extend(ids(40 - 13 * turn, 2 + turn), "observation")
        for _ in session.generate(25, temperature=1.0, seed=turn, stop_ids=[], segment="reply"):
            pass
    mark = session.checkpoint()
    for one in (session.fork(), session):
        one.extend(ids(30, 9))
        one.score(ids(12, 10))
    session.rewind(mark)
    session.retract()
    session.score(ids(12, 11))
    assert session.stats.evictions > 0 and session.stats.rebases > 0
    return recorder.logits


@pytest.mark.parametrize("family", ["llama", "gpt-oss"])
@pytest.mark.parametrize("policy", [*UNEVEN, "recall", "recall-int8"])
def test_the_model_cannot_tell_the_layouts_apart(
    policy: str, family: str, tiny: Any, ids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = UNEVEN[policy] if policy in UNEVEN else _uneven_recall(RECALL + ",int8=1,w=8" * (policy != "recall"))
    more = LAYERS if family == "llama" else {}
    ragged = _play(Engine(tiny(family, max_position_embeddings=150, **more), None, chosen, chunk=16), ids)
    monkeypatch.setattr("confkv.engine.RaggedStore", Apart)
    stacked = _play(Engine(tiny(family, max_position_embeddings=150, **more), None, chosen, chunk=16), ids)
    assert len(ragged) == len(stacked) > 100
    assert all(torch.equal(a, b) for a, b in zip(ragged, stacked, strict=True))


def _long_decode(tiny: Any, ids: Any, policy: str) -> Session:
    model = tiny("llama", num_hidden_layers=6, max_position_embeddings=4096)
    with torch.no_grad():  # attention sharp in one layer and flat in the next
        for i, layer in enumerate(model.model.layers):
            layer.self_attn.q_proj.weight.mul_(4.0 if i % 3 else 0.05)
    session = Engine(model, None, policy, chunk=512).session()
    session.extend(ids(2200, 1), "observation")
    session.extend(ids(40, 2), "observation")
    session.score(ids(150, 3))
    return session


LONG = [
    "confkv-l:n_high=900,n_low=900,floor=100,ratio=0.2",
    "confkv-l:n_high=700,n_low=900,floor=100,ratio=0.2,tau=0.5,scope=head",
    "confkv-l:n_high=1400,n_low=1400,floor=100,ratio=0.2,int8=1,w=32",
    "pyramidkv:600",
    "zigzag:600,floor=0.2,hold=0.8",
]


def _bytes_needed(store: Store) -> dict[str, int]:
    """What the lanes' own lengths take, without a slot to spare."""
    element = torch.tensor([], dtype=store.dtype).element_size()
    each = 2 * store.heads * store.dim
    return {"fp": each * element * sum(store.n_fp), "int8": each * sum(store.n_history)}


@pytest.mark.parametrize("policy", LONG)
def test_memory_follows_each_lane(policy: str, tiny: Any, ids: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _long_decode(tiny, ids, policy)
    store = session.cache.store
    assert isinstance(store, RaggedStore) and max(store.lengths) > 1.5 * min(store.lengths)
    needed, kinds = _bytes_needed(store), session.stats.bytes_by_kind
    coded = bool(needed["int8"])
    # With INT8 the full-precision part is about as long as what is spared for growth.
    assert kinds["int8" if coded else "fp"] < 1.25 * needed["int8" if coded else "fp"]
    slot = 2 * store.heads * store.dim * torch.tensor([], dtype=store.dtype).element_size()
    spare = sum(max(64, (n + 1) // 8) + 32 + 1 for n in store.n_fp)
    assert kinds["fp"] <= needed["fp"] + spare * slot
    # What is allocated for the longest lane alone would not do.
    monkeypatch.setattr("confkv.engine.RaggedStore", Store)
    stacked = _long_decode(tiny, ids, policy)
    assert stacked.cache.store is not None and stacked.cache.store.lengths == store.lengths
    held = stacked.stats.bytes_by_kind
    assert held["int8" if coded else "fp"] > 1.25 * needed["int8" if coded else "fp"]
    assert stacked.stats.bytes > 1.2 * session.stats.bytes


def test_even_budgets_stay_stacked(tiny: Any, ids: Any) -> None:
    for policy in ("confkv", "snapkv:40,w=8", "confkv-l:ratio=1"):
        session = Engine(tiny("llama"), None, policy).session()
        session.extend(ids(5))
        assert type(session.cache.store) is Store
