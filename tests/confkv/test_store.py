"""Properties of the mixed store under any sequence of turns: what stays, in which order, how exactly, in what bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from confkv.manager import Manager
from confkv.policies import parse_policy
from confkv.ragged import RaggedStore
from confkv.rarity import Lexicon
from confkv.store import FRESH, PINNED, PROTECTED, SINK, Store

LANES, HEADS, DIM, GROUPS = 2, 2, 16, 2
SMALL = "n_high=12,n_low=20,protect=4,sinks=2,tau=0.5"


class Driver:
    """Feeds random keys and values to a store as a session does, and remembers every one of them."""

    def __init__(self, policy: str, seed: int = 0, sinks: int | None = None, layout: type[Store] | None = None) -> None:
        self.policy = parse_policy(policy)
        storage = self.policy.storage
        if layout is None:
            layout = RaggedStore if self.policy.uneven else Store
        #: where heads have budgets of their own, each is a lane
        self.lanes, self.heads = (LANES * HEADS, 1) if self.policy.shares is not None else (LANES, HEADS)
        self.store = layout(
            self.lanes,
            self.heads,
            DIM,
            torch.float32,
            "cpu",
            int8=storage.int8,
            window=storage.window,
            sinks=self.policy.sinks if sinks is None else sinks,
            evicts=self.policy.evicts,
            columns=self.policy.ranker.columns,
            origins=self.policy.guard > 0,
            norms=self.policy.ranker.norms,
            per_layer=self.lanes // LANES,
        )
        self.manager = Manager(self.policy, self.store, Lexicon(None, 100))
        self.tokens: list[int] = []
        self.g = torch.Generator().manual_seed(seed)
        self.scale = torch.rand(self.lanes, self.heads, 1, DIM, generator=self.g) * 5 + 0.1
        self.k = torch.zeros(self.lanes, self.heads, 0, DIM)
        self.v = torch.zeros(self.lanes, self.heads, 0, DIM)
        self.hold: list[int] = []
        self.budget: int | None = None
        #: lanes that never were over their budget
        self.whole = [True] * self.lanes

    @property
    def seen(self) -> int:
        return len(self.hold)

    def feed(self, steps: int, hold: int = 0, confidence: float | None = None, grow: float = 1.0) -> None:
        new = [torch.randn(self.lanes, self.heads, steps, DIM, generator=self.g) * self.scale * grow for _ in range(2)]
        self.k, self.v = torch.cat([self.k, new[0]], 2), torch.cat([self.v, new[1]], 2)
        first, sinks = self.seen, self.policy.sinks
        flags = [hold + (SINK if first + i < sinks else 0) for i in range(steps)]
        self.hold += flags
        self.store.reserve(steps)
        for lane in range(self.lanes):
            self.store.append(lane, new[0][lane], new[1][lane])
        self.store.commit(first, flags if any(flags) else [], steps)
        self.tokens += [(first + i) ** 2 * 7 % 97 for i in range(steps)]
        self.manager.read(self.tokens, self.seen)
        if self.manager.needs_mass:
            q = torch.randn(
                self.lanes, 1, self.heads * GROUPS, min(steps, self.policy.ranker.rows), DIM, generator=self.g
            )
            self.manager.record(list(q), [0.25] * self.lanes, [None] * self.lanes, [None] * self.lanes)
        self._evict(confidence)

    def _evict(self, confidence: float | None) -> None:
        self.budget, _ = self.manager.evict(confidence, self.seen)
        self.store.age()
        self.whole = [w and self.seen <= x for w, x in zip(self.whole, self.limits(), strict=True)]

    def limits(self) -> list[int]:
        """Positions each lane may hold now."""
        if self.budget is None:
            return [self.seen] * self.lanes
        held = sum(h >= PROTECTED for h in self.hold)
        return [held + n for n in self.manager.layer_budgets(self.budget)]

    def release(self) -> None:
        self.hold = [(h & ~PROTECTED & ~FRESH) | (PROTECTED if h & FRESH else 0) for h in self.hold]
        self.store.release()
        self._evict(None)

    # -- what must hold after every step ----------------------------------------------------------------------

    def check(self, tolerance: float = 0.0) -> None:
        store, policy, limits = self.store, self.policy, self.limits()
        must = {i for i, h in enumerate(self.hold) if h}
        must |= set(range(max(0, self.seen - policy.protect), self.seen))
        for lane in range(self.lanes):
            positions = store.positions(lane)
            assert positions.shape == (self.heads, store.lengths[lane])
            assert store.lengths[lane] <= min(limits[lane], self.seen)
            if self.whole[lane]:
                assert store.lengths[lane] == self.seen, "evicted below the budget"
            k, v, where = store.dequantised(lane)
            assert torch.equal(where, store.slot_positions(lane))
            assert torch.equal(where.sort(-1).values, positions)
            assert bool((positions.diff(dim=-1) > 0).all()), "out of order, or held twice"
            for head in range(self.heads):
                kept = positions[head].tolist()
                assert must <= set(kept), f"lost {sorted(must - set(kept))}"
            if policy.scope == "layer":
                assert torch.equal(where, where[:1].expand_as(where))
            rows = where.unsqueeze(-1).expand(-1, -1, DIM)
            for got, true in ((k, self.k[lane]), (v, self.v[lane])):
                expected = true.gather(1, rows)
                if tolerance == 0.0:
                    assert torch.equal(got, expected)
                elif positions.numel():
                    # Every position is its own nearest: values never change places.
                    error = (got - expected).norm(dim=-1) / expected.norm(dim=-1)
                    assert float(error.max()) < 0.15
                    assert float((got - expected).norm() / expected.norm()) <= tolerance
            self._check_exact_part(lane)
            if store.norms is not None:
                norms = self.v[lane].abs().sum(-1).gather(1, where)
                torch.testing.assert_close(store.meta[lane, :, : where.shape[1], store.norms], norms)
        self._check_bytes()
        self._check_shares()

    def _check_shares(self) -> None:
        """However the heads of a layer share its budget, together they have it."""
        if self.policy.shares is None or self.budget is None:
            return
        budgets = torch.tensor(self.manager.layer_budgets(self.budget)).view(LANES, HEADS)
        assert budgets.sum(1).tolist() == [HEADS * n for n in self.policy.budget.per_layer(self.budget, LANES)]
        assert int(budgets.min()) >= self.policy.reserve

    def _check_exact_part(self, lane: int) -> None:
        """The window and the sinks are held exactly."""
        store = self.store
        k, _, where = store.dequantised(lane)
        exact = (where >= self.seen - store.window) | (where < self.policy.sinks)
        true = self.k[lane].gather(1, where.unsqueeze(-1).expand(-1, -1, DIM))
        assert torch.equal(k[exact], true[exact])

    def _check_bytes(self) -> None:
        tensors = _tensors(self.store)
        assert sum(self.store.bytes_by_kind().values()) == sum(t.nbytes for t in tensors)


def _tensors(store: Store) -> list[Tensor]:
    """Every tensor the store owns."""
    found: list[Tensor] = []
    for part in {id(x): x for x in (store, *store.parts)}.values():
        for value in vars(part).values():
            if isinstance(value, Tensor):
                found.append(value)
            elif value is not None and hasattr(value, "__dataclass_fields__"):
                found += [x for x in vars(value).values() if isinstance(x, Tensor)]
    # A lane's metadata may be a view of all lanes'.
    found = [t for t in found if t._base is None or t._base is not store.meta]
    storages = {t.untyped_storage().data_ptr() for t in found if t.nbytes}
    assert len(storages) == len([t for t in found if t.nbytes]), "two tensors share memory"
    return found


POLICIES = [
    f"confkv:{SMALL}",
    f"confkv:{SMALL},scope=head",
    f"confkv-l:{SMALL},floor=8,scope=head",
    f"confkv:{SMALL},alpha=0",
    "window:9",
    "window:16,sinks=3",
]
STEP = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 30), st.sampled_from([0, 0, FRESH, PINNED])),
    st.tuples(st.just("observation"), st.integers(1, 30), st.just(PROTECTED)),
    st.tuples(st.just("decode"), st.integers(1, 12), st.sampled_from([0, 1, FRESH])),
)


def _run(driver: Driver, steps: list[tuple[str, int, int]], tolerance: float) -> None:
    for kind, count, flag in steps:
        if kind == "decode":
            for i in range(count):
                driver.feed(1, flag & FRESH, confidence=0.9 if (i + flag) % 2 else 0.1)
                if i % 4 == 0 or i == count - 1:
                    driver.check(tolerance)
            continue
        if kind == "observation":
            driver.release()
            driver.check(tolerance)
        driver.feed(count, flag)
        driver.check(tolerance)


@pytest.mark.parametrize("policy", POLICIES)
@given(steps=st.lists(STEP, min_size=1, max_size=8), seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_what_must_stay_stays_and_the_budget_holds(policy: str, steps: list[tuple[str, int, int]], seed: int) -> None:
    _run(Driver(policy, seed), steps, 0.0)


INT8 = [
    "confkv:n_high=60,n_low=90,protect=8,sinks=2,tau=0.5,int8=1,w=12",
    "confkv:n_high=60,n_low=90,protect=8,sinks=2,tau=0.5,int8=1,w=12,scope=head",
    "confkv-l:n_high=60,n_low=90,protect=8,sinks=4,tau=0.5,int8=1,w=12,scope=head,floor=40",
    "window:80,int8=1,w=12,sinks=2",
    "full:int8=1,w=12",
]


@pytest.mark.parametrize("policy", INT8)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("feed"), st.integers(20, 70), st.sampled_from([0, 0, FRESH, PINNED])),
            st.tuples(st.just("observation"), st.integers(20, 70), st.just(PROTECTED)),
            st.tuples(st.just("decode"), st.integers(1, 40), st.sampled_from([0, 1, FRESH])),
        ),
        min_size=3,
        max_size=7,
    ),
    seed=st.integers(0, 1000),
)
@settings(max_examples=5, deadline=None)
def test_int8_keeps_every_position_with_its_own_values(
    policy: str, steps: list[tuple[str, int, int]], seed: int
) -> None:
    driver = Driver(policy, seed)
    _run(driver, [("feed", 60, 0), ("feed", 40, 0), *steps], 0.015)
    assert max(driver.store.n_history) > 0


@pytest.mark.parametrize("policy", INT8)
def test_int8_over_a_long_run(policy: str) -> None:
    driver = Driver(policy, 3)
    driver.feed(30, PINNED)
    for turn in range(4):
        driver.release()
        driver.feed(70, PROTECTED)
        for step in range(45):
            driver.feed(1, confidence=0.9 if (step // 5 + turn) % 2 else 0.1, grow=1.0 + step / 10)
            if step % 9 == 0:
                driver.check(0.015)
    driver.check(0.015)
    assert max(driver.store.n_history) > 30


def test_int8_halves_the_bytes_of_old_positions() -> None:
    exact, coded = Driver("full"), Driver("full:int8=1,w=12")
    for driver in (exact, coded):
        for _ in range(8):
            driver.feed(100)
    assert coded.store.bytes_by_kind()["int8"] >= 2 * LANES * HEADS * DIM * max(coded.store.n_history)
    assert sum(coded.store.bytes_by_kind().values()) < 0.55 * sum(exact.store.bytes_by_kind().values())


def test_growing_gains_never_change_stored_codes() -> None:
    driver = Driver("full:int8=1,w=8")
    driver.feed(80)
    before = {name: t.clone() for name, t in driver.store.state().items() if name.startswith("h_")}
    n = driver.store.n_history[0]
    assert n > 0
    for power in range(1, 6):
        driver.feed(40, grow=10.0**power)
        after = driver.store.state()
        for name in ("h_k", "h_v", "h_k_gain", "h_v_gain"):
            assert torch.equal(after[name][:, :, :n], before[name])
        for name in ("h_k_scale", "h_v_scale"):
            assert torch.equal(after[name], before[name])


@pytest.mark.parametrize("offset", ["1", "3", "cap-1", "cap", "cap+1"])
@pytest.mark.parametrize("int8", [0, 1])
def test_chunks_around_the_capacity(offset: str, int8: int) -> None:
    driver = Driver(f"confkv:n_high=40,n_low=50,protect=8,sinks=2,tau=0.5,w=8,int8={int8}")
    driver.feed(37)
    for _ in range(6):
        free = max(1, driver.store.capacity - max(driver.store.n_fp))
        steps = {"cap-1": max(1, free - 1), "cap": free, "cap+1": free + 1}.get(offset) or int(offset)
        driver.feed(steps)
        driver.check(0.015 if int8 else 0.0)
        driver.feed(1, confidence=0.9)
        driver.check(0.015 if int8 else 0.0)


@pytest.mark.parametrize("policy", ["window:1", "window:2", "confkv:n_high=3,n_low=3,protect=1,sinks=2"])
def test_smallest_budgets_from_one_token_on(policy: str) -> None:
    driver = Driver(policy)
    for _ in range(12):
        driver.feed(1, confidence=0.9)
        driver.check()
    assert driver.store.lengths == [driver.policy.budget.smallest] * LANES


def test_equal_scores_keep_the_newest() -> None:
    driver = Driver("confkv:n_high=8,n_low=8,protect=2,sinks=2,alpha=1")
    driver.manager.record = lambda *_: None  # type: ignore[method-assign]  # no mass at all: every score is 0
    driver.feed(30)
    assert driver.store.positions(0)[0].tolist() == [0, 1, 24, 25, 26, 27, 28, 29]


def test_heads_keep_what_each_attends_to() -> None:
    driver = Driver("confkv:n_high=8,n_low=8,protect=2,sinks=0,alpha=1,scope=head")
    store = driver.store
    k = torch.zeros(LANES, HEADS, 20, DIM)
    k[:, 0, 5, 0] = k[:, 1, 9, 0] = 50.0
    store.reserve(20)
    for lane in range(LANES):
        store.append(lane, k[lane], k[lane])
    store.commit(0, [], 20)
    q = torch.zeros(1, HEADS * GROUPS, 1, DIM)
    q[..., 0] = 1.0
    driver.manager.record([q] * LANES, [1.0] * LANES, [None] * LANES, [None] * LANES)
    driver.manager.evict(0.9, 20)
    for lane in range(LANES):
        first, second = store.positions(lane).tolist()
        assert 5 in first and 9 in second
        assert first != second
        assert {18, 19} <= set(first) & set(second)


def _uneven(policy: str) -> Driver:
    """A store whose lanes have histories and windows of different lengths."""
    driver = Driver(policy, 4)
    driver.feed(100)
    for _ in range(60):
        driver.feed(1, confidence=0.9)
        if len(set(driver.store.n_history)) == len(set(driver.store.n_fp)) == LANES and min(driver.store.n_history):
            return driver
    raise AssertionError("the lanes stayed even")


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("policy", [INT8[0], INT8[2]])
def test_mass_of_all_lanes_at_once_equals_lane_by_lane(policy: str, rows: int) -> None:
    driver = _uneven(policy)
    store = driver.store
    q = list(torch.randn(LANES, 1, HEADS * GROUPS, rows, DIM, generator=driver.g) * 3)
    before = store.meta.clone()
    driver.manager.record(q, [0.25] * LANES, [None] * LANES, [None] * LANES)
    at_once = store.meta.clone()
    store.meta.copy_(before)
    # Scales that differ, by nothing that matters, make it go lane by lane.
    driver.manager.record(q, [0.25, 0.25 + 1e-12], [None] * LANES, [None] * LANES)
    for lane, n in enumerate(store.lengths):
        torch.testing.assert_close(at_once[lane, :, :n], store.meta[lane, :, :n], atol=1e-6, rtol=1e-5)
        change = (store.meta - before)[lane, :, :n, 0]
        assert float(change.abs().max()) > 1e-3 and not bool((store.meta - before)[..., 1:].any())


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("policy", [INT8[0], INT8[2]])
def test_one_drop_equals_a_compaction(policy: str, per_head: bool, seed: int) -> None:
    driver, other = _uneven(policy), _uneven(policy)
    g = torch.Generator().manual_seed(seed)
    for _ in range(6):
        lengths = driver.store.lengths
        score = torch.rand(LANES, HEADS if per_head else 1, max(lengths), generator=g)
        drops = torch.randint(0, 2, (LANES,), generator=g).tolist()
        if not any(drops):
            continue
        targets = [n - d for n, d in zip(lengths, drops, strict=True)]
        # Anew each time: the two leave survivors in different slots, so that a later drop can find one in the history
        # of one store and in the window of the other.
        other.store.load_state(driver.store.state())
        assert driver.store.evict(score, targets) == sum(drops)
        other.store._compact(score, lengths, targets, mixed=True)
        assert driver.store.n_history == other.store.n_history and driver.store.n_fp == other.store.n_fp
        for lane in range(LANES):
            (k, v, where), (k2, v2, where2) = driver.store.dequantised(lane), other.store.dequantised(lane)
            order, order2 = where.argsort(-1), where2.argsort(-1)
            assert torch.equal(where.gather(1, order), where2.gather(1, order2))
            rows, rows2 = (x.unsqueeze(-1).expand(-1, -1, DIM) for x in (order, order2))
            assert torch.equal(k.gather(1, rows), k2.gather(1, rows2))
            assert torch.equal(v.gather(1, rows), v2.gather(1, rows2))
            marks = driver.store.meta[lane].gather(1, order.unsqueeze(-1).expand(-1, -1, 3))
            assert torch.equal(marks, other.store.meta[lane].gather(1, order2.unsqueeze(-1).expand(-1, -1, 3)))


@pytest.mark.parametrize("policy", ["full:int8=1,w=8", INT8[1], POLICIES[2]])
def test_state_round_trip_is_exact(policy: str) -> None:
    driver = Driver(policy, 5)
    driver.feed(20, PINNED)
    driver.feed(90)
    for _ in range(20):
        driver.feed(1, confidence=0.9)
    state = driver.store.state()
    twin = Driver(policy, 5)
    twin.store.load_state(state)
    driver.feed(3)  # later changes must not reach the copy
    assert twin.store.lengths != driver.store.lengths or driver.policy.evicts
    for name, tensor in twin.store.state().items():
        assert torch.equal(tensor, state[name]), name


def test_rebase_turns_int8_keys_within_their_error() -> None:
    driver = Driver(INT8[1], 6)
    driver.feed(60)
    driver.feed(60)
    for _ in range(40):
        driver.feed(1, confidence=0.9)
    store = driver.store
    freq = 1.0 / 100.0 ** (torch.arange(0, DIM, 2) / DIM)
    before = [store.dequantised(lane) for lane in range(LANES)]
    end = max(store.lengths)
    store.rebase(end, [freq] * LANES)
    for lane, (k, v, old) in enumerate(before):
        k2, v2, new = store.dequantised(lane)
        assert torch.equal(v, v2)
        assert [sorted(row) for row in new.tolist()] == [list(range(end - old.shape[1], end))] * HEADS
        assert torch.equal(new.argsort(-1), old.argsort(-1))
        angle = (new - old).double().unsqueeze(-1) * freq.double()
        a, b = k[..., : DIM // 2].double(), k[..., DIM // 2 :].double()
        true = torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
        assert float((k2.double() - true).norm() / true.norm()) < 0.015


def test_metadata_is_not_allocated_for_full() -> None:
    driver: Any = Driver("full")
    driver.feed(50)
    assert driver.store.bytes_by_kind()["meta"] == 0
    assert driver.store.positions(1).tolist() == [list(range(50))] * HEADS


def test_a_compaction_restores_position_order() -> None:
    """Single drops fill the hole with the newest slot; dropping several at once puts the survivors in order again."""
    store = Store(2, HEADS, DIM, torch.float32, "cpu", sinks=0)
    keys = torch.randn(2, HEADS, 12, DIM)
    store.reserve(12)
    for lane in range(2):
        store.append(lane, keys[lane], keys[lane])
    store.commit(0, [], 12)
    score = torch.arange(12.0).expand(2, 1, 12).clone()
    score[:, :, 0] = 100.0
    assert store.evict(score, [11, 11]) == 2
    assert store.slot_positions(0)[0].tolist() == [0, 11, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert store.positions(0)[0].tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    score = store.slot_positions(0)[:1].float().expand(2, 1, 11)
    assert store.evict(score, [6, 6]) == 10
    for lane in range(2):
        k, _, positions = store.dequantised(lane)
        assert positions.tolist() == [[6, 7, 8, 9, 10, 11]] * HEADS
        assert torch.equal(k, keys[lane, :, 6:])
