"""Policies side by side on the same segments at matched mean device bytes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TypeVar

import numpy as np

from confkv.policies import Policy
from tasks.bench.decode import Job, Run, decode, identity, slots_for
from tasks.bench.matching import Candidate, candidate, fill, solve
from tasks.bench.model import Model
from tasks.bench.progress import Progress
from tasks.bench.results import ResultLog
from tasks.bench.statistics import Array, Interval, bootstrap
from tasks.bench.text import Segment
from tasks.errors import TaskError
from tasks.records import Record

TOLERANCE = 0.02

Answer = TypeVar("Answer")


class PolicyRow(Record):
    """A policy over all segments.

    Attributes:
        policy: as asked for. spec: at the size that was solved, in full.
        perplexity: exp of the mean negative log-likelihood over all scored tokens.
        above_full: perplexity minus that of ``full``, with its bootstrap interval over segments (None for one segment).
        gap_closed: (window - policy) / (window - full) in perplexity; None where window is no worse than full.
        mean_bytes: mean over segments of the session's mean allocated device bytes; ``bytes_ratio`` is over the match.
        matched: whether that ratio is within 2%; None where the policy has no size (``full``) or nothing is matched.
        peak_bytes, host_bytes, full_bytes: largest over segments.
        evictions, recalls, looks, tokens, seconds: sums over segments.
        confident_share: share of steps at or above the policy's tau. kept: positions held, mean.
        exchanged_share: mean over segments of :attr:`Run.exchanged`; None where nothing was due.
        by_text: perplexity on each text.
    """

    policy: str
    spec: str
    perplexity: float
    above_full: Interval | None
    gap_closed: float | None
    mean_bytes: float
    bytes_ratio: float | None
    matched: bool | None
    peak_bytes: int
    host_bytes: int
    full_bytes: int
    evictions: int
    recalls: int
    looks: int
    confident_share: float
    kept: float
    tokens: int
    seconds: float
    by_text: dict[str, float]
    exchanged_share: float | None = None


class Pair(Record):
    """Perplexity of ``a`` minus that of ``b`` with its bootstrap interval over segments."""

    a: str
    b: str
    difference: Interval


@dataclass(frozen=True)
class Asked:
    """Runs to make: a policy, what the table calls it, the slots it is allocated (0: as it grows), and over what."""

    policy: Policy
    label: str
    slots: int
    segments: tuple[Segment, ...]
    tokens: int


class Wanted(Exception):
    """A question cannot be answered before these runs are made."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked.label)
        self.asked = asked


