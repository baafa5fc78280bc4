"""TOVA (arXiv 2401.06104): the position that the newest query attends to least leaves."""

from __future__ import annotations

from dataclasses import dataclass

from confkv.policies.base import Policy
from confkv.policies.params import STORAGE, Entry, PolicyInfo, Value, fixed
from confkv.policies.ranker import Ranker


@dataclass(frozen=True)
class NewestQuery(Ranker):
    """Attention of the last query alone. With scope=layer, as in the paper, the mean over all heads of the layer."""

    @property
    def rows(self) -> int:
        return 1


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    return fixed(NewestQuery(), name, spec, p)


ENTRY = Entry(
    PolicyInfo(
        "tova",
        "keep what the newest query attends to most, one set per layer",
        {"n": 256, "protect": 1, "sinks": 0, "scope": "layer", **STORAGE},
        "https://arxiv.org/abs/2401.06104",
        positional="n",
    ),
    _build,
)
