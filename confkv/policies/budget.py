"""Budgets: how many competing positions (neither pinned nor protected by segment) each layer keeps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # naming and listing policies must not cost torch's start-up
    from torch import Tensor

#: Confidences that a session remembers.
_MEMORY = 256
#: Decode steps after which their quantiles are trusted.
_WARM = 8


@dataclass
class Past:
    """Confidences of the decode steps before this one, which belong to a session.

    Attributes:
        values: the newest 256, oldest first.
        count: how many there were.
    """

    values: list[float] = field(default_factory=list)
    count: int = 0

    def add(self, confidence: float) -> None:
        self.values.append(confidence)
        self.count += 1
        if len(self.values) > _MEMORY:
            del self.values[0]

    def quantile(self, below: float) -> float | None:
        """The confidence that a share ``below`` of those remembered are below; None while they are too few."""
        if len(self.values) < _WARM:
            return None
        return sorted(self.values)[min(round(below * len(self.values)), len(self.values) - 1)]


def rounded(values: list[float], total: int) -> list[int]:
    """Whole numbers that add up to ``total``, as the values do; what is cut off goes to the largest remainders."""
    whole = [int(x + 1e-6) for x in values]
    by_rest = sorted(range(len(values)), key=lambda i: (round(whole[i] - values[i], 6), i))
    for i in by_rest[: total - sum(whole)]:
        whole[i] += 1
    return whole


class Budget:
    """Positions to keep, over time (confidence) and depth (layer)."""

    @property
    def smallest(self) -> int | None:
        """Smallest number it ever returns; None when it never limits."""
        raise NotImplementedError

    @property
    def uneven(self) -> bool:
        """Whether layers may differ in what they keep, so that each is stored in buffers of its own size."""
        return self.allocates

    @property
    def allocates(self) -> bool:
        """Whether the layers' shares follow the attention seen (:meth:`allocate`)."""
        return False

    @property
    def threshold(self) -> float | None:
        """Confidence from which on a step counts as confident; None where the budget does not ask for it."""
        return None

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        """Nominal budget of this step. None: keep everything.

        Args:
            confidence: of this step; None during prefill.
            past: confidences of the decode steps before it.
        """
        raise NotImplementedError

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        """Budget of each of ``layers`` layers, first layer first, for a nominal budget; the most that each may get
        where the shares are allocated."""
        return [nominal] * layers

    def allocate(self, mass: Tensor) -> list[int]:
        """Budget of each layer from the attention mass ``[G, Hq, n]`` (float32, >= 0) of its newest queries."""
        raise NotImplementedError


@dataclass(frozen=True)
class Unlimited(Budget):
    """Full KV."""

    @property
    def smallest(self) -> int | None:
        return None

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        return None


@dataclass(frozen=True)
class Fixed(Budget):
    """The same number of positions at every step."""

    n: int

    @property
    def smallest(self) -> int | None:
        return self.n

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        return self.n


@dataclass(frozen=True)
class ByConfidence(Budget):
    """CONF-KV (arXiv 2605.24786, section 3): few positions when confident, more when uncertain.

    Attributes:
        n_high: budget at high confidence (c >= tau).
        n_low: budget at low confidence, and during prefill, where there is no confidence yet.
        tau: the threshold.
        adaptive: share of decode steps that shall count as confident. Where it is above 0, the threshold is the
            quantile of the session's last 256 confidences that leaves this share at or above it; ``tau`` serves the
            first 8 steps.
        shuffle: ablation control. Where it is above 0, each step takes the confidence of an earlier step, drawn with
            this seed: budgets follow the same distribution, but no longer the step they were meant for.
    """

    n_high: int = 128
    n_low: int = 256
    tau: float = 0.7
    adaptive: float = 0.0
    shuffle: int = 0

    @property
    def smallest(self) -> int | None:
        return min(self.n_high, self.n_low)

    @property
    def threshold(self) -> float | None:
        return self.tau

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        tau = self.tau
        if confidence is not None and past is not None:
            if self.shuffle and past.values:
                draw = random.Random(self.shuffle * 1_000_003 + past.count)
                confidence = draw.choice(past.values)
            if self.adaptive and (quantile := past.quantile(1.0 - self.adaptive)) is not None:
                tau = quantile
        return self.n_high if confidence is not None and confidence >= tau else self.n_low


@dataclass(frozen=True)
class Pyramid(Budget):
    """CONF-KV-L: ``N_l = max(floor, N * ratio^(l / L))``, deeper layers keep less (section 3, layered variant)."""

    base: ByConfidence
    floor: int = 96
    ratio: float = 0.5

    @property
    def smallest(self) -> int | None:
        return min(self.floor, self.base.n_high, self.base.n_low)

    @property
    def threshold(self) -> float | None:
        return self.base.threshold

    @property
    def uneven(self) -> bool:
        return self.ratio < 1.0

    def at(self, confidence: float | None, past: Past | None = None) -> int | None:
        return self.base.at(confidence, past)

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        # A floor above the nominal budget must not raise it.
        floor = min(self.floor, nominal)
        return [max(floor, round(nominal * self.ratio ** (layer / layers))) for layer in range(layers)]
