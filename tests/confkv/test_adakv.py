"""Ada-KV's shares: allocation and kept sets against plain Python, what confidence does to them, bytes really saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from confkv import positions
from confkv.engine import Engine
from confkv.errors import ConfkvError, PolicyError
from confkv.policies import parse_policy
from confkv.policies.adakv import HeadShares, scaled
from confkv.ragged import RaggedStore
from confkv.store import HOLD, MASS, PINNED, POS, PROTECTED
from tests.confkv.test_rankers import HEADS, LANES, Pair, mean_mass, snapkv, snapkv_mean, valued
from tests.confkv.test_store import Driver

Scores = list[list[dict[int, float]]]


def shares(scores: list[dict[int, float]], base: int, floor: Fraction) -> list[int]:
    """One layer: what each head may keep, by the paper's words. ``scores`` holds what competes, by position."""
    heads = len(scores)
    ranked = sorted(((s, j, -h) for h, own in enumerate(scores) for j, s in own.items()), reverse=True)[: heads * base]
    count = [Fraction(sum(-h == head for _, _, h in ranked)) for head in range(heads)]
    spare = Fraction(heads * base - len(ranked), heads)
    exact = [floor * base + (1 - floor) * (c + spare) for c in count]
    whole = [int(x) for x in exact]
    for head in sorted(range(heads), key=lambda h: (whole[h] - exact[h], h))[: heads * base - sum(whole)]:
        whole[head] += 1
    return whole


