"""Recall: when archived positions come back, in pages of which size, and where the archive keeps them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from confkv.errors import PolicyError

Gate = Literal["confidence", "always", "random", "missing", "layers"]


@dataclass(frozen=True)
class Recall:
    """Evicted positions go to an archive and come back while the model is uncertain.

    Scoring small pages of old keys by one vector each follows Quest (arXiv 2406.10774), with the centre of a page's
    keys in place of their bounds; deciding by the model's confidence when to do so is confkv's.

    Attributes:
        look: run an uncertain token again, with pages for its own queries, unless its pass had them already.
        gate: what makes a decode step uncertain: ``confidence`` below tau, ``always``, or ``random`` steps (the
            ablation's control). The pass after such a step gets pages for its own queries, layer by layer, before they
            attend; so does, with ``look``, the step itself. The gate sets the budget too: that of an uncertain step
            where it opens, else that of a confident one.
            ``missing`` and ``layers`` open at every step, and each layer then has a gate of its own: it exchanges where
            its queries would give more than ``missing`` of their attention to absent pages
            (:func:`confkv.missing.missing`), or, as the control, at random. Prefill passes and ``opening`` are not
            gated.
        missing: share of attention, 0 to 1.
        tau: confidence below which a step is uncertain.
        rate, seed: share that is picked at random, of steps (``random``) or of (layer, step) pairs (``layers``), and
            the seed.
        question: tokens of each prefill pass near the end of a goal or an observation; 0: as many as of any other. A
            chunk gets what its tokens need on average, and what is asked for is one thing.
        opening: decode steps after a goal or an observation that recall whatever the gate says: an answer that misses
            what was evicted is often given with confidence.
        share: part of what competes that may be exchanged for pages, the worst by the policy's ranker. The rest is what
            many queries asked for, and would be asked for again.
        page: positions per page.
        storage: ``int8`` codes, or ``fp`` for the model's dtype.
        megabytes: most that the archive may hold, in 10^6 bytes; past it the oldest pages are dropped.
        reads: prefill passes get pages for their own queries too.
        index: where the page centres live: ``host`` beside the archive (queries travel), or ``device``.
    """

    look: bool = False
    gate: Gate = "confidence"
    tau: float = 0.7
    missing: float = 0.1
    rate: float = 0.5
    seed: int = 0
    question: int = 1
    opening: int = 32
    share: float = 0.5
    page: int = 2
    storage: Literal["int8", "fp"] = "int8"
    megabytes: float = 1024.0
    index: Literal["host", "device"] = "host"
    reads: bool = True

    def __post_init__(self) -> None:
        if self.page < 1:
            raise PolicyError(f"page={self.page} must be at least 1")
        if self.question < 0 or self.opening < 0:
            raise PolicyError(f"question={self.question} and opening={self.opening} must not be negative")
        if not 0.0 <= self.missing <= 1.0:
            raise PolicyError(f"missing={self.missing:g} must lie between 0 and 1")
        if not 0.0 <= self.rate <= 1.0:
            raise PolicyError(f"rate={self.rate:g} must lie between 0 and 1")
        if not 0.0 <= self.share <= 1.0:
            raise PolicyError(f"share={self.share:g} must lie between 0 and 1")
        if not 0.0 <= self.megabytes < float("inf"):
            raise PolicyError(f"archive_mb={self.megabytes:g} must be a number of megabytes, 0 or more")

    def fires(self, confidence: float, seen: int) -> bool:
        """Whether the distribution after the token with the index ``seen`` is one to recall after.

        The random gate has no state: the same step of the same session always decides alike, so that a resumed
        session continues as an uninterrupted one would.
        """
        if self.gate == "always" or self.by_layer:
            return True
        if self.gate == "random":
            return random.Random((self.seed << 32) + seen).random() < self.rate
        return confidence < self.tau

    @property
    def by_layer(self) -> bool:
        """Whether each layer has a gate of its own in decoding."""
        return self.gate in ("missing", "layers")

    def picks(self, lane: int, seen: int) -> bool:
        """Whether ``layers`` picks a lane for the token with the index ``seen``; without state, as :meth:`fires`."""
        return random.Random(f"{self.seed} {seen} {lane}").random() < self.rate
