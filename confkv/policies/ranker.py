"""Rankers: which competing positions are worth keeping. Higher scores stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # naming and listing policies must not cost torch's start-up
    from torch import Tensor

    from confkv.observe import View

#: Query rows at the end of a prefill chunk from which an averaged attention mass is taken.
MASS_ROWS = 32
#: Every query row of a forward pass, however many.
ALL_ROWS = 1 << 30


class Ranker:
    """Scores positions from what the store recorded about them, and states what has to be recorded.

    Shapes: G lanes (layers), H KV heads, Hq query heads, n slots; h is 1 where the heads of a layer share one kept set.
    """

    @property
    def rows(self) -> int:
        """Newest query rows of a forward pass that are recorded; 0: none."""
        return 0

    @property
    def needs_mass(self) -> bool:
        """Whether queries have to be recorded at all."""
        return self.rows > 0

    @property
    def every_chunk(self) -> bool:
        """Whether every forward pass is recorded, not just those that an eviction or the last chunk can follow."""
        return False

    @property
    def queries(self) -> int:
        """Newest queries that are kept, so that :meth:`signal` can attend with them."""
        return 0

    @property
    def columns(self) -> int:
        """Columns of a slot's metadata that :meth:`fold` fills."""
        return 0

    @property
    def norms(self) -> bool:
        """Whether the metadata of a slot has the norm of its value."""
        return False

    def update(self, mass: Tensor, seen_mass: Tensor, rows: int) -> Tensor:
        """New recorded mass from the mean mass of the last ``rows`` query rows; both ``[G, H, n]`` float32."""
        return mass

    def fold(self, probabilities: Tensor, columns: Tensor) -> None:
        """Fold rows of attention into a slot's own columns, in place.

        Args:
            probabilities: ``[G, Hq, w, n]`` float32, oldest row first; row r sees all but the last w - 1 - r slots.
            columns: ``[G, H, n, c]`` float32, a view of the metadata.
        """
        raise NotImplementedError

    def signal(self, view: View) -> Tensor | None:
        """What is scored, ``[G, H, n]`` float32, computed at an eviction; None: the recorded mass."""
        return None

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        """Scores ``[G, h, n]``; higher ones stay.

        Args:
            mass: recorded mass, or the signal, ``[G, h, n]``.
            position: positions ``[G, h, n]`` float32.
            free: bool ``[G, h, n]``, True where the position competes.
            seen: positions in the session so far, in the numbering of ``position``.
        """
        return mass

    def across_heads(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        """Scores that compare between the heads of a layer, ``[G, h, n]``; arguments as for :meth:`score`."""
        return self.score(mass, position, free, seen)


def by_rank(score: Tensor, position: Tensor) -> Tensor:
    """Scores replaced by their ranks; equal scores are ranked by position, so that the newer stays.

    Slot order is no position order, and pooled or counted scores have many ties.

    Args:
        score, position: ``[G, h, n]``.
    """
    import torch

    order = position.argsort(-1)
    ascending = score.gather(-1, order).argsort(dim=-1, stable=True)
    rank = torch.arange(score.shape[-1], device=score.device, dtype=torch.float32)
    return torch.empty_like(score).scatter_(-1, order.gather(-1, ascending), rank.expand(score.shape).contiguous())


@dataclass(frozen=True)
class Recency(Ranker):
    """Newest first: the sliding window."""

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        return position


@dataclass(frozen=True)
class Composite(Ranker):
    """CONF-KV's score ``alpha * a^ + (1 - alpha) * r^`` (arXiv 2605.24786, section 3).

    ``a`` is an exponential moving average of the attention mass a position receives, ``a <- decay a + (1 - decay) m``
    per query row; ``a^`` divides by the largest competing value of the layer (sinks would flatten every other value);
    ``r^ = (position + 1) / seen`` is 1 for the newest position.
    """

    alpha: float = 0.65
    decay: float = 0.9

    @property
    def rows(self) -> int:
        # So many newer rows outweigh all before them: 1 - 0.9^32 = 0.97.
        return MASS_ROWS if self.alpha > 0 else 0

    def update(self, mass: Tensor, seen_mass: Tensor, rows: int) -> Tensor:
        # A chunk's mean mass counts as `rows` equal updates.
        return seen_mass.lerp(mass, 1.0 - self.decay**rows)

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        top = mass.where(free, 0.0).amax(-1, keepdim=True).clamp_min(1e-20)
        return mass * (self.alpha / top) + position * ((1 - self.alpha) / max(seen, 1))
