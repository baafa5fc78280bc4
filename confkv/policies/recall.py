"""Recall: when archived positions come back, in pages of which size, and where the archive keeps them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from confkv.errors import PolicyError
from confkv.policies.budget import Past

Gate = Literal["confidence", "always", "random"]
#: Keeps the random looks' draws apart from the random recalls'.
_LOOKS = 1 << 63


@dataclass(frozen=True)
class Recall:
    """Evicted positions go to an archive and come back while the model is uncertain.

    Scoring small pages of old keys by one vector each follows Quest (arXiv 2406.10774), with the centre of a page's
    keys in place of their bounds; deciding by the model's confidence when to do so is confkv's.

    Attributes:
        look: act on the distribution just computed, where it is among the least confident: bring pages back for the
            queries of its token and run that token again. On other steps with recall, and without ``look`` on all,
            pages come back after the step, for the next token.
        gate: what makes a step one with recall: ``confidence`` below tau, ``always``, or ``random`` steps (the
            ablation's control). It sets the budget too: that of an uncertain step where it opens, else that of a
            confident one.
        looks: share of decode steps that shall be looks: those of a confidence below this quantile of the session's
            last 256, and below tau. In the first 8 steps tau alone decides. 1: every step with recall is a look.
        look_gate: ``confidence``, or ``random`` steps, a share ``looks`` of all (the ablation's control).
        tau: confidence below which a step is uncertain.
        rate, seed: share of steps that the random gate picks, and its seed.
        page: positions per page.
        storage: ``int8`` codes, or ``fp`` for the model's dtype.
        megabytes: most that the archive may hold, in 10^6 bytes; past it the oldest pages are dropped.
        reads: 1: within each prefill pass, every layer gets pages for the queries of that pass before they attend;
            2: in decode steps too, whatever the gate says of them; 0: in neither.
        index: where the page centres live: ``host`` beside the archive (queries travel), or ``device``.
    """

    look: bool = False
    gate: Gate = "confidence"
    tau: float = 0.7
    rate: float = 0.5
    seed: int = 0
    looks: float = 0.25
    look_gate: Literal["confidence", "random"] = "confidence"
    page: int = 4
    storage: Literal["int8", "fp"] = "int8"
    megabytes: float = 1024.0
    index: Literal["host", "device"] = "host"
    reads: int = 1

    def __post_init__(self) -> None:
        if self.page < 1:
            raise PolicyError(f"page={self.page} must be at least 1")
        if self.reads not in (0, 1, 2, 3):
            raise PolicyError(f"reads={self.reads} must be 0, 1 (prefill) or 2 (prefill and decode steps)")
        if not 0.0 <= self.rate <= 1.0:
            raise PolicyError(f"rate={self.rate:g} must lie between 0 and 1")
        if not 0.0 <= self.looks <= 1.0:
            raise PolicyError(f"looks={self.looks:g} must lie between 0 and 1")
        if not 0.0 <= self.megabytes < float("inf"):
            raise PolicyError(f"archive_mb={self.megabytes:g} must be a number of megabytes, 0 or more")

    def fires(self, confidence: float, seen: int) -> bool:
        """Whether the decode step that fed the ``seen``-th token is one with recall.

        The random gate has no state: the same step of the same session always decides alike, so that a resumed
        session continues as an uninterrupted one would.
        """
        if self.gate == "always":
            return True
        if self.gate == "random":
            return random.Random((self.seed << 32) + seen).random() < self.rate
        return confidence < self.tau

    def looks_again(self, confidence: float, past: Past, seen: int) -> bool:
        """Whether the token that was fed as the ``seen``-th is run again.

        Args:
            confidence: of the distribution just computed.
            past: confidences of the decode steps before it, before any second look.
        """
        if not self.look or not self.looks:
            return False
        if self.look_gate == "random":
            return random.Random(_LOOKS + (self.seed << 32) + seen).random() < self.looks
        if not self.fires(confidence, seen):
            return False
        quantile = past.quantile(self.looks) if self.looks < 1.0 else None
        return quantile is None or confidence < quantile
