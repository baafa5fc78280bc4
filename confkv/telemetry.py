"""What a session reports about itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TurnStats:
    """Cost of one :meth:`Session.extend`. Times in seconds; ``kept`` is the mean over layers.

    ``recalled`` counts (layer, position) pairs that came back from the archive for what arrived.
    """

    tokens: int
    seconds_prefill: float
    seconds_manage: float
    kept: float
    seen: int
    recalled: int = 0


@dataclass(frozen=True)
class Token:
    """One sampled token.

    Attributes:
        id: vocabulary index.
        text: the piece of text it completes ("" inside a multi-byte character and for stop tokens).
        confidence: confidence of the distribution it was sampled from.
        budget: competing positions allowed at this step, None for full KV.
        kept: positions held when it was sampled, mean over layers.
        seconds: wall time of the step, management included.
    """

    id: int
    text: str
    confidence: float
    budget: int | None
    kept: float
    seconds: float


@dataclass(frozen=True)
class StepRecord:
    """One decoded token, for figures and traces.

    ``bytes`` are bytes allocated for KV on the device at that step. ``recalled`` counts (layer, position) pairs that
    came back from the archive within the step, ``looked`` tells whether its token was run again with them.
    """

    turn: int
    confidence: float
    budget: int | None
    kept: float
    bytes: int
    seconds: float
    recalled: int = 0
    looked: bool = False


@dataclass(frozen=True)
class SessionStats:
    """State of a session.

    Attributes:
        tokens_seen: logical length, every token that was ever fed.
        kept_per_layer: physical length of each layer, sliding-window layers included; the mean over its heads, to the
            nearest, where heads have budgets of their own.
        bytes_by_kind: bytes allocated: ``fp`` (keys and values in the model's dtype), ``int8`` (codes), ``scales``,
            ``meta`` (mass, position, hold), ``ring`` (sliding-window layers), ``index`` (page centres of the archive
            where they live on the device).
        bytes, peak_bytes, mean_bytes: their sum now, at its highest, and averaged over forward passes. All of these
            are bytes of the device.
        host_bytes: bytes allocated for the archive in host memory.
        full_bytes: what full KV holds at this logical length, without any slack.
        evictions: (layer, position) pairs dropped, the mean over heads where they have budgets of their own.
        rebases: times the survivors were moved to compact positions.
        recalls: decode steps, goals and observations for which positions came back from the archive.
        recalled: (layer, position) pairs that came back for them, the mean over heads where each head has its own.
        looks: tokens that were run again with recalled positions.
        fetched: (layer, position) pairs that came back within prefill passes, but for those of goals and observations,
            which ``recalled`` has.
        due, exchanged: layers of decode passes that could exchange what they hold for pages, and those that did: all of
            them unless each layer has a gate of its own.
        seconds: wall time by ``prefill``, ``decode`` (model and sampling), ``manage`` (confidence, mass, ranking,
            compaction, quantising, archiving), ``recall`` (choosing pages and bringing them back), ``look`` (forward
            passes that ran a token again).
    """

    tokens_seen: int
    kept_per_layer: list[int]
    bytes_by_kind: dict[str, int]
    bytes: int
    peak_bytes: int
    mean_bytes: float
    full_bytes: int
    evictions: int
    rebases: int
    decode_steps: int
    seconds: dict[str, float] = field(default_factory=dict)
    host_bytes: int = 0
    recalls: int = 0
    recalled: int = 0
    looks: int = 0
    fetched: int = 0
    due: int = 0
    exchanged: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)