def _tensors(scores: Scores, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Scores and positions by slot, in any order; what does not compete lies between."""
    g = torch.Generator().manual_seed(seed)
    score = torch.full((len(scores), len(scores[0]), n), float("-inf"))
    position = torch.zeros_like(score)
    for layer, heads in enumerate(scores):
        for head, own in enumerate(heads):
            order = torch.randperm(n, generator=g)
            position[layer, head, order] = torch.arange(n, dtype=torch.float32)
            for j, s in own.items():
                score[layer, head, order[j]] = s
    return score, position


# -- allocation ---------------------------------------------------------------------------------------------------


@given(
    data=st.data(), layers=st.integers(1, 3), heads=st.integers(1, 5), n=st.integers(1, 24), eighths=st.integers(0, 8)
)
@settings(max_examples=150, deadline=None)
def test_allocation_is_that_of_plain_python(data: Any, layers: int, heads: int, n: int, eighths: int) -> None:
    values = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])  # many ties
    own = st.dictionaries(st.integers(0, n - 1), values, max_size=n)
    scores = data.draw(st.lists(st.lists(own, min_size=heads, max_size=heads), min_size=layers, max_size=layers))
    base = data.draw(st.lists(st.integers(0, n), min_size=layers, max_size=layers))
    rule = HeadShares(eighths / 8)
    got = rule.allocate(*_tensors(scores, n, 3), base)
    expected = [shares(of, b, Fraction(eighths, 8)) for of, b in zip(scores, base, strict=True)]
    assert got == [x for layer in expected for x in layer]
    for layer, b in enumerate(base):
        part = got[layer * heads : (layer + 1) * heads]
        assert sum(part) == heads * b and max(part) <= rule.most(b, heads)
        assert min(part) >= int(Fraction(eighths, 8) * b)


def test_allocation_by_hand() -> None:
    score = torch.tensor([[[9.0, 8, 7, 6, 1], [5.0, 0, 0, 0, 0]], [[1.0, 1, 1, 1, 1], [2.0, 1, 1, 1, 1]]])
    position = torch.arange(5.0).expand(2, 2, 5)
    assert HeadShares(0.0).allocate(score, position, [2, 2]) == [4, 0, 2, 2]  # newer ones of equals: 4, 4, 3
    assert HeadShares(0.5).allocate(score, position, [2, 2]) == [3, 1, 2, 2]
    assert HeadShares(1.0).allocate(score, position, [2, 2]) == [2, 2, 2, 2]
    # Rounded one by one, as published: 0.2 * 3 + 0.8 * 5 = 4.6 -> 5 and 0.2 * 3 + 0.8 * 1 = 1.4 -> 1.
    assert HeadShares(0.2).allocate(score, position, [3, 1]) == [5, 1, 1, 1]
    three = torch.tensor([[[3.0, 3, 0], [2.0, 2, 0], [1.0, 0, 0]]])
    # 0.5 * 2 + 0.5 * (3, 2, 1) = 2.5, 2, 1.5: published rounding gives 2 + 2 + 2 or 3 + 2 + 2, according to its half.
    assert HeadShares(0.5).allocate(three, torch.arange(3.0).expand(1, 3, 3), [2]) == [3, 2, 1]


@given(parts=st.lists(st.integers(0, 60), min_size=1, max_size=6), base=st.integers(0, 90))
@settings(max_examples=100, deadline=None)
def test_scaled_shares_are_exact(parts: list[int], base: int) -> None:
    parts = [*parts, -sum(parts) % len(parts)] if sum(parts) % len(parts) else parts
    got, total, whole = scaled(parts, base), sum(parts), base * len(parts)
    assert sum(got) == whole
    if total:
        assert all(abs(Fraction(whole * x, total) - y) < 1 for x, y in zip(parts, got, strict=True))
    if total % len(parts) == 0 and total:
        assert scaled(parts, total // len(parts)) == parts


# -- kept sets ----------------------------------------------------------------------------------------------------


class HeadPair(Pair):
    """:class:`Pair` whose heads are lanes, with shares by :func:`shares` from the formula's own scores."""

    def __init__(self, policy: str, formula: Callable[[Pair, int, int], dict[int, float]], seed: int = 0) -> None:
        super().__init__(policy, formula, seed)
        assert self.policy.shares is not None
        self.floor = Fraction(self.policy.shares.floor).limit_denominator(1000)
        self.alloc: list[list[int]] = []
        self.uneven = 0
        self.nominals: set[int] = set()

    def evict(self, decode: bool) -> None:
        end, held, policy = len(self.hold), sum(h >= PROTECTED for h in self.hold), self.policy
        nominal, dropped = self.manager.evict(0.5 if decode else None, end)
        self.dropped += dropped
        assert nominal is not None
        self.nominals.add(nominal)
        base = nominal - policy.protect - policy.sinks
        free = [
            [[j for j in own if not self.hold[j] and j < end - policy.protect] for own in layer] for layer in self.kept
        ]
        over = any(
            len(own) > held + n
            for layer, budgets in zip(self.kept, self.limits(base), strict=True)
            for own, n in zip(layer, budgets, strict=True)
        )
        scores = [[self.formula(self, lane, head) for head in range(HEADS)] for lane in range(LANES)]
        if over and not (decode and self.alloc):
            of_free = [
                [{j: s.get(j, 0.0) for j in js} for s, js in zip(own, where, strict=True)]
                for own, where in zip(scores, free, strict=True)
            ]
            self.alloc = [shares(layer, base, self.floor) for layer in of_free]
            self.full = base
        budgets = self.limits(base)
        assert self.manager.layer_budgets(nominal) == [n for layer in budgets for n in layer]
        for lane in range(LANES):
            for head in range(HEADS):
                own, js, budget = self.kept[lane][head], free[lane][head], budgets[lane][head]
                # The share of a head's own budget that is guarded leaves room for what it cannot drop.
                guarded = min(int(policy.guard * budget), budget - policy.protect - policy.sinks)
                js = sorted(js, key=lambda j: (self.rarity(j), j))[: max(0, len(js) - guarded)]
                must = [j for j in own if j not in set(js)]
                best = sorted(js, key=lambda j: (scores[lane][head].get(j, 0.0), j), reverse=True)
                self.kept[lane][head] = sorted(must + best[: held + budget - len(must)])
                assert self.store.positions(lane * HEADS + head)[0].tolist() == self.kept[lane][head]
            self.uneven += len(self.kept[lane][0]) != len(self.kept[lane][1])
            self.compared += 1

    def limits(self, base: int) -> list[list[int]]:
        """What each head may hold, at a base that confidence may have changed since shares were taken."""
        reserve = self.policy.protect + self.policy.sinks
        if not self.alloc:
            return [[base + reserve] * HEADS] * LANES
        out = []
        for counts in self.alloc:
            exact = [Fraction(c * base, self.full) for c in counts]
            whole = [int(x) for x in exact]
            for head in sorted(range(HEADS), key=lambda h: (whole[h] - exact[h], h))[: HEADS * base - sum(whole)]:
                whole[head] += 1
            out.append([reserve + x for x in whole])
        return out


CASES = {
    "adakv:n=24,w=6,pool=5": snapkv,
    "adakv:n=24,w=6,pool=5,pooling=avg,floor=0,sinks=2": snapkv_mean,
    "adakv:n=30,w=6,pool=5,floor=0.5": snapkv,
    "confkv-mean:n_high=24,n_low=24,protect=6,heads=ada": mean_mass,
    "confkv-mean:n_high=20,n_low=32,tau=0.4,protect=6,heads=ada,head_floor=0": mean_mass,
    "confkv-mean:n_high=24,n_low=24,protect=6,heads=ada,guard=0.4": mean_mass,
    "confkv-mean:n_high=20,n_low=36,tau=0.4,protect=6,heads=ada,head_floor=0,values=1,guard=0.5": valued,
}


@pytest.mark.parametrize("policy", CASES)
def test_kept_sets_follow_shares_and_formula(policy: str) -> None:
    pair = HeadPair(policy, CASES[policy])
    pair.play()
    assert pair.compared > 90 and pair.uneven > 40
    assert len(pair.nominals) == (2 if "n_high=20" in policy else 1)


@pytest.mark.parametrize("name", ["confkv", "confkv-l"])
def test_confkv_shares_follow_its_own_scores(name: str) -> None:
    """The composite score over all heads of a layer, written out in float64 from what the store recorded."""
    driver = Driver(f"{name}:n_high=20,n_low=30,protect=6,sinks=2,tau=0.5,scope=head,heads=ada", seed=3)
    store, manager, seen = driver.store, driver.manager, []
    across = type(driver.policy.ranker).across_heads

    def spy(*_: Any) -> Tensor:
        expected = []
        for layer in range(2):
            heads: list[dict[int, float]] = []
            for lane in (2 * layer, 2 * layer + 1):
                meta = store.meta[lane, 0, : store.lengths[lane]].double().numpy()
                free = (meta[:, HOLD] == 0) & (meta[:, POS] < driver.seen - 6)
                top = meta[free, MASS].max()
                value = 0.65 * meta[:, MASS] / top + 0.35 * meta[:, POS] / driver.seen
                heads.append(dict(zip(meta[free, POS].astype(int).tolist(), value[free].tolist(), strict=True)))
            base = driver.policy.budget.per_layer(30, 2)[layer] - 8
            expected += shares(heads, base, Fraction(1, 5))
        seen.append(expected)
        return across(driver.policy.ranker, *_)

    object.__setattr__(driver.policy.ranker, "across_heads", spy)
    for count in (50, 40, 3, 60):
        driver.feed(count)
        assert manager.allocation == seen[-1]
    assert len(seen) == 4 and len({tuple(x) for x in seen}) > 1
    assert any(a != b for a, b in zip(manager.allocation[::2], manager.allocation[1::2], strict=True))
    for i in range(20):
        driver.feed(1, confidence=(0.9, 0.1)[i // 3 % 2])
        driver.check()
    assert len(seen) == 4, "shares stay while decoding"


def test_shares_scale_with_the_budget_that_confidence_sets() -> None:
    driver = Driver("confkv-mean:n_high=24,n_low=44,protect=3,sinks=1,tau=0.5,heads=ada,head_floor=0", seed=5)
    driver.feed(120)
    low = driver.manager.layer_budgets(44)
    assert driver.store.lengths == low and len(set(low)) > 2
    driver.feed(1, confidence=0.9)
    high = driver.manager.layer_budgets(24)
    # 4 of each are the window and the sink; the rest is 20 of 40.
    assert all(abs((a - 4) - (b - 4) / 2) < 1 for a, b in zip(high, low, strict=True)) and driver.store.lengths == high
    for _ in range(40):
        driver.feed(1, confidence=0.1)
        driver.check()
    assert driver.store.lengths == low


# -- bytes --------------------------------------------------------------------------------------------------------


def _sharp(tiny: Any, **more: Any) -> Any:
    """A model whose heads differ in how widely they attend."""
    model = tiny("llama", max_position_embeddings=4096, **more)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight[:16].mul_(4.0)
            layer.self_attn.q_proj.weight[16:].mul_(0.05)
    return model


@pytest.mark.parametrize("policy", ["adakv:300,w=8", "confkv-mean:n_high=300,n_low=300,heads=ada"])
def test_bytes_are_those_of_the_heads_own_lengths(policy: str, tiny: Any, ids: Any) -> None:
    session = Engine(_sharp(tiny), None, policy, chunk=512).session()
    session.extend(ids(2000, 1))
    session.score(ids(40, 2))
    store = session.cache.store
    assert isinstance(store, RaggedStore) and store.per_layer == 2 and len(store.parts) == 4
    lengths = store.lengths
    assert [a + b for a, b in zip(lengths[::2], lengths[1::2], strict=True)] == [600, 600]
    assert max(lengths) > (1.4 if policy.startswith("adakv") else 1.05) * min(lengths)
    assert session.stats.kept_per_layer == [300, 300]
    row = 2 * 8 * 4  # key and value of 8 float32
    for part, n in zip(store.parts, lengths, strict=True):
        # Nothing but the room to grow that an even store has as well.
        assert n * row <= part.k.nbytes + part.v.nbytes <= (n + 1 + max(64, (n + 1) // 8) + 32) * row
    held = sum(part.k.untyped_storage().nbytes() + part.v.untyped_storage().nbytes() for part in store.parts)
    assert held == session.stats.bytes_by_kind["fp"] < 1.5 * 1200 * row
    assert session.stats.evictions == session.seen * 2 - 600


def test_int8_heads_have_histories_of_their_own(tiny: Any, ids: Any) -> None:
    policy = "adakv:300,w=8,int8=1,fp=32"
    session = Engine(_sharp(tiny), None, policy, chunk=512).session()
    session.extend(ids(2000, 1))
    session.score(ids(40, 2))
    store, kinds = session.cache.store, session.stats.bytes_by_kind
    assert store is not None and sum(store.lengths) == 1200
    assert max(store.n_history) > 1.4 * min(store.n_history) > 0
    assert 0 < kinds["int8"] < 1.4 * 2 * 8 * sum(store.n_history)
    exact = Engine(_sharp(tiny), None, "adakv:300,w=8", chunk=512).session()
    exact.extend(ids(2000, 1))
    exact.score(ids(40, 2))
    assert kinds["fp"] + kinds["int8"] + kinds["scales"] < 0.75 * exact.stats.bytes_by_kind["fp"]


def test_rows_of_original_positions_begin_with_minus_one(tiny: Any, ids: Any) -> None:
    session = Engine(_sharp(tiny), None, "adakv:40,w=8,floor=0", chunk=64).session()
    assert session.original_positions(0).shape == (0, 0)
    session.extend(ids(200, 1))
    store = session.cache.store
    assert store is not None
    for layer in range(2):
        rows = session.original_positions(layer)
        assert (
            rows.shape == (2, max(store.lengths[2 * layer : 2 * layer + 2]))
            and rows[:, -8:].tolist() == [list(range(192, 200))] * 2
        )
        for head, row in enumerate(rows):
            n = store.lengths[2 * layer + head]
            assert row[: len(row) - n].eq(-1).all() and torch.equal(
                row[len(row) - n :], store.positions(2 * layer + head)[0]
            )


@pytest.mark.parametrize(
    "policy", ["adakv:16,w=5,pool=3,floor=0", "confkv-mean:n_high=8,n_low=20,protect=5,sinks=2,heads=ada"]
)
@pytest.mark.parametrize("segment", ["observation", "goal"])
def test_what_is_not_refused_ahead_fits(
    policy: str, segment: str, tiny: Any, ids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Engine(tiny("llama"), None, policy, chunk=8).session()
    session.extend(ids(10, 1), "goal")
    session.extend(ids(9, 2))
    session.score(ids(8, 3))  # the first shares are those of a decode step

    def fits(count: int) -> bool:
        try:
            session.fork().extend(ids(count, 4), segment)
        except ConfkvError:
            return False
        return True

    counts = range(10, 90, 4)
    foreseen = [fits(count) for count in counts]
    monkeypatch.setattr(positions, "check_room", lambda *_, **__: None)
    assert all(fits(count) for count, good in zip(counts, foreseen, strict=True) if good)
    assert any(foreseen) and not all(foreseen)


# -- what does not go together ------------------------------------------------------------------------------------


def test_what_heads_with_budgets_of_their_own_do_not_go_with() -> None:
    recall, relative = parse_policy("confkv-recall:scope=head"), parse_policy("streaming-rel:64")
    for policy in (recall, replace(relative, scope="head")):
        with pytest.raises(PolicyError, match="recall") as caught:
            replace(policy, shares=HeadShares())
        assert "\n" not in str(caught.value)
    with pytest.raises(PolicyError, match="scope=head"):
        parse_policy("confkv:heads=ada")


def test_a_head_guards_of_what_is_its_own() -> None:
    policy = parse_policy("confkv-mean:n_high=100,n_low=100,protect=40,sinks=4,heads=ada,head_floor=0,guard=0.5")
    assert [policy.guarded(n) for n in (44, 45, 80, 88, 100, 156)] == [0, 1, 36, 44, 50, 78]
    with pytest.raises(PolicyError, match=r"guard=0\.6 leaves 40 of the smallest budget"):
        parse_policy("confkv-mean:n_high=100,n_low=100,protect=40,sinks=4,heads=ada,guard=0.6")
    with pytest.raises(PolicyError, match="scope=head"):
        parse_policy("confkv-l:curve=pyramidkv,guard=0.1,heads=ada")


def test_defaults_are_the_published_ones() -> None:
    policy = parse_policy("adakv:1024")
    assert policy.shares == HeadShares(0.2) and policy.scope == "head" and policy.budget.smallest == 1024
    assert policy.ranker == parse_policy("snapkv").ranker and (policy.protect, policy.sinks) == (32, 0)
    assert parse_policy("confkv").shares is None and not parse_policy("confkv").uneven
    mean = parse_policy("confkv-mean:heads=ada,head_floor=0.4")
    assert mean.shares == HeadShares(0.4) and mean.uneven and not mean.budget.uneven


def test_a_pinned_prompt_leaves_no_head_without_its_window(tiny: Any, ids: Any) -> None:
    """Held positions come on top of every head's share, however small it is."""
    session = Engine(_sharp(tiny), None, "adakv:20,w=8,floor=0", chunk=32).session()
    session.extend(ids(30, 1), "system")
    session.extend(ids(150, 2), "text")
    store = session.cache.store
    assert store is not None and sum(store.lengths) == 4 * (30 + 20)
    for lane in range(4):
        kept = store.positions(lane)[0].tolist()
        assert kept[:30] == list(range(30)) and kept[-8:] == list(range(172, 180))
        assert int((store.meta[lane, 0, : store.lengths[lane], HOLD] == PINNED).sum()) == 30
    assert np.ptp(store.lengths) > 0
