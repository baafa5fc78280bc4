"""Mean mass: the attention a position received from the queries that could see it, alone or with its value's norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confkv.policies.h2o import HeavyHitters

if TYPE_CHECKING:
    from torch import Tensor

    from confkv.observe import View


@dataclass(frozen=True)
class MeanMass(HeavyHitters):
    """``sum_t A[t, j] / (seen - j)``: H2O's sum over the number of query rows that could see position j.

    A sum is the larger the longer a position was held, whatever it is worth now; the mean favours neither end. After a
    re-basing, which makes positions compact, rows before it are counted as too few.

    Attributes:
        values: multiply, head by head, by ``|v_j|_1``: what a position adds to the output is its mass times its value
            vector (VATP, arXiv 2406.12335, section 3, there with H2O's sum; sinks, whose values are small and whose
            mass is large, are exempt there too). The norm is that of the value as it was computed, before INT8.
    """

    values: bool = False

    @property
    def norms(self) -> bool:
        return self.values

    def signal(self, view: View) -> Tensor | None:
        return view.mass() * view.value_norms() if self.values else None

    def score(self, mass: Tensor, position: Tensor, free: Tensor, seen: int) -> Tensor:
        return mass / (seen - position).clamp_min(1.0)
