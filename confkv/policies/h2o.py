"""H2O, heavy hitters (arXiv 2306.14048): the sum of all attention a position ever received, beside the newest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.policies.base import Policy
from confkv.policies.budget import Fixed
from confkv.policies.params import STORAGE, Entry, PolicyInfo, Value, at_least, fraction, scope, storage
from confkv.policies.ranker import ALL_ROWS, Ranker

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class HeavyHitters(Ranker):
    """``S_j += sum_t A[t, j]`` over every query row t, those of prefill included (section 4 of the paper).

    No decay and no mean over rows, so old positions are ahead. Where query heads share a KV head (the paper has none),
    their mean is added, which orders positions as their sum does. Rows count before the eviction that follows them.
    """

    @property
    def rows(self) -> int:
        return ALL_ROWS

    @property
    def every_chunk(self) -> bool:
        return True

    def update(self, mass: Tensor, seen_mass: Tensor, rows: int) -> Tensor:
        return seen_mass + mass * rows


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    n, sinks = at_least(p, "n", 2), at_least(p, "sinks", 0)
    # One position at least is recent, and the token just fed counts as one.
    recent = max(1, n - sinks - int(n * fraction(p, "heavy")))
    return Policy(name, spec, Fixed(n), HeavyHitters(), scope(p), storage(p), recent, sinks)


ENTRY = Entry(
    PolicyInfo(
        "h2o",
        "keep the positions with the largest sum of attention ever received (a share `heavy` of N) and the newest",
        {"n": 256, "heavy": 0.5, "sinks": 0, "scope": "head", **STORAGE},
        "https://arxiv.org/abs/2306.14048",
        positional="n",
    ),
    _build,
)
