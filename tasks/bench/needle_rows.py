"""What ``confkv bench needle`` reports: answers, their accuracy by policy and length, and the tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from tasks.bench.output import markdown
from tasks.bench.results import Row
from tasks.bench.statistics import Interval, wilson
from tasks.records import Record


class Answer(Row):
    """One cell: what was asked for, what came, and what the cache held.

    ``evictions`` were made by the end of the answer; bytes are the session's mean and peak.
    """

    kind: str
    length: int
    depth: float
    needle: int
    tokens: int
    expected: list[str]
    answer: str
    correct: bool
    mean_bytes: float
    peak_bytes: int
    host_bytes: int
    evictions: int


class LengthRow(Record):
    """A policy at one length.

    ``of_full`` is its accuracy over full's; ``mean_ratio`` and ``peak_ratio`` are its device bytes over full's, each of
    the sessions' mean and of the largest peak. All three are None where full was not asked (``of_full`` also where full
    found nothing).
    """

    length: int
    spec: str
    accuracy: float
    interval: Interval
    asked: int
    of_full: float | None
    mean_bytes: float
    mean_ratio: float | None
    peak_bytes: int
    peak_ratio: float | None
    host_bytes: int
    seconds: float


class NeedleRow(Record):
    """A policy over the whole grid: ``accuracy`` with its Wilson interval, and by part of the grid."""

    policy: str
    accuracy: float
    interval: Interval
    asked: int
    by_kind: dict[str, float]
    by_length: dict[str, float]
    by_depth: dict[str, float]
    mean_bytes: float
    peak_bytes: int
    host_bytes: int
    seconds: float
    lengths: list[LengthRow] = Field(default_factory=list)


def accuracy(answers: Sequence[Answer]) -> float:
    return sum(answer.correct for answer in answers) / len(answers)


def summarise(spec: str, answers: list[Answer], full: Sequence[Answer]) -> NeedleRow:
    def by(name: str) -> dict[str, float]:
        groups: dict[str, list[Answer]] = {}
        for answer in answers:
            groups.setdefault(f"{getattr(answer, name)}", []).append(answer)
        return {key: accuracy(group) for key, group in groups.items()}

    return NeedleRow(
        policy=spec,
        accuracy=accuracy(answers),
        interval=wilson(sum(answer.correct for answer in answers), len(answers)),
        asked=len(answers),
        by_kind=by("kind"),
        by_length=by("length"),
        by_depth=by("depth"),
        mean_bytes=mean_bytes(answers),
        peak_bytes=max(answer.peak_bytes for answer in answers),
        host_bytes=max(answer.host_bytes for answer in answers),
        seconds=sum(answer.seconds for answer in answers),
        lengths=[
            _at_length(
                length,
                [answer for answer in answers if answer.length == length],
                [answer for answer in full if answer.length == length],
            )
            for length in dict.fromkeys(answer.length for answer in answers)
        ],
    )


def _at_length(length: int, answers: list[Answer], full: list[Answer]) -> LengthRow:
    found, mean = accuracy(answers), mean_bytes(answers)
    most = max(answer.peak_bytes for answer in answers)
    reached = accuracy(full) if full else 0.0
    return LengthRow(
        length=length,
        spec=answers[0].identity.policy,
        accuracy=found,
        interval=wilson(sum(answer.correct for answer in answers), len(answers)),
        asked=len(answers),
        of_full=found / reached if reached else None,
        mean_bytes=mean,
        mean_ratio=mean / mean_bytes(full) if full else None,
        peak_bytes=most,
        peak_ratio=most / max(answer.peak_bytes for answer in full) if full else None,
        host_bytes=max(answer.host_bytes for answer in answers),
        seconds=sum(answer.seconds for answer in answers),
    )


def mean_bytes(answers: Sequence[Answer]) -> float:
    return sum(answer.mean_bytes for answer in answers) / len(answers)


def heat(answers: Sequence[Answer], lengths: list[int], depths: list[float]) -> np.ndarray[Any, Any]:
    out = np.full((len(depths), len(lengths)), np.nan)
    for i, depth in enumerate(depths):
        for j, length in enumerate(lengths):
            cell = [answer for answer in answers if answer.depth == depth and answer.length == length]
            out[i, j] = accuracy(cell) if cell else np.nan
    return out


def table(rows: Sequence[NeedleRow]) -> str:
    """The rows over the whole grid, and below them by length, where they know it."""
    kinds, lengths = list(rows[0].by_kind), list(rows[0].by_length)
    columns = ["policy", "found", "95%", "asked", *kinds, *(f"{n} tokens" for n in lengths), "mean MB", "host MB"]
    cells: list[list[object]] = []
    for row in rows:
        cells.append(
            [
                f"`{row.policy}`",
                f"{row.accuracy:.0%}",
                f"{row.interval.low:.0%} to {row.interval.high:.0%}",
                row.asked,
                *(f"{row.by_kind[kind]:.0%}" for kind in kinds),
                *(f"{row.by_length[length]:.0%}" for length in lengths),
                row.mean_bytes / 1e6,
                row.host_bytes / 1e6,
            ]
        )
    below = _by_length(rows)
    return markdown(columns, cells) + (f"\n{below}" if below else "")


def _by_length(rows: Sequence[NeedleRow]) -> str:
    columns = ["policy", "tokens", "spec", "found", "95%", "asked", "of full", "mean MB", "of full's"]
    columns += ["peak MB", "of full's", "host MB", "seconds"]
    cells: list[list[object]] = []
    for length in dict.fromkeys(part.length for row in rows for part in row.lengths):
        for row in rows:
            cells += [
                [
                    f"`{row.policy}`",
                    part.length,
                    f"`{part.spec}`",
                    f"{part.accuracy:.1%}",
                    f"{part.interval.low:.0%} to {part.interval.high:.0%}",
                    part.asked,
                    None if part.of_full is None else f"{part.of_full:.1%}",
                    part.mean_bytes / 1e6,
                    None if part.mean_ratio is None else f"{part.mean_ratio:.4f}",
                    part.peak_bytes / 1e6,
                    None if part.peak_ratio is None else f"{part.peak_ratio:.4f}",
                    part.host_bytes / 1e6,
                    round(part.seconds, 1),
                ]
                for part in row.lengths
                if part.length == length
            ]
    return markdown(columns, cells) if cells else ""
