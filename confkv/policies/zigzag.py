"""ZigZagKV-like budgets (arXiv 2412.09036): a layer whose attention is spread wider keeps more positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.errors import PolicyError
from confkv.policies.base import Policy
from confkv.policies.budget import Budget, Past, rounded
from confkv.policies.params import Entry, PolicyInfo, Value, at_least, fraction
from confkv.policies.snapkv import PARAMS, compose

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ByUncertainty(Budget):
    """Layer budgets in proportion to how many positions hold most of the layer's attention.

    Per query head: the fewest positions that together receive a share ``hold`` of the mass of the newest queries; the
    mean over heads is the layer's need. Every layer gets ``floor``, the rest is divided by need, none gets more than
    2n; the layers together hold n times their number. Measured again at every eviction during prefill and left alone
    while decoding. The paper allocates once, after prefill; a session has many.

    Attributes:
        n: mean over layers.
        floor: least of any layer.
        hold: share of the attention mass.
    """

    n: int
    floor: int
    hold: float = 0.9

    @property
    def smallest(self) -> int | None:
        return self.floor

    @property
    def allocates(self) -> bool:
        return True

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        return self.n

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        return [2 * nominal if layers > 1 else nominal] * layers

    def allocate(self, mass: Tensor) -> list[int]:
        largest_first = mass.sort(-1, descending=True).values.cumsum(-1)
        enough = self.hold * largest_first[..., -1:]
        need = ((largest_first < enough).sum(-1) + 1).double().mean(-1)
        return self._divide([float(x) for x in need])

    def _divide(self, need: list[float]) -> list[int]:
        layers = len(need)
        most = self.per_layer(self.n, layers)[0]
        out = [float(self.floor)] * layers
        open_ = set(range(layers))
        left = float((self.n - self.floor) * layers)
        while left > 1e-6 and open_:
            total = sum(need[i] for i in open_)
            part = {i: left * need[i] / total for i in open_}
            for i, more in part.items():
                given = min(more, most - out[i])
                out[i] += given
                left -= given
            open_ = {i for i in open_ if out[i] < most - 1e-9}
        return rounded(out, self.n * layers)


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    n, hold, floor = at_least(p, "n", 1), fraction(p, "hold"), fraction(p, "floor")
    if hold in (0.0, 1.0):
        raise PolicyError(f"hold={hold:g} must lie between 0 and 1, both excluded")
    return compose(name, spec, p, ByUncertainty(n, round(floor * n), hold))


ENTRY = Entry(
    PolicyInfo(
        "zigzag",
        "snapkv with N shared among layers by how many positions hold a share `hold` of their attention",
        {**PARAMS, "hold": 0.9, "floor": 0.5},
        "https://arxiv.org/abs/2412.09036",
        positional="n",
    ),
    _build,
)
