"""Slow mass: H2O's sum that forgets over a few budgets' worth of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.policies.h2o import HeavyHitters

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SlowMass(HeavyHitters):
    """``S_j <- d S_j + A[t, j]`` for every query row t, with ``d = exp(-1 / horizon)``.

    A sum without decay (H2O) keeps for ever what was once attended to; CONF-KV's moving average (arXiv 2605.24786,
    d = 0.9) has forgotten it after twenty tokens. In between, a position stays while some query of the last ``horizon``
    still wanted it. Rows that are recorded together, up to 64 of one forward pass, decay as one: their mean counts as
    so many equal rows.

    Attributes:
        horizon: tokens after which mass has fallen to 1/e.
    """

    horizon: float = 384.0

    def update(self, mass: Tensor, seen_mass: Tensor, rows: int) -> Tensor:
        kept = math.exp(-rows / self.horizon)
        return seen_mass * kept + mass * ((1.0 - kept) / (1.0 - math.exp(-1.0 / self.horizon)))
