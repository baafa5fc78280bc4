"""SnapKV (arXiv 2404.14469): what the newest w queries attend to, pooled over neighbours, beside the window itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.errors import PolicyError
from confkv.policies.base import Policy
from confkv.policies.budget import Budget, Fixed
from confkv.policies.params import Entry, PolicyInfo, Value, at_least, scope, storage
from confkv.policies.ranker import Ranker, by_rank

if TYPE_CHECKING:
    from torch import Tensor

    from confkv.observe import View


@dataclass(frozen=True)
class ObservationWindow(Ranker):
    """Softmax of the newest ``w`` queries over all keys, summed over rows, pooled along positions, ranked before the
    window.

    Pooling runs along the kept keys in position order, window excluded, per query head; where query heads share a KV
    head (the paper has none) the mean of their pooled scores counts. Average pooling counts its zero padding, as the
    published code does, at the expense of the first and last positions. The window is the newest ``w``
    queries at decoding too.

    Attributes:
        w: observation window.
        pool: kernel size, odd.
        pooling: ``max`` or ``avg``.
    """

    w: int = 32
    pool: int = 7
    pooling: str = "max"

    @property
    def rows(self) -> int:
        return self.w

    @property
    def every_chunk(self) -> bool:
        return True  # chunks may be shorter than the window

    @property
    def queries(self) -> int:
        return self.w

    def signal(self, view: View) -> Tensor | None:
        import torch
        from torch.nn.functional import avg_pool1d, max_pool1d

        mass = view.window_mass()
        heads, n = view.store.heads, mass.shape[-1]
        groups = mass.shape[1] // heads
        order = view.order()
        along = mass.gather(2, order.repeat_interleave(groups, 1))
        before = torch.tensor(view.store.lengths, device=mass.device) - view.rows
        outside = torch.arange(n, device=mass.device) >= before.view(-1, 1, 1)
        pooling = avg_pool1d if self.pooling == "avg" else max_pool1d
        pooled = pooling(along.masked_fill(outside, 0.0), self.pool, 1, self.pool // 2)
        mean = pooled.unflatten(1, (heads, groups)).mean(2)
        return torch.empty_like(mean).scatter_(2, order, mean)

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        return by_rank(mass, position)

    def across_heads(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        return mass  # a head's ranks say nothing of another's


#: Parameters of every policy that ranks so. ``w`` is the observation window here; ``fp`` is what ``w`` is elsewhere.
PARAMS: dict[str, Value] = {
    "n": 256,
    "w": 32,
    "pool": 7,
    "pooling": "max",
    "sinks": 0,
    "scope": "head",
    "int8": 0,
    "fp": 128,
}


def compose(name: str, spec: str, p: dict[str, Value], budget: Budget) -> Policy:
    """SnapKV's ranking under any budget."""
    w, pool = at_least(p, "w", 1), at_least(p, "pool", 1)
    if pool % 2 == 0:
        raise PolicyError(f"pool={pool} must be odd")
    if p["pooling"] not in ("max", "avg"):
        raise PolicyError(f"pooling={p['pooling']} is not known; use pooling=max or pooling=avg")
    ranker = ObservationWindow(w, pool, str(p["pooling"]))
    return Policy(name, spec, budget, ranker, scope(p), storage(p, "fp"), w, int(p["sinks"]))


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return compose(name, spec, p, Fixed(int(p["n"])))


ENTRY = Entry(
    PolicyInfo(
        "snapkv",
        "keep what the newest `w` queries attend to, pooled over neighbours, and these `w` positions",
        PARAMS,
        "https://arxiv.org/abs/2404.14469",
        positional="n",
    ),
    _build,
)
