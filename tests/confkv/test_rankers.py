"""Every baseline's kept set against its formula, written out in float64, through the real store and manager.

The reference keeps every key and query ever fed, attends with plain softmax over what is kept, and chooses by the
formula of the paper; slots, registers, rings and blocks of rows do not occur in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from confkv.manager import Manager
from confkv.observe import View
from confkv.policies import parse_policy
from confkv.policies.ranker import by_rank
from confkv.policies.scissorhands import _count, _shift_in
from confkv.ragged import RaggedStore
from confkv.rarity import Lexicon
from confkv.store import MASS, PINNED, PROTECTED, SINK, Store

LANES, HEADS, GROUPS, DIM = 3, 2, 2, 8
SCALE = 0.6
VOCABULARY = 300


class Pair:
    """A store under a policy, and beside it the kept sets that a formula chooses."""

    def __init__(self, policy: str, formula: Callable[[Pair, int, int], dict[int, float]], seed: int = 0) -> None:
        self.policy, self.formula = parse_policy(policy), formula
        ranker, storage = self.policy.ranker, self.policy.storage
        #: lanes of a layer: its heads, where they have budgets of their own
        self.each = HEADS if self.policy.shares is not None else 1
        self.store = (Store if self.each == 1 else RaggedStore)(
            LANES * self.each,
            HEADS // self.each,
            DIM,
            torch.float32,
            "cpu",
            int8=storage.int8,
            window=storage.window,
            sinks=self.policy.sinks,
            columns=ranker.columns,
            origins=self.policy.guard > 0,
            norms=ranker.norms,
            per_layer=self.each,
        )
        self.manager = Manager(self.policy, self.store, Lexicon(None, VOCABULARY))
        self.g = torch.Generator().manual_seed(seed)
        self.k = np.zeros((LANES, HEADS, 0, DIM))
        self.v = np.zeros((LANES, HEADS, 0, DIM))
        self.tokens: list[int] = []
        self.more = torch.Generator().manual_seed(seed + 1)
        self.q = np.zeros((LANES, HEADS * GROUPS, 0, DIM))
        self.hold: list[int] = []
        #: first row and rows of what is recorded together
        self.passes: list[tuple[int, int]] = []
        self.kept: list[list[list[int]]] = [[[] for _ in range(HEADS)] for _ in range(LANES)]
        #: attention of each row when it was fed: [lane][query head][row] -> {position: probability}
        self.a: list[list[list[dict[int, float]]]] = [[[] for _ in range(HEADS * GROUPS)] for _ in range(LANES)]
        self.budgets: list[int] = []
        self.compared = self.dropped = 0

    def attention(self, lane: int, head: int, t: int) -> dict[int, float]:
        """Row t of a query head over what its KV head keeps now."""
        seen = [j for j in self.kept[lane][head // GROUPS] if j <= t]
        s = self.k[lane, head // GROUPS, seen] @ self.q[lane, head, t] * SCALE
        p = np.exp(s - s.max())
        return dict(zip(seen, p / p.sum(), strict=True))

    def feed(self, steps: int, hold: int = 0, decode: bool = False) -> None:
        first = len(self.hold)
        self.passes += [(first + i, min(64, steps - i)) for i in range(0, steps, 64)]
        k = torch.randn(LANES, HEADS, steps, DIM, generator=self.g) * 1.5
        q = torch.randn(LANES, HEADS * GROUPS, steps, DIM, generator=self.g) * 1.5
        self.k = np.concatenate([self.k, k.double().numpy()], 2)
        self.q = np.concatenate([self.q, q.double().numpy()], 2)
        # Norms of values differ as they do in models, by more than those of one normal distribution.
        v = torch.randn(LANES, HEADS, steps, DIM, generator=self.more)
        v *= 4.0 * torch.rand(LANES, HEADS, steps, 1, generator=self.more) ** 2
        self.v = np.concatenate([self.v, v.double().numpy()], 2)
        # Few tokens, so that they differ in how often they occurred.
        self.tokens += (VOCABULARY * torch.rand(steps, generator=self.more) ** 3).long().tolist()
        flags = [hold + (SINK if first + i < self.policy.sinks else 0) for i in range(steps)]
        self.hold += flags
        self.store.reserve(steps)
        lanes = LANES * self.each
        values = v.view(lanes, -1, steps, DIM)
        for lane, rows in enumerate(k.view(lanes, -1, steps, DIM)):
            self.store.append(lane, rows, values[lane])
        self.store.commit(first, flags, steps)
        self.manager.read(self.tokens, len(self.tokens))
        rows = min(self.policy.ranker.rows, steps)
        if rows:
            queries = list(q.view(lanes, 1, -1, steps, DIM)[..., steps - rows :, :])
            self.manager.record(queries, [SCALE] * lanes, [None] * lanes, [None] * lanes)
        for lane in range(LANES):
            for head in range(HEADS):
                self.kept[lane][head] += range(first, first + steps)
            for head in range(HEADS * GROUPS if self.formula in BY_ROWS else 0):
                self.a[lane][head] += [self.attention(lane, head, t) for t in range(first, first + steps)]
        self.evict(decode)

    def evict(self, decode: bool) -> None:
        end, held = len(self.hold), sum(h >= PROTECTED for h in self.hold)
        nominal, dropped = self.manager.evict(0.5 if decode else None, end)
        self.dropped += dropped
        self.store.age()
        assert nominal is not None
        self.budgets = self.manager.layer_budgets(nominal)
        for lane, budget in enumerate(self.budgets):
            scores = [self.formula(self, lane, head) for head in range(HEADS)]
            if self.policy.scope == "layer":
                scores = [{j: sum(s.get(j, 0.0) for s in scores) / HEADS for j in self.kept[lane][0]}] * HEADS
            for head in range(HEADS):
                free = [j for j in self.kept[lane][head] if not self.hold[j] and j < end - self.policy.protect]
                free = sorted(free, key=lambda j: (self.rarity(j), j))
                free = free[: max(0, len(free) - self.policy.guarded(budget))]
                must = [j for j in self.kept[lane][head] if j not in set(free)]
                room = held + budget - len(must)
                best = sorted(free, key=lambda j: (scores[head].get(j, 0.0), j), reverse=True)[:room]
                self.kept[lane][head] = sorted(must + best)
            if self.policy.storage.int8:
                # Coded keys decide close calls otherwise: go on with what the store kept.
                self.kept[lane] = self.store.positions(lane).tolist()
                continue
            self.compared += 1
            assert self.store.positions(lane).tolist() == self.kept[lane], f"lane {lane} after {end}"

    def rarity(self, j: int) -> float:
        """Information of a token, shared among its occurrences; all zero without a guard."""
        if not self.policy.guard:
            return 0.0
        norm = sum(1 / (i + 2.7) for i in range(VOCABULARY))
        return -math.log(1 / ((self.tokens[j] + 2.7) * norm)) / self.tokens.count(self.tokens[j])

    def play(self) -> None:
        """Two turns of prefill in uneven chunks, with decoding after each."""
        self.feed(5, PINNED)
        for steps in (40, 9, 70, 1):
            self.feed(steps)
        for _ in range(16):
            self.feed(1, decode=True)
        self.feed(12, PROTECTED)
        self.feed(33)
        for _ in range(8):
            self.feed(1, decode=True)
        self.hold = [h & ~PROTECTED for h in self.hold]
        self.store.release()
        self.evict(False)
        self.feed(3)
        assert self.dropped > 400


def h2o(pair: Pair, lane: int, head: int) -> dict[int, float]:
    rows = [row for q in _group(head) for row in pair.a[lane][q]]
    return {j: sum(row.get(j, 0.0) for row in rows) for j in pair.kept[lane][head]}


def mean_mass(pair: Pair, lane: int, head: int) -> dict[int, float]:
    return {j: total / (len(pair.hold) - j) for j, total in h2o(pair, lane, head).items()}


def valued(pair: Pair, lane: int, head: int) -> dict[int, float]:
    norm = np.abs(pair.v[lane, head]).sum(-1)
    return {j: mean * float(norm[j]) for j, mean in mean_mass(pair, lane, head).items()}


def slow(pair: Pair, lane: int, head: int) -> dict[int, float]:
    """Rows recorded together forget together, and weigh alike: as much as if each had forgotten by one."""
    horizon = 1.5 * pair.policy.budget.n_high  # type: ignore[attr-defined]
    out = dict.fromkeys(pair.kept[lane][head], 0.0)
    for first, steps in pair.passes:
        weight = sum(math.exp(-i / horizon) for i in range(steps)) / steps
        for j in out:
            rows = [pair.a[lane][q][t].get(j, 0.0) for q in _group(head) for t in range(first, first + steps)]
            out[j] = out[j] * math.exp(-steps / horizon) + weight * sum(rows) / GROUPS
    return out


def tova(pair: Pair, lane: int, head: int) -> dict[int, float]:
    return {j: sum(pair.a[lane][q][-1][j] for q in _group(head)) / GROUPS for j in pair.kept[lane][head]}


def scissorhands(pair: Pair, lane: int, head: int) -> dict[int, float]:
    count = dict.fromkeys(pair.kept[lane][head], 0.0)
    for t in range(max(0, len(pair.hold) - 100), len(pair.hold)):
        rows = [pair.a[lane][q][t] for q in _group(head)]
        total = {j: sum(row[j] for row in rows) for j in rows[0]}
        threshold = np.percentile(list(total.values()), 90)
        for j in count:
            count[j] += total.get(j, 0.0) > threshold
    return count


def snapkv(pair: Pair, lane: int, head: int, w: int = 6, pool: int = 5, reduce: Any = max) -> dict[int, float]:
    end = len(pair.hold)
    rows = range(max(0, end - w), end)
    before = [j for j in pair.kept[lane][head] if j < rows[0]]
    out = dict.fromkeys(before, 0.0)
    for q in _group(head):
        attention = [pair.attention(lane, q, t) for t in rows]
        total = [0.0] * (pool // 2) + [sum(row[j] for row in attention) for j in before] + [0.0] * (pool // 2)
        for i, j in enumerate(before):
            out[j] += reduce(total[i : i + pool]) / GROUPS
    return out


def snapkv_mean(pair: Pair, lane: int, head: int) -> dict[int, float]:
    return snapkv(pair, lane, head, reduce=lambda x: sum(x) / len(x))


def knorm(pair: Pair, lane: int, head: int) -> dict[int, float]:
    return {j: -float(np.linalg.norm(pair.k[lane, head, j])) for j in pair.kept[lane][head]}


def recency(pair: Pair, lane: int, head: int) -> dict[int, float]:
    return {j: float(j) for j in pair.kept[lane][head]}


def _group(head: int) -> range:
    return range(head * GROUPS, (head + 1) * GROUPS)


BY_ROWS = (h2o, mean_mass, valued, slow, tova, scissorhands)
CASES: dict[str, Callable[[Pair, int, int], dict[int, float]]] = {
    "h2o:n=24": h2o,
    "h2o:n=24,heavy=0.8,sinks=2,scope=layer": h2o,
    "confkv-mean:n_high=24,n_low=24,protect=6": mean_mass,
    "confkv-mean:n_high=24,n_low=24,protect=6,sinks=1,scope=layer": mean_mass,
    "confkv-mean:n_high=24,n_low=24,protect=6,values=1": valued,
    "confkv-mean:n_high=24,n_low=24,protect=6,sinks=1,scope=layer,values=1": valued,
    "confkv-mean:n_high=20,n_low=24,protect=6,guard=0.3": mean_mass,
    "confkv-mean:n_high=24,n_low=24,protect=6,sinks=1,scope=layer,values=1,guard=0.2": valued,
    "confkv-slow:n_high=22,n_low=24,horizon=1.5": slow,
    "confkv-slow:n_high=24,n_low=24,horizon=1.5,recent=0.25,sinks=1,scope=layer": slow,
    "confkv-slow:n_high=20,n_low=24,horizon=1.5,recent=0.3,guard=0.3": slow,
    "tova:n=24": tova,
    "tova:n=24,scope=head,protect=3": tova,
    "scissorhands:n=24": scissorhands,
    "scissorhands:n=24,scope=layer,sinks=1,protect=2": scissorhands,
    "snapkv:n=24,w=6,pool=5": snapkv,
    "snapkv:n=24,w=6,pool=5,scope=layer": snapkv,
    "snapkv:n=24,w=6,pool=5,pooling=avg": snapkv_mean,
    "pyramidkv:n=24,w=6,pool=5": snapkv,
    "pyramidkv:n=24,w=6,pool=5,overshoot=1": snapkv,
    "zigzag:n=24,w=6,pool=5": snapkv,
    "knorm:n=24,protect=5": knorm,
    "knorm:n=24,protect=5,scope=layer": knorm,
    "streaming:n=24": recency,
    "recency:n=24,protect=8": recency,
}


@pytest.mark.parametrize("policy", CASES)
def test_kept_sets_follow_the_formula(policy: str) -> None:
    pair = Pair(policy, CASES[policy])
    pair.play()
    assert pair.compared > 90


@pytest.mark.parametrize(
    "policy",
    [
        "h2o:n=40,int8=1,w=6",
        "snapkv:n=40,w=6,pool=5,int8=1,fp=8",
        "tova:n=40,int8=1,w=6",
        "confkv-mean:n_high=40,n_low=40,protect=6,sinks=0,int8=1,w=6,values=1",
    ],
)
def test_int8_history_hardly_moves_the_scores(policy: str) -> None:
    """Attention over coded keys is close to that over exact ones."""
    formula = {"h2o": h2o, "sna": snapkv, "tov": tova, "con": valued}[policy[:3]]
    pair = Pair(policy, formula)
    pair.feed(60)
    pair.feed(60)
    assert min(pair.store.n_history) > 0
    signal = pair.policy.ranker.signal(View(pair.store, pair.manager.window, 120))
    mass = pair.store.meta[:, :, : max(pair.store.lengths), MASS] if signal is None else signal
    for lane in range(LANES):
        at = pair.store.slot_positions(lane)
        for head in range(HEADS):
            true = formula(pair, lane, head)
            scale = {"h2o": GROUPS, "con": GROUPS}.get(policy[:3], 1)
            got = {int(j): float(x) * scale for j, x in zip(at[head], mass[lane, head], strict=False)}
            if formula is valued:
                got = {j: x / (120 - j) for j, x in got.items()}
            error = max(abs(got[j] - x) for j, x in true.items() if j < 120 - pair.policy.protect)
            assert error < 0.03 * max(true.values())


def test_h2o_is_the_sum_of_every_row() -> None:
    """Values, not only their order: the sum over all rows, divided by the query heads of a group."""
    pair = Pair("h2o:n=24", h2o)
    pair.feed(150)
    pair.feed(1, decode=True)
    for lane in range(LANES):
        at = pair.store.slot_positions(lane)
        for head in range(HEADS):
            true = h2o(pair, lane, head)
            got = pair.store.meta[lane, head, : pair.store.lengths[lane], MASS].double() * GROUPS
            expected = torch.tensor([true[int(j)] for j in at[head]], dtype=torch.float64)
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-5)


def test_scissorhands_counts_the_newest_hundred_rows() -> None:
    pair = Pair("scissorhands:n=60", scissorhands)
    pair.feed(130)
    for _ in range(30):
        pair.feed(1, decode=True)
    for lane in range(LANES):
        n = pair.store.lengths[lane]
        counts = _count(pair.store.meta[lane : lane + 1, :, :n, -4:])[0]
        assert float(counts.max()) > 20
        for head in range(HEADS):
            true = scissorhands(pair, lane, head)
            assert counts[head].tolist() == [true[int(j)] for j in pair.store.slot_positions(lane)[head]]


@pytest.mark.parametrize("rows", [1, 2, 99, 100, 101, 250])
def test_register_keeps_the_newest_hundred_bits(rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    register = torch.zeros(1, 2, 3, 4, dtype=torch.int32)
    hits = torch.rand(1, 2, 330, 3, generator=g) < 0.5
    first = 330 % rows
    if first:
        _shift_in(register, hits[:, :, :first])
    for start in range(first, 330, rows):
        _shift_in(register, hits[:, :, start : start + rows])
    bits = torch.stack([(register >> i) & 1 for i in range(25)], -1).flatten(-2).bool()
    assert torch.equal(bits, hits[:, :, -100:].flip(2).transpose(2, 3))
    assert not bool(register.view(torch.float32).isnan().any())
    assert torch.equal(_count(register.view(torch.float32)), hits[:, :, -100:].sum(2).float())


def test_ranks_break_ties_by_position() -> None:
    score = torch.tensor([[[1.0, 0.5, 1.0, 0.5, 2.0]]])
    position = torch.tensor([[[9.0, 3.0, 4.0, 8.0, 1.0]]])
    assert by_rank(score, position).tolist() == [[[3.0, 0.0, 2.0, 1.0, 4.0]]]


def test_random_is_uniform_seeded_and_differs_by_head() -> None:
    def kept(seed: int, lane: int) -> Tensor:
        pair = Pair(f"random:n=40,protect=1,sinks=0,seed={seed}", recency)
        pair.evict = lambda decode: None  # type: ignore[method-assign]
        pair.feed(400)
        pair.manager.evict(None, 400)
        return pair.store.positions(lane)

    assert torch.equal(kept(3, 0), kept(3, 0))
    assert not torch.equal(kept(3, 0), kept(4, 0)) and not torch.equal(kept(3, 0), kept(3, 1))
    assert not torch.equal(kept(3, 0)[0], kept(3, 0)[1])
    # Drawn anew at each eviction: of those that the first spared, some go.
    pair = Pair("random:n=40,protect=1,sinks=0", recency)
    pair.evict = lambda decode: None  # type: ignore[method-assign]
    pair.feed(50)
    draws = [pair.policy.ranker.signal(View(pair.store, None, end)) for end in (50, 51)]
    assert abs(float(torch.corrcoef(torch.stack([x.flatten() for x in draws if x is not None]))[0, 1])) < 0.2
    where = torch.cat([kept(seed, lane).flatten() for seed in range(20) for lane in range(LANES)]).double()
    # 4,680 free draws: the mean of a uniform draw has a standard error of 400 / sqrt(12 * 4680).
    assert abs(float(where.mean()) - 199.5 - 5.0) < 4 * 400 / (12 * 4680) ** 0.5
    quarters = torch.histc(where, 4, 0, 400)
    assert float(quarters.min()) > 1000
