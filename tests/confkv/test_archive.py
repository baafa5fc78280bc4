"""The archive: what goes in stays itself, what comes back is what was asked for, and bytes keep to their limit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from confkv.archive import Archive
from confkv.manager import Manager
from confkv.policies import parse_policy
from confkv.recall import carry_out, choose
from confkv.store import HOLD, MASS, ORIGIN, PINNED, POS, PROTECTED, SINK, Store
from confkv_kernels import page_scores
from confkv_kernels.reference import pages

LANES, HEADS, DIM = 2, 2, 8
PAGE = 4
FREQ = 1.0 / 50.0 ** (torch.arange(0, DIM, 2) / DIM)
SMALL = f"n_high=12,n_low=20,protect=6,sinks=2,tau=0.5,page={PAGE}"


class Driver:
    """Feeds random rows to a store with an archive, recalls by random scores, and remembers every row."""

    def __init__(self, policy: str, seed: int = 0) -> None:
        self.policy = parse_policy(policy)
        assert self.policy.recall is not None
        storage = self.policy.storage
        self.store = Store(
            LANES,
            HEADS,
            DIM,
            torch.float32,
            "cpu",
            int8=storage.int8,
            window=storage.window,
            sinks=self.policy.sinks,
            origins=True,
        )
        self.manager = Manager(self.policy, self.store)
        assert self.manager.archive is not None
        self.archive: Archive = self.manager.archive
        self.g = torch.Generator().manual_seed(seed)
        self.k = torch.zeros(LANES, HEADS, 0, DIM)
        self.v = torch.zeros(LANES, HEADS, 0, DIM)
        self.hold: list[int] = []
        self.position = 0
        #: position each row was fed at
        self.fed = torch.zeros(0, dtype=torch.int64)
        self.evicted: list[list[set[int]]] = [[set() for _ in range(HEADS)] for _ in range(LANES)]

    @property
    def seen(self) -> int:
        return len(self.hold)

    @property
    def shared(self) -> bool:
        return self.policy.scope == "layer"

    def feed(self, steps: int, hold: int = 0, confidence: float | None = None) -> None:
        new = [torch.randn(LANES, HEADS, steps, DIM, generator=self.g) for _ in range(2)]
        self.k, self.v = torch.cat([self.k, new[0]], 2), torch.cat([self.v, new[1]], 2)
        flags = [hold + (SINK if self.seen + i < self.policy.sinks else 0) for i in range(steps)]
        self.hold += flags
        self.store.reserve(steps)
        for lane in range(LANES):
            self.store.append(lane, new[0][lane], new[1][lane])
        self.store.commit(self.position, flags if any(flags) else [], steps)
        self.fed = torch.cat([self.fed, torch.arange(self.position, self.position + steps)])
        self.position += steps
        n = max(self.store.lengths)
        self.store.meta[:, :, :n, MASS] = torch.rand(LANES, HEADS, n, generator=self.g)
        self.manager.evict(confidence, self.position)
        self.store.age()
        for lane in range(LANES):
            for head in range(HEADS):
                self.evicted[lane][head] |= set(range(self.seen)) - self.kept(lane, head)

    def kept(self, lane: int, head: int) -> set[int]:
        found = self.store.meta[lane, head, : self.store.lengths[lane], ORIGIN].long().tolist()
        assert len(found) == len(set(found)), "held twice"
        return set(found)

    def targets(self) -> list[int]:
        budget = self.policy.budget.at(None)
        assert budget is not None
        return [held + budget for held in self.store.held]

    def recall(self) -> None:
        """Random pages come back; compared with the same choice made with sets and loops."""
        if not self.archive.end:
            return
        self.manager.archive_before(self.position)
        score = torch.rand(LANES, 1 if self.shared else HEADS, self.archive.pages, generator=self.g)
        free = self.manager.competes(self.position)
        before = [[self.kept(lane, head) for head in range(HEADS)] for lane in range(LANES)]
        fixed = {i for i, h in enumerate(self.hold) if h} | set(range(self.seen - self.policy.protect, self.seen))
        plan = choose(self.store, self.archive, score, free, self.targets())
        carry_out(self.store, self.archive, plan)
        starts = self.archive.page_starts().tolist()
        assert sorted(starts) == list(range(self.archive.first, self.archive.end, PAGE))
        for lane in range(LANES):
            for head in range(HEADS):
                row = score[lane, 0 if self.shared else head].tolist()
                expected = {o for o in before[lane][head] if o in fixed}
                for page in sorted(range(len(starts)), key=lambda i: -row[i]):
                    for origin in range(starts[page], starts[page] + PAGE):
                        if origin not in fixed and len(expected) < self.targets()[lane]:
                            expected.add(origin)
                assert self.kept(lane, head) == expected

    def rebase(self) -> None:
        """As a session does: survivors get compact positions, and the archive follows."""
        end = max(self.store.lengths)
        survivors = [self.store.meta[g, :, :n, ORIGIN].long().sort(-1).values for g, n in enumerate(self.store.lengths)]
        self.store.rebase(end, [FREQ] * LANES)
        self.archive.rebase(survivors, end, [FREQ] * LANES)
        self.position, self.store.shift = end, self.seen - end

    def check(self, tolerance: float) -> None:
        """Every row, in the store and in the archive, is the one that was fed, turned to the position it has now."""
        for lane in range(LANES):
            k, v, _ = self.store.dequantised(lane)
            meta = self.store.meta[lane, :, : self.store.lengths[lane]]
            origin = meta[..., ORIGIN].long()
            assert bool((meta[..., MASS] >= 0).all())
            self._compare(k, v, origin, meta[..., POS], lane, tolerance)
            order = meta[..., ORIGIN].argsort(-1)
            assert bool((meta[..., POS].gather(1, order).diff(dim=-1) >= 0).all()), "a recall changes the order"
            assert self.store.lengths[lane] <= self.targets()[lane]
            for head in range(HEADS):
                assert {i for i, h in enumerate(self.hold) if h} <= self.kept(lane, head)
                assert set(range(self.seen - self.policy.protect, self.seen)) & set(range(self.seen)) <= self.kept(
                    lane, head
                )
                lost = self.evicted[lane][head] - self.kept(lane, head)
                assert all(o < self.archive.end for o in lost), "evicted before it was archived"
            held = torch.arange(self.archive.first, self.archive.end)
            if held.shape[0]:
                lanes, heads = torch.full_like(held, lane), torch.zeros_like(held)
                rows = self.archive.rows_of(held)
                k, v = self.archive.read(lanes, heads, rows)
                at = self.archive.positions(lanes, heads, rows, held)
                self._compare(k[None], v[None], held[None], at[None].float(), lane, tolerance)
        if self.archive.pages:
            rows = self.archive.pages * PAGE
            origin = (self.archive.page_starts().unsqueeze(-1) + torch.arange(PAGE)).flatten().expand(HEADS, -1)
            at = self.fed[origin] if self.archive.now is None else self.archive.now[0, :, :rows]
            centre = self._turned(0, origin, at.float()).unflatten(1, (-1, PAGE)).mean(2)
            error = (self.archive.centre[0, :, : self.archive.pages].float() - centre).abs().max()
            assert float(error) < 0.01 + tolerance
        self._check_bytes()

    def _turned(self, lane: int, origin: Tensor, at: Tensor) -> Tensor:
        heads = torch.arange(origin.shape[0]).unsqueeze(-1)
        k = self.k[lane][heads, origin].double()
        angle = (at - self.fed[origin]).double().unsqueeze(-1) * FREQ.double()
        a, b = k[..., : DIM // 2], k[..., DIM // 2 :]
        out = torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
        return out.float()

    def _compare(self, k: Tensor, v: Tensor, origin: Tensor, at: Tensor, lane: int, tolerance: float) -> None:
        heads = torch.arange(origin.shape[0]).unsqueeze(-1)
        torch.testing.assert_close(k, self._turned(lane, origin, at), atol=tolerance, rtol=0)
        torch.testing.assert_close(v, self.v[lane][heads, origin], atol=tolerance, rtol=0)

    def _check_bytes(self) -> None:
        archive = self.archive
        tensors = {name: x for name, x in vars(archive).items() if isinstance(x, Tensor)}
        total = sum(x.nbytes for x in tensors.values())
        assert archive.host_bytes + archive.device_bytes == total
        assert archive.device_bytes == (archive.centre.nbytes if archive.on_device else 0)
        recall = self.policy.recall
        assert recall is not None
        fixed = archive.k_scale.nbytes + archive.v_scale.nbytes
        assert archive.host_bytes <= max(recall.megabytes * 1e6, fixed)


POLICIES = [
    (f"confkv-recall:{SMALL},archive=fp", 1e-5),
    (f"confkv-look:{SMALL},archive=fp,scope=head,index=device", 1e-5),
    (f"confkv-recall:{SMALL},archive=fp,archive_mb=0.018", 1e-5),
    (f"confkv-look:{SMALL},scope=head,archive_mb=0.008", 0.05),
    (f"confkv-look:{SMALL.replace('12', '50').replace('20', '60')},int8=1,w=8", 0.1),
    (f"confkv-recall:{SMALL.replace('12', '50').replace('20', '60')},int8=1,w=8,scope=head", 0.1),
    (f"confkv-recall:{SMALL},archive_mb=0", 1e-5),
]
STEP = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 40), st.sampled_from([0, 0, PINNED, PROTECTED])),
    st.tuples(st.just("decode"), st.integers(1, 12), st.just(0)),
    st.tuples(st.sampled_from(["recall", "recall", "rebase", "copy", "release"]), st.just(0), st.just(0)),
)


@pytest.mark.parametrize(("policy", "tolerance"), POLICIES)
@given(steps=st.lists(STEP, min_size=4, max_size=12), seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_rows_stay_themselves(policy: str, tolerance: float, steps: list[tuple[str, int, int]], seed: int) -> None:
    driver = Driver(policy, seed)
    driver.feed(30)
    for kind, count, flag in [*steps, ("recall", 0, 0), ("decode", 3, 0)]:
        if kind == "feed":
            driver.feed(count, flag)
        elif kind == "decode":
            for i in range(count):
                driver.feed(1, confidence=0.9 if i % 3 else 0.1)
                if i % 4 == 1:
                    driver.recall()
        elif kind == "recall":
            driver.recall()
        elif kind == "rebase":
            driver.rebase()
        elif kind == "release":
            driver.hold = [h & ~PROTECTED for h in driver.hold]
            driver.store.release()
            driver.manager.evict(None, driver.position)
        else:
            twin = Archive(driver.store, driver.policy.recall)
            twin.load_state(driver.archive.state(), driver.archive.inv_freq)
            assert all(torch.equal(x, driver.archive.state()[name]) for name, x in twin.state().items())
            driver.manager.archive = driver.archive = twin
        driver.check(tolerance)


def test_a_position_is_archived_once() -> None:
    driver = Driver(f"confkv-recall:{SMALL},archive=fp")
    driver.feed(30)
    for _ in range(30):
        driver.feed(1, confidence=0.9)
        driver.recall()
    archive = driver.archive
    # Everything but the newest, once: evicted, recalled and evicted again.
    assert (archive.first, archive.end) == (0, 56)
    assert driver.seen - driver.policy.protect <= archive.end < driver.seen
    rows = archive.pages * PAGE
    assert torch.equal(archive.k[:, :, :rows], driver.k[:, :, :rows])


def test_nothing_is_archived_before_something_is_due() -> None:
    driver = Driver(f"confkv-recall:{SMALL}")
    driver.feed(20)
    assert driver.archive.end == 0
    assert driver.archive.host_bytes == driver.archive.k_scale.nbytes * 2
    driver.feed(1)
    assert driver.archive.end == 16


def test_past_the_limit_the_oldest_pages_go() -> None:
    limit = 6_000
    driver = Driver(f"confkv-recall:{SMALL},archive_mb={limit / 1e6}")
    for _ in range(12):
        driver.feed(17)
        driver.check(0.05)
    archive = driver.archive
    assert 0.5 * limit < archive.host_bytes <= limit
    assert archive.pages == archive.max_pages == (archive.end - archive.first) // PAGE
    assert archive.end == 200 and archive.first > 100
    driver.rebase()
    assert archive.now is not None and archive.host_bytes <= limit, "also with the positions that a re-basing adds"


def test_a_limit_below_a_page_holds_nothing() -> None:
    driver = Driver(f"confkv-recall:{SMALL},archive_mb=0")
    driver.feed(50)
    assert driver.archive.pages == 0 and driver.archive.first == driver.archive.end
    assert max(driver.store.lengths) == 20


def test_int8_archive_holds_half_of_bf16() -> None:
    coded, plain = (Driver(f"confkv-recall:{SMALL},archive={kind}").archive for kind in ("int8", "fp"))
    bytes_of = [x.k.element_size() * DIM * 2 for x in (coded, plain)]
    assert bytes_of == [2 * DIM, 8 * DIM]


def test_pinned_protected_sinks_and_newest_keep_their_slots() -> None:
    driver = Driver(f"confkv-look:{SMALL},archive=fp,scope=head")
    driver.feed(9, PINNED)
    driver.feed(30)
    driver.feed(13, PROTECTED)
    driver.feed(30)
    store = driver.store
    n = max(store.lengths)
    before = store.meta[:, :, :n].clone()
    fixed = (before[..., HOLD] > 0) | (before[..., POS] >= driver.position - driver.policy.protect)
    driver.recall()
    assert torch.equal(store.meta[:, :, :n][fixed], before[fixed])
    assert not torch.equal(store.meta[:, :, :n], before)


@pytest.mark.parametrize("block", [1, 1 << 18])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_page_scores_against_float64(softcap: float | None, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_BLOCK", block)
    g = torch.Generator().manual_seed(3)
    q = torch.randn(2, 6, 3, 8, generator=g) * 3
    k = torch.randn(2, 2, 20, 8, generator=g)
    centre = k.unflatten(2, (5, 4)).mean(3)
    scale = torch.tensor([0.3, 0.7])
    got = page_scores(q, centre, scale=scale, softcap=softcap)
    for b in range(2):
        for head in range(2):
            total = torch.zeros(5, dtype=torch.float64)
            for group in range(3):
                for row in range(3):
                    s = centre[b, head].double() @ q[b, head * 3 + group, row].double() * float(scale[b].double())
                    s = s if softcap is None else softcap * torch.tanh(s / softcap)
                    total += torch.softmax(s, 0)
            torch.testing.assert_close(got[b, head].double(), total / 9, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(got.sum(-1), torch.ones(2, 2))


def test_the_page_attended_to_comes_back() -> None:
    driver = Driver(f"confkv-look:{SMALL},archive=fp,scope=head")
    driver.feed(100)
    archive: Any = driver.archive
    archive._index(driver.k[:, :, : archive.end] * 0, torch.arange(archive.end))
    archive.centre[:, 0, 5, 0], archive.centre[:, 1, 9, 0] = 50.0, 50.0
    q = torch.zeros(LANES, HEADS, 1, DIM)
    q[..., 0] = 1.0
    score = page_scores(q, archive.centre[:, :, : archive.pages], scale=torch.ones(LANES))
    plan = choose(driver.store, archive, score, driver.manager.competes(driver.position), driver.targets())
    carry_out(driver.store, archive, plan)
    for lane in range(LANES):
        assert {20, 21, 22, 23} <= driver.kept(lane, 0) and {36, 37, 38, 39} <= driver.kept(lane, 1)