@dataclass
class Bench:
    """Runs of one model over given segments, measured once each.

    Attributes:
        prefix: tokens prefilled before the first scored one. tokens: scored tokens a segment.
        calibrate: tokens of a calibration run; never more than ``tokens``.
        together: runs decoded at once, at most.
    """

    model: Model
    segments: list[Segment]
    prefix: int
    tokens: int
    calibrate: int
    log: ResultLog[Run]
    progress: Progress
    together: int = 16
    notes: list[str] = field(default_factory=list)
    _slots: dict[tuple[str, float], int] = field(default_factory=dict)

    def measure(self, asked: Sequence[Asked]) -> None:
        """Make runs, those that are on file left out, as many at once as go together.

        What a run is decoded beside moves its rounding, no more: the figures of a resumed bench are those of an
        uninterrupted one but for that.
        """
        for tokens in sorted({one.tokens for one in asked}):
            jobs = {self._key(one, s): (one, s) for one in asked if one.tokens == tokens for s in one.segments}
            missing = [key for key in jobs if key not in self.log.rows]
            for first in range(0, len(missing), self.together):
                self._measure_together([jobs[key] for key in missing[first : first + self.together]], tokens)

    def _measure_together(self, batch: list[tuple[Asked, Segment]], tokens: int) -> None:
        names = list(dict.fromkeys(one.label for one, _ in batch))
        self.progress.begin(names[0] if len(names) == 1 else f"{len(batch)} runs", tokens * len(batch))
        jobs = [Job(one.policy, segment, one.slots) for one, segment in batch]
        done = decode(self.model, jobs, self.prefix, tokens, self.progress.advance)
        self.log.add(*done)
        for (one, segment), run in zip(batch, done, strict=True):
            self.progress.say(
                f"{one.label} [{one.policy.spec}] {segment.text.name}+{segment.start}: "
                f"perplexity {math.exp(run.nll / tokens):.3f}, mean {run.mean_bytes / 1e6:.2f} MB, "
                f"kept {run.kept:.0f}, {run.seconds:.1f} s" + (f", outgrew {one.slots} slots" if run.grown else "")
            )

    def _key(self, one: Asked, segment: Segment) -> str:
        return identity(self.model, one.policy, segment, self.prefix, one.tokens, one.slots).key

    def ask(
        self,
        policy: Policy,
        label: str,
        slots: int = 0,
        segments: Sequence[Segment] | None = None,
        tokens: int | None = None,
    ) -> list[Run]:
        """A policy's runs on every segment (or on those named).

        Raises:
            Wanted: they are not on file yet.
        """
        chosen = tuple(self.segments if segments is None else segments)
        one = Asked(policy, label, slots, chosen, self.tokens if tokens is None else tokens)
        keys = [self._key(one, segment) for segment in chosen]
        if any(key not in self.log.rows for key in keys):
            raise Wanted(one)
        return [self.log.rows[key] for key in keys]

    def answers(self, questions: Sequence[Callable[[], Answer]]) -> list[Answer | TaskError]:
        """What each question comes to, asked again until it needs no more runs.

        The runs that all of them wait for are made together.
        """
        done: dict[int, Answer | TaskError] = {}
        while len(done) < len(questions):
            wanted = []
            for i, question in enumerate(questions):
                if i not in done:
                    try:
                        done[i] = question()
                    except Wanted as more:
                        wanted.append(more.asked)
                    except TaskError as error:
                        done[i] = error
            self.measure(wanted)
        return [done[i] for i in range(len(questions))]

    def slots(self, policy: Policy, target: float) -> int:
        """:func:`slots_for` on the first segment, computed once."""
        key = (policy.spec, target)
        if key not in self._slots:
            self._slots[key] = slots_for(self.model, policy, self.segments[0], self.prefix, target)
        return self._slots[key]

    def filling(self, policy: Policy, slots: int) -> int:
        """The size of a fixed budget at which the layer with most, and the newest position, fill the slots."""
        lanes = sum(window is None for window in self.model.engine(policy).windows)
        nominal = policy.budget.at(None)
        assert nominal is not None
        return max(1, int((slots - 1) * nominal / max(policy.budget.per_layer(nominal, lanes))))

    def reference(self, match: Candidate) -> list[Run]:
        """The match's runs."""
        return self.ask(match.policy, match.label, _reference_slots(match))

    def matched(self, chosen: Candidate, match: Candidate) -> tuple[Policy, list[Run]]:
        """The policy at the size that meets the match's mean bytes, and its runs; as written where it has no size.

        The store is allocated for the match's bytes at once, and the size is the largest that never outgrows them.

        Raises:
            Wanted: a run that it depends on was not measured yet.
        """
        at, size, label = chosen.at, chosen.size, chosen.label
        if at is None or size is None:
            return chosen.policy, self.ask(chosen.policy, label)
        target = mean_bytes(self.reference(match))
        if chosen.policy.spec == match.policy.spec:
            return chosen.policy, self.reference(match)
        first, calibrate = self.segments[0], min(self.tokens, max(self.calibrate, 2 * (match.size or 0)))
        slots = self.slots(chosen.policy, target)
        guess = match.size or size
        for _ in range(3):
            if not slots:
                break

            def whole(size: int, slots: int = slots) -> tuple[int, bool]:
                return _used(self.ask(at(size), label, slots))

            def short(size: int, slots: int = slots) -> tuple[int, bool]:
                return _used(self.ask(at(size), f"calibrating {label}", slots, [first], calibrate))

            guess = self.filling(chosen.policy, slots) if chosen.single else guess
            if not chosen.single and calibrate < self.tokens:
                guess = fill(short, slots, guess) or guess
            found = fill(whole, slots, guess)
            if found is None:
                break
            runs = self.ask(at(found), label, slots)
            ratio = mean_bytes(runs) / target
            if abs(ratio - 1) <= TOLERANCE:
                return at(found), runs
            slots, guess = int(slots / ratio), found  # state beside the slots has to be paid for as well

        def grown(size: int) -> float:
            return mean_bytes(self.ask(at(size), label))

        solved = solve(grown, target, guess, tolerance=TOLERANCE, accept=0.001)
        if not solved.matched:
            self.notes.append(
                f"{label}: no size within {TOLERANCE:.0%} of the match was found; the closest, "
                f"{at(solved.size).spec}, holds {solved.ratio:.3f} of its bytes"
            )
        return at(solved.size), self.ask(at(solved.size), label)


def _reference_slots(match: Candidate) -> int:
    """The match's store is allocated for its (smallest) budget and the newest position."""
    smallest = match.policy.budget.smallest
    return smallest + 1 if smallest is not None and not match.policy.storage.int8 else 0


def _used(runs: Sequence[Run]) -> tuple[int, bool]:
    return max(run.used for run in runs), any(run.grown for run in runs)


