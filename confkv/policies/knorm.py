"""Key norms (arXiv 2406.11430): keys with a small L2 norm tend to receive much attention, and stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.policies.base import Policy
from confkv.policies.params import STORAGE, Entry, PolicyInfo, Value, fixed
from confkv.policies.ranker import Ranker

if TYPE_CHECKING:
    from torch import Tensor

    from confkv.observe import View


@dataclass(frozen=True)
class KeyNorm(Ranker):
    """Score ``-|k_j|`` in float32, per KV head. RoPE keeps norms, so stored keys serve."""

    def signal(self, view: View) -> Tensor | None:
        return -view.key_norms()


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return fixed(KeyNorm(), name, spec, p)


ENTRY = Entry(
    PolicyInfo(
        "knorm",
        "keep the keys with the smallest norm, beside the newest `protect`",
        {"n": 256, "protect": 32, "sinks": 4, "scope": "head", **STORAGE},
        "https://arxiv.org/abs/2406.11430",
        positional="n",
    ),
    _build,
)
