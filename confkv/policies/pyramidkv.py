"""PyramidKV (arXiv 2406.02069): SnapKV's ranking, with budgets that fall linearly with depth."""

from __future__ import annotations

from dataclasses import dataclass

from confkv.errors import PolicyError
from confkv.policies.base import Policy
from confkv.policies.budget import Budget, ByConfidence, Past
from confkv.policies.params import Entry, PolicyInfo, Value, at_least, flag
from confkv.policies.snapkv import PARAMS, compose


def pyramidkv_curve(n: int, w: int, layers: int, q: int | None = None, beta: int = 20) -> list[int]:
    """Positions of each layer as the published code computes them, first layer first.

    The step is a floor division, so the layers hold more than ``n`` on average.

    Args:
        n: nominal budget, window included.
        w: observation window.
        layers: number of layers.
        q: prompt length; None: longer than any budget.
        beta: the last layer gets a ``beta``-th of the first share before its window.
    """
    base = n - w
    low = base // beta
    high = 2 * base - low
    if q is not None and high >= q - w:
        high = q - w
        low = 2 * base - high
    step = (high - low) // max(layers - 1, 1)
    return [high - layer * step + w for layer in range(layers)]


@dataclass(frozen=True)
class LinearPyramid(Budget):
    """PyramidKV's curve for a session, whose final length is not known: ``q`` is taken as longer than any budget.

    Attributes:
        n: nominal budget, window included.
        w: observation window.
        overshoot: keep the floor division of the published code. Without it the line runs from the first layer's share
            to the last one's and the mean over layers is ``n``, so that comparisons can be made at equal bytes.
    """

    n: int
    w: int
    overshoot: bool = False

    @property
    def smallest(self) -> int | None:
        return self.w + (self.n - self.w) // 20

    @property
    def uneven(self) -> bool:
        return True

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        return self.n

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        if self.overshoot:
            return pyramidkv_curve(nominal, self.w, layers)
        if layers == 1:
            return [nominal]
        low = (nominal - self.w) // 20 + self.w
        high = 2 * nominal - low
        falling = [round(high - layer * (high - low) / (layers - 1)) for layer in range(layers // 2)]
        # Mirrored, so that rounding cannot move the mean.
        return falling + [nominal] * (layers % 2) + [2 * nominal - x for x in reversed(falling)]


@dataclass(frozen=True)
class ConfidentPyramid(Budget):
    """CONF-KV's budget by confidence, shared among the layers by PyramidKV's line instead of ``N * ratio^(l / L)``.

    The mean over layers is the nominal budget at either confidence, so that a comparison with ``confkv`` is one at
    equal bytes; the paper's curve keeps less than ``confkv`` does.

    Attributes:
        base: the nominal budget.
        w: what no layer goes without, as PyramidKV's window of observation: here what never competes.
    """

    base: ByConfidence
    w: int

    @property
    def smallest(self) -> int | None:
        return LinearPyramid(min(self.base.n_high, self.base.n_low), self.w).smallest

    @property
    def threshold(self) -> float | None:
        return self.base.threshold

    @property
    def uneven(self) -> bool:
        return True

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        return self.base.at(confidence, past)

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        return LinearPyramid(nominal, self.w).per_layer(nominal, layers)


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    n, w = int(p["n"]), at_least(p, "w", 1)
    if n <= w:
        raise PolicyError(f"policy {name}: n={n} must exceed the window w={w}")
    return compose(name, spec, p, LinearPyramid(n, w, flag(p, "overshoot")))


ENTRY = Entry(
    PolicyInfo(
        "pyramidkv",
        "snapkv with more positions in early layers, N on average (overshoot=1: the published code's rounding)",
        {**PARAMS, "overshoot": 0},
        "https://arxiv.org/abs/2406.02069",
        positional="n",
    ),
    _build,
)
