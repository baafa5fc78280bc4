"""Budgets: how many competing positions (neither pinned nor protected by segment) each layer keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Budget(Protocol):
    """Positions to keep, over time (confidence) and depth (layer)."""

    @property
    def smallest(self) -> int | None:
        """Smallest number it ever returns; None when it never limits."""
        ...

    def at(self, confidence: float | None) -> int | None:
        """Nominal budget of this step; ``confidence`` is None during prefill. None: keep everything."""
        ...

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        """Budget of each of ``layers`` layers, first layer first, for a nominal budget."""
        ...


@dataclass(frozen=True)
class Unlimited:
    """Full KV."""

    @property
    def smallest(self) -> int | None:
        return None

    def at(self, confidence: float | None) -> int | None:
        return None

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        return [nominal] * layers


@dataclass(frozen=True)
class Fixed:
    """The same number of positions at every step."""

    n: int

    @property
    def smallest(self) -> int | None:
        return self.n

    def at(self, confidence: float | None) -> int | None:
        return self.n

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        return [nominal] * layers


@dataclass(frozen=True)
class ByConfidence:
    """CONF-KV (arXiv 2605.24786, section 3): few positions when confident, more when uncertain.

    Attributes:
        n_high: budget at high confidence (c >= tau).
        n_low: budget at low confidence, and during prefill, where there is no confidence yet.
        tau: the threshold.
    """

    n_high: int = 128
    n_low: int = 256
    tau: float = 0.7

    @property
    def smallest(self) -> int | None:
        return min(self.n_high, self.n_low)

    def at(self, confidence: float | None) -> int | None:
        return self.n_high if confidence is not None and confidence >= self.tau else self.n_low

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        return [nominal] * layers


@dataclass(frozen=True)
class Pyramid:
    """CONF-KV-L: ``N_l = max(floor, N * ratio^(l / L))``, deeper layers keep less (section 3, layered variant)."""

    base: ByConfidence
    floor: int = 96
    ratio: float = 0.5

    @property
    def smallest(self) -> int | None:
        return min(self.floor, self.base.n_high, self.base.n_low)

    def at(self, confidence: float | None) -> int | None:
        return self.base.at(confidence)

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        # A floor above the nominal budget must not raise it.
        floor = min(self.floor, nominal)
        return [max(floor, round(nominal * self.ratio ** (layer / layers))) for layer in range(layers)]
