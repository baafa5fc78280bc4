"""Intervals and correlations: percentile bootstrap, Wilson, Pearson, Spearman."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tasks.records import Record

Array = np.ndarray[Any, Any]


class Interval(Record):
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float


def bootstrap(
    statistic: Callable[[Array], float], *columns: Array, draws: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval | None:
    """Percentile bootstrap over rows (Efron 1979); columns are resampled together, which keeps pairs paired.

    Args:
        statistic: of an array ``[n, len(columns)]``.
        columns: equally long.

    Returns:
        None where there are fewer than two rows: nothing can be resampled.
    """
    table = np.stack([np.asarray(column, dtype=np.float64) for column in columns], 1)
    count = len(table)
    if count < 2:
        return None
    rng = np.random.default_rng(seed)
    values = [statistic(table[rng.integers(0, count, count)]) for _ in range(draws)]
    values = [value for value in values if np.isfinite(value)]
    if not values:
        return None
    edge = (1 - level) / 2
    low, high = np.quantile(values, [edge, 1 - edge])
    return Interval(value=float(statistic(table)), low=float(low), high=float(high))


def wilson(successes: int, count: int) -> Interval:
    """A proportion with its 95% Wilson score interval (Wilson 1927), which has a width at 0 and 1 too; count > 0."""
    z, share = 1.959964, successes / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return Interval(value=share, low=max(0.0, centre - half), high=min(1.0, centre + half))


def pearson(x: Array, y: Array) -> float:
    """Linear correlation; NaN where one of the two does not vary."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum() / scale) if scale else float("nan")


def ranks(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def spearman(x: Array, y: Array) -> float:
    """Rank correlation: Pearson's of the ranks, ties averaged."""
    return pearson(ranks(x), ranks(y))