def compare(
    bench: Bench, candidates: Sequence[Candidate], match: Candidate | None
) -> tuple[list[PolicyRow], list[Pair]]:
    """Every candidate, and ``full`` and ``window`` beside them, at the match's mean bytes (None: as written).

    Raises:
        TaskError: the match has no size.
    """
    if match is not None and match.size is None:
        raise TaskError(f"--match {match.label} has no size to match; name one that has, as in --match window:512")
    chosen, window = _lined_up(candidates, match)
    target = None
    if match is not None:
        (reference,) = bench.answers([lambda: bench.reference(match)])
        assert not isinstance(reference, TaskError)
        target = mean_bytes(reference)

    def question(c: Candidate) -> Callable[[], tuple[Policy, list[Run]]]:
        return lambda: bench.matched(c, match) if match else (c.policy, bench.ask(c.policy, c.label))

    results: list[tuple[Candidate, Policy, list[Run]]] = []
    for c, answer in zip(chosen, bench.answers([question(c) for c in chosen]), strict=True):
        if isinstance(answer, TaskError):
            bench.notes.append(f"{c.label} was left out: {answer}")
        else:
            results.append((c, *answer))
    floor = next((perplexity(runs) for c, _, runs in results if c is window), None)
    rows = [_row(bench, c, policy, runs, results[0][2], floor, target) for c, policy, runs in results]
    pairs = []
    for (a, _, of_a), (b, _, of_b) in itertools.combinations(results, 2):
        interval = difference(of_a, of_b)
        if interval is not None:
            pairs.append(Pair(a=a.label, b=b.label, difference=interval))
    return rows, pairs


def _lined_up(candidates: Sequence[Candidate], match: Candidate | None) -> tuple[list[Candidate], Candidate | None]:
    """``full`` first, then the window that is the floor of "gap closed", then the others; and that window.

    Without a match nothing says at which size a window would be the floor, so it has to be among the candidates.
    """
    windows = [c for c in candidates if c.policy.name == "window"]
    if match is None:
        window = windows[0] if windows else None
    elif match.policy.name == "window":
        named = next((c.label for c in windows if c.policy.spec == match.policy.spec), "window")
        window = dataclasses.replace(match, label=named)
    else:
        window = next((c for c in windows if c.label == "window"), candidate("window"))
    first = [candidate("full"), *([window] if window is not None else [])]
    taken = {c.policy.spec for c in first}
    rest = [c for c in candidates if c.policy.spec not in taken and not (window and c.label == window.label)]
    return [*first, *rest], window


def perplexity(runs: Sequence[Run]) -> float:
    """exp of the mean negative log-likelihood over all tokens."""
    return math.exp(sum(run.nll for run in runs) / sum(run.tokens for run in runs))


def gap_closed(full: float, window: float, policy: float) -> float | None:
    """Share of the perplexity that a window loses on full KV which the policy wins back; 1 is full's, 0 window's."""
    return (window - policy) / (window - full) if window > full else None


def difference(a: Sequence[Run], b: Sequence[Run]) -> Interval | None:
    """Perplexity of ``a`` minus that of ``b``; segments are resampled, the same ones for both."""

    def statistic(table: Array) -> float:
        nll_a, nll_b, tokens = table.sum(0)
        return float(np.exp(nll_a / tokens) - np.exp(nll_b / tokens))

    columns = ([r.nll for r in a], [r.nll for r in b], [r.tokens for r in a])
    return bootstrap(statistic, *(np.array(column) for column in columns))


def mean_bytes(runs: Sequence[Run]) -> float:
    """Mean over segments of the sessions' mean allocated bytes."""
    return sum(run.mean_bytes for run in runs) / len(runs)


def _row(
    bench: Bench,
    c: Candidate,
    policy: Policy,
    runs: list[Run],
    full: list[Run],
    floor: float | None,
    target: float | None,
) -> PolicyRow:
    value, best, held = perplexity(runs), perplexity(full), mean_bytes(runs)
    gap = gap_closed(best, floor, value) if floor is not None else None
    ratio = held / target if target is not None else None
    texts: dict[str, list[Run]] = {segment.text.name: [] for segment in bench.segments}
    for segment, run in zip(bench.segments, runs, strict=True):
        texts[segment.text.name].append(run)
    tokens = sum(run.tokens for run in runs)
    exchanged = [run.exchanged for run in runs if run.exchanged is not None]
    return PolicyRow(
        policy=c.label,
        spec=policy.spec,
        perplexity=value,
        above_full=difference(runs, full) if runs is not full else None,
        gap_closed=gap,
        mean_bytes=held,
        bytes_ratio=ratio,
        matched=abs(ratio - 1) <= TOLERANCE if ratio is not None and c.size is not None else None,
        peak_bytes=max(run.peak_bytes for run in runs),
        host_bytes=max(run.host_bytes for run in runs),
        full_bytes=max(run.full_bytes for run in runs),
        evictions=sum(run.evictions for run in runs),
        recalls=sum(run.recalls for run in runs),
        looks=sum(run.looks for run in runs),
        confident_share=sum(run.confident for run in runs) / tokens,
        kept=sum(run.kept * run.tokens for run in runs) / tokens,
        tokens=tokens,
        seconds=sum(run.seconds for run in runs),
        by_text={name: perplexity(of_text) for name, of_text in texts.items()},
        exchanged_share=fmean(exchanged) if exchanged else None,
    )
