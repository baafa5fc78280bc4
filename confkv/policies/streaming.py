"""StreamingLLM (arXiv 2309.17453): attention sinks and a window, keys at their text or their cache positions."""

from __future__ import annotations

from confkv.policies.base import Policy
from confkv.policies.budget import Fixed
from confkv.policies.params import STORAGE, Entry, PolicyInfo, Value, at_least, storage
from confkv.policies.ranker import Recency

_PAPER = "https://arxiv.org/abs/2309.17453"


def protected(n: int, sinks: int) -> int:
    """How much of a window is protected: itself is what is kept; one position at least beside the sinks."""
    return max(1, min(32, n - sinks))


def _build(name: str, spec: str, p: dict[str, Value]) -> Policy:
    n, sinks = int(p["n"]), at_least(p, "sinks", 0)
    return Policy(name, spec, Fixed(n), Recency(), storage=storage(p), protect=protected(n, sinks), sinks=sinks)


def _build_relative(name: str, spec: str, p: dict[str, Value]) -> Policy:
    """Keys of the window keep their distance to the query; those before a gap are rotated across it at each step, from
    where they are stored, so that nothing accumulates. INT8 keys are not rotated, hence no ``int8`` here."""
    n, sinks = int(p["n"]), at_least(p, "sinks", 0)
    return Policy(name, spec, Fixed(n), Recency(), protect=protected(n, sinks), sinks=sinks, cache_positions=True)


ENTRIES = [
    Entry(
        PolicyInfo(
            "streaming",
            "keep the first `sinks` and the newest positions, N in all, at their positions in the text",
            {"n": 256, "sinks": 4, **STORAGE},
            _PAPER,
            positional="n",
        ),
        _build,
    ),
    Entry(
        PolicyInfo(
            "streaming-rel",
            "the same as the paper has it: attention sees each key at its index in the cache",
            {"n": 256, "sinks": 4},
            _PAPER,
            positional="n",
        ),
        _build_relative,
    ),
]
