"""Ada-KV (arXiv 2407.11550): the heads of a layer share its budget by where the layer's best scores are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confkv.errors import PolicyError
from confkv.policies.base import Policy
from confkv.policies.budget import Fixed, rounded
from confkv.policies.params import Entry, PolicyInfo, Value, fraction
from confkv.policies.snapkv import PARAMS, compose

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class HeadShares:
    """Shares of the KV heads in the budget of their layer (algorithm 1 of the paper, with its safeguard).

    Of the ``H * base`` best scores of a layer, so many as fall into a head are its count; the head gets
    ``floor * base + (1 - floor) * count``. The published code rounds each head by itself, so that a layer may hold a
    few more or less than another method's; here what rounding cuts off goes to the largest remainders.

    The unit is what competes: positions that no head may drop come on top, equally many for each.

    Attributes:
        floor: part of an even share that every head is sure of.
    """

    floor: float = 0.2

    def allocate(self, score: Tensor, position: Tensor, base: list[int]) -> list[int]:
        """Positions that may stay in each head; those of layer l add up to ``H * base[l]``.

        Equal scores are decided in favour of the newer position, then of the first head. Where fewer compete than
        may stay, what is left over is shared evenly.

        Args:
            score: ``[L, H, n]`` float32, comparable between the heads of a layer; ``-inf`` where nothing competes.
            position: ``[L, H, n]`` float32.
            base: per layer, the mean over its heads.

        Returns:
            ``L * H`` numbers, first layer first.
        """
        heads, n = score.shape[1:]
        newest_first = position.flatten(1).argsort(dim=-1, descending=True, stable=True)
        ordered = score.flatten(1).gather(1, newest_first).argsort(dim=-1, descending=True, stable=True)
        best = newest_first.gather(1, ordered)
        competing = (score > float("-inf")).flatten(1).sum(-1).tolist()
        out = []
        for layer, mean in enumerate(base):
            total = heads * mean
            taken = min(total, competing[layer])
            count = (best[layer, :taken] // n).bincount(minlength=heads).tolist()
            even = self.floor * mean + (1 - self.floor) * (total - taken) / heads
            out += rounded([even + (1 - self.floor) * c for c in count], total)
        return out

    def most(self, base: int, heads: int) -> int:
        """The most that :meth:`allocate` can give to a head."""
        return math.ceil(base * (self.floor + (1 - self.floor) * heads) - 1e-6)


def scaled(allocation: list[int], base: int) -> list[int]:
    """One layer's allocation at another budget: the shares stay, and the heads hold ``base`` on average."""
    total, whole = sum(allocation), base * len(allocation)
    if not total:
        return [base] * len(allocation)
    return rounded([whole * x / total for x in allocation], whole)


#: Parameters of policies whose heads may share a layer's budget, for :func:`with_shares`.
HEADS: dict[str, Value] = {"heads": "even", "head_floor": 0.2}


def with_shares(policy: Policy, p: Mapping[str, Value]) -> Policy:
    """The policy with the budget of a layer shared among its heads as its parameters say."""
    floor = fraction(p, "head_floor")
    if p["heads"] not in ("even", "ada"):
        raise PolicyError(f"heads={p['heads']} is unknown; use heads=even or heads=ada")
    return policy if p["heads"] == "even" else replace(policy, shares=HeadShares(floor))


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    floor = fraction(p, "floor")
    policy = compose(name, spec, {**p, "scope": "head"}, Fixed(int(p["n"])))
    return replace(policy, shares=HeadShares(floor))


ENTRY = Entry(
    PolicyInfo(
        "adakv",
        "snapkv with N a head on average, shared among the heads of a layer by where its best scores are",
        {**{key: value for key, value in PARAMS.items() if key != "scope"}, "floor": 0.2},
        "https://arxiv.org/abs/2407.11550",
        positional="n",
    ),
    _build,
)
