"""Two ways of playing the same episodes, compared pair by pair (McNemar 1947, in its exact binomial form)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from tasks.records import Record

K = TypeVar("K")


class Paired(Record):
    """Episodes that both ways have played.

    Attributes:
        both, neither: solved by both, by none.
        only_this, only_other: solved by one of the two. They alone tell which is better.
        p: two-sided exact p-value of "neither is better".
    """

    both: int
    only_this: int
    only_other: int
    neither: int
    p: float

    @property
    def pairs(self) -> int:
        return self.both + self.only_this + self.only_other + self.neither


def exact_p(b: int, c: int) -> float:
    """Two-sided p-value of ``b`` against ``c`` discordant pairs: a fair coin, 1 where there are none."""
    n = b + c
    tail = sum(math.comb(n, i) for i in range(min(b, c) + 1))
    return min(1.0, 2 * tail / 2**n)


def compare(this: Mapping[K, bool], other: Mapping[K, bool]) -> Paired | None:
    """Compare outcomes by what they were outcomes of; None where the two share nothing."""
    shared = [key for key in this if key in other]
    if not shared:
        return None
    counts = {(mine, theirs): 0 for mine in (True, False) for theirs in (True, False)}
    for key in shared:
        counts[this[key], other[key]] += 1
    only_this, only_other = counts[True, False], counts[False, True]
    return Paired(
        both=counts[True, True],
        only_this=only_this,
        only_other=only_other,
        neither=counts[False, False],
        p=exact_p(only_this, only_other),
    )
