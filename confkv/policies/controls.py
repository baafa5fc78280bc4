"""Controls of the ablation: random eviction, recency alone, attention mass alone, each at a fixed budget.

They share protected window, sinks and cadence with `confkv` (arXiv 2605.24786, whose ablation they serve).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.policies.base import Policy
from confkv.policies.params import STORAGE, Entry, PolicyInfo, Value, at_least, fixed, fraction
from confkv.policies.ranker import Composite, Ranker, Recency

if TYPE_CHECKING:
    from torch import Tensor

    from confkv.observe import View


@dataclass(frozen=True)
class Random(Ranker):
    """Uniform draws, anew at every eviction, for each layer and KV head; seeded by ``seed`` and the length so far, so
    that no generator has to be kept."""

    seed: int = 0

    def signal(self, view: View) -> Tensor | None:
        import torch

        store = view.store
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + view.end)
        draws = torch.rand(store.lanes, store.heads, max(store.lengths), generator=generator)
        return draws.to(store.device)


def _random(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return fixed(Random(at_least(p, "seed", 0)), name, spec, p)


def _recency(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return fixed(Recency(), name, spec, {**p, "scope": "layer"})


def _mass(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return fixed(Composite(1.0, fraction(p, "decay")), name, spec, p)


_PAPER = "https://arxiv.org/abs/2605.24786"
_SHARED: dict[str, Value] = {"n": 256, "protect": 32, "sinks": 4}

ENTRIES = [
    Entry(
        PolicyInfo(
            "random",
            "control: a random position leaves each layer and head at every step over N",
            {**_SHARED, "seed": 0, "scope": "head", **STORAGE},
            _PAPER,
            positional="n",
        ),
        _random,
    ),
    Entry(
        PolicyInfo(
            "recency",
            "control: confkv's score with alpha=0 at a fixed N (the kept set of `streaming`)",
            {**_SHARED, **STORAGE},
            _PAPER,
            positional="n",
        ),
        _recency,
    ),
    Entry(
        PolicyInfo(
            "mass",
            "control: confkv's score with alpha=1, attention mass (EMA) alone, at a fixed N",
            {**_SHARED, "decay": 0.9, "scope": "layer", **STORAGE},
            _PAPER,
            positional="n",
        ),
        _mass,
    ),
]
