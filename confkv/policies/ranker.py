"""Rankers: which competing positions are worth keeping. Higher scores stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # naming and listing policies must not cost torch's start-up
    from torch import Tensor


class Ranker(Protocol):
    """Scores positions from what the store recorded about them."""

    @property
    def needs_mass(self) -> bool:
        """Whether attention mass has to be recorded."""
        ...

    def update(self, mass: Tensor, seen_mass: Tensor, rows: int) -> Tensor:
        """New recorded mass from the mean mass of the last ``rows`` query rows; both ``[G, H, n]`` float32."""
        ...

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        """Scores ``[G, h, n]``.

        Args:
            mass: recorded mass ``[G, h, n]`` (h = 1 when the heads of a layer share one kept set).
            position: positions ``[G, h, n]`` float32.
            free: bool ``[G, h, n]``, True where the position competes.
            seen: positions in the session so far, in the numbering of ``position``.
        """
        ...


@dataclass(frozen=True)
class Recency:
    """Newest first: the sliding window."""

    @property
    def needs_mass(self) -> bool:
        return False

    def update(self, mass: Tensor, seen_mass: Tensor, rows: int) -> Tensor:
        return mass

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        return position


@dataclass(frozen=True)
class Composite:
    """CONF-KV's score ``alpha * a^ + (1 - alpha) * r^`` (arXiv 2605.24786, section 3).

    ``a`` is an exponential moving average of the attention mass a position receives, ``a <- decay a + (1 - decay) m``
    per query row; ``a^`` divides by the largest competing value of the layer (sinks would flatten every other value);
    ``r^ = (position + 1) / seen`` is 1 for the newest position.
    """

    alpha: float = 0.65
    decay: float = 0.9

    @property
    def needs_mass(self) -> bool:
        return self.alpha > 0

    def update(self, mass: Tensor, seen_mass: Tensor, rows: int) -> Tensor:
        # A chunk's mean mass counts as `rows` equal updates.
        return seen_mass.lerp(mass, 1.0 - self.decay**rows)

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        top = mass.where(free, 0.0).amax(-1, keepdim=True).clamp_min(1e-20)
        return mass * (self.alpha / top) + position * ((1 - self.alpha) / max(seen, 1))
