"""Budgets over depth: PyramidKV's line, under a fixed budget and under confkv's, and ZigZagKV's shares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from confkv.policies import parse_policy
from confkv.policies.pyramidkv import pyramidkv_curve
from confkv.policies.zigzag import ByUncertainty
from tests.confkv.test_rankers import GROUPS, HEADS, LANES, Pair, snapkv


def test_pyramidkv_curve_is_the_published_one() -> None:
    curve = pyramidkv_curve(128, 8, 32, q=8192)
    assert (curve[0], curve[-1]) == (242, 25) and sum(curve) / 32 == 133.5
    assert all(a - b == 7 for a, b in itertools.pairwise(curve))
    # A prompt of 200 positions: the first layer keeps all of it, the last one what is left of twice the base.
    assert pyramidkv_curve(128, 8, 32, q=200)[0] == 200 and pyramidkv_curve(128, 8, 1) == [242]


@pytest.mark.parametrize("layers", [1, 2, 3, 28, 30, 32])
@pytest.mark.parametrize("n", [64, 128, 257])
def test_corrected_pyramid_keeps_the_mean(n: int, layers: int) -> None:
    budget = parse_policy(f"pyramidkv:n={n},w=8").budget
    curve = budget.per_layer(n, layers)
    assert sum(curve) == n * layers and curve == sorted(curve, reverse=True)
    assert budget.smallest is not None and min(curve) >= budget.smallest
    published = pyramidkv_curve(n, 8, layers)
    if layers > 1:
        assert curve[0] == published[0] and abs(curve[-1] - (8 + (n - 8) // 20)) <= 0
    assert parse_policy(f"pyramidkv:n={n},w=8,overshoot=1").budget.per_layer(n, layers) == published


@pytest.mark.parametrize("layers", [1, 2, 3, 28, 30])
@pytest.mark.parametrize("extra", ["", ",guard=0.2", ",block=16,guard=0.1"])
def test_pyramidkv_line_for_confkv_keeps_the_mean_at_either_confidence(extra: str, layers: int) -> None:
    policy = parse_policy(f"confkv-l:n_high=130,n_low=257,tau=0.6,curve=pyramidkv{extra}")
    budget = policy.budget
    assert (budget.at(0.7), budget.at(0.5), budget.at(None)) == (130, 257, 257) and budget.threshold == 0.6
    assert budget.uneven and budget.smallest is not None
    # What never competes, and the guard's share: 36 of 45 when a fifth of 45 is guarded.
    least = {"": 36, ",guard=0.2": 45, ",block=16,guard=0.1": 58}[extra]
    for nominal in (130, 257):
        curve = budget.per_layer(nominal, layers)
        assert sum(curve) == nominal * layers and min(curve) >= budget.smallest
        if layers > 1:
            low = least + (nominal - least) // 20
            line = [2 * nominal - low - i * 2 * (nominal - low) / (layers - 1) for i in range(layers)]
            assert all(abs(a - b) <= 0.5 for a, b in zip(curve, line, strict=True))


def test_zigzag_shares_follow_the_spread_of_attention() -> None:
    mass = torch.zeros(3, 2, 100)
    mass[0, :, 3] = 1.0  # one position holds everything
    mass[1, :, :10] = 0.1  # nine of ten equal ones hold 0.9
    mass[2, 0, :50] = 0.02  # 45 in one head,
    mass[2, 1, :30] = 1 / 30  # 27 in the other
    budget = ByUncertainty(n=40, floor=10, hold=0.89)
    # Needs 1, 9 and 36 of 46 share 90; the largest would pass 2n = 80 only from 70 on.
    assert budget.allocate(mass) == [12, 28, 80] and sum(budget.allocate(mass)) == 120
    flat = torch.ones(3, 2, 100)
    assert budget.allocate(flat) == [40, 40, 40]
    assert ByUncertainty(n=40, floor=0, hold=0.89).allocate(mass) == [4, 36, 80]
    assert ByUncertainty(n=7, floor=3, hold=0.5).allocate(flat[:1]) == [7]


def test_zigzag_layers_of_a_store_add_up_to_the_budget() -> None:
    pair = Pair("zigzag:n=24,w=6,pool=5", snapkv)
    pair.play()
    assert sum(pair.budgets) == 24 * LANES and len(set(pair.budgets)) > 1
    end, w = len(pair.hold), 6
    before = list(pair.budgets)
    pair.feed(1, decode=True)
    assert pair.budgets == before, "left alone while decoding"
    pair.manager.evict = lambda *_: (24, 0)  # type: ignore[method-assign]
    pair.evict = lambda decode: None  # type: ignore[method-assign]
    pair.feed(30)
    need = []
    for lane in range(LANES):
        counts = []
        for q in range(HEADS * GROUPS):
            rows = [pair.attention(lane, q, t) for t in range(end + 31 - w, end + 31)]
            total = sorted((sum(r.get(j, 0.0) for r in rows) for j in pair.kept[lane][q // GROUPS]), reverse=True)
            counts.append(int((np.cumsum(total) < 0.9 * sum(total)).sum()) + 1)
        need.append(float(np.mean(counts)))
    del pair.manager.evict
    pair.manager.evict(None, end + 31)
    shares = [12 + 36 * x / sum(need) for x in need]
    assert all(abs(a - b) < 1 for a, b in zip(pair.manager.allocation, shares, strict=True))
