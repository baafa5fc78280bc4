"""What a grid found: ``summary.json``, from the lines of ``results.jsonl`` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from tasks.bench.statistics import Interval, wilson
from tasks.grid.mcnemar import Paired, compare
from tasks.grid.records import GridSettings, Line
from tasks.records import Record

LATE = 10  # the turn from which a conversation counts as long


class Share(Record):
    """Episodes solved of those played; ``interval`` is Wilson's, 95%."""

    solved: int
    episodes: int
    interval: Interval


class Point(Record):
    """The mean over episodes that have a turn of this number; bytes at its end."""

    turn: int
    episodes: int
    seconds: float
    first_token_seconds: float | None
    fed_tokens: float
    bytes: float
    full_bytes: float


class Group(Record):
    """One way of playing: a model under a policy and a way to keep the history, or a scripted agent.

    Attributes:
        success: crashed episodes count as not solved.
        crashed: episodes that broke.
        against_full: the same tasks and seeds under ``full`` with a persistent session; None for that itself, or where
            it was not played.
        peak_bytes: the highest of all episodes; ``mean_peak_bytes``, ``mean_bytes``, ``full_bytes``, ``host_bytes``,
            ``tokens``, ``prefilled``, ``decoded``, ``turns``, ``seconds``: means over episodes.
        first_token_seconds: median over turns; ``late_first_token_seconds``: over turns ``LATE`` and later.
        late_ratio: for re-prefilling, that median over the one of the same policy with a persistent session.
        per_turn: mean seconds, bytes and time to the first token by turn.
        reasons: why episodes ended, most frequent first.
    """

    agent: str
    model: str
    policy: str
    history: str
    success: Share
    crashed: int
    against_full: Paired | None
    by_site: dict[str, Share]
    by_difficulty: dict[str, Share]
    reasons: dict[str, int]
    peak_bytes: int
    mean_peak_bytes: float
    mean_bytes: float
    full_bytes: float
    host_bytes: float
    tokens: float
    prefilled: float
    decoded: float
    turns: float
    seconds: float
    first_token_seconds: float | None
    late_first_token_seconds: float | None
    late_turns: int
    late_ratio: float | None = None
    per_turn: list[Point]


class Summary(Record):
    """``summary.json``. ``planned`` episodes were asked for, ``played`` of them are on file."""

    suite: str
    agent: str
    planned: int
    played: int
    tasks: int
    seeds: int
    groups: list[Group]
    settings: GridSettings


def summarise(settings: GridSettings, lines: Iterable[Line]) -> Summary:
    """Sum up; groups stand in the order in which they were asked for."""
    order = {key.id: number for number, key in enumerate(settings.episodes())}
    known = sorted((line for line in lines if line.key.id in order), key=lambda line: order[line.key.id])
    grouped: dict[tuple[str, str, str], list[Line]] = {
        (model, policy, history): []
        for model in settings.models
        for policy in settings.policies
        for history in settings.histories
    }
    for line in known:
        grouped[line.model, line.policy, line.history].append(line)
    groups = []
    for (model, policy, history), members in grouped.items():
        if members:
            full = grouped.get((model, "full", "persistent"), [])
            groups.append(_group(members, full if (policy, history) != ("full", "persistent") else []))
    late = {(g.model, g.policy): g.late_first_token_seconds for g in groups if g.history == "persistent"}
    for group in groups:
        kept, anew = late.get((group.model, group.policy)), group.late_first_token_seconds
        if group.history == "reprefill" and kept and anew:
            group.late_ratio = anew / kept
    return Summary(
        suite=settings.suite,
        agent=settings.agent,
        planned=len(order),
        played=len(known),
        tasks=len(settings.tasks),
        seeds=settings.seeds,
        groups=groups,
        settings=settings,
    )


def _share(lines: Sequence[Line]) -> Share:
    solved = sum(line.success for line in lines)
    return Share(solved=solved, episodes=len(lines), interval=wilson(solved, len(lines)))


def _shares(lines: Sequence[Line], name: Callable[[Line], str]) -> dict[str, Share]:
    names = dict.fromkeys(name(line) for line in lines if name(line))
    return {value: _share([line for line in lines if name(line) == value]) for value in names}


def _outcomes(lines: Sequence[Line]) -> dict[tuple[str, int], bool]:
    return {(line.task, line.seed): line.success for line in lines}


def _group(lines: Sequence[Line], full: Sequence[Line]) -> Group:
    first = lines[0]
    waits = [
        (turn.turn, turn.first_token_seconds)
        for line in lines
        for turn in line.per_turn
        if turn.first_token_seconds is not None
    ]
    late = [seconds for turn, seconds in waits if turn >= LATE]
    return Group(
        agent=first.agent,
        model=first.model,
        policy=first.policy,
        history=first.history,
        success=_share(lines),
        crashed=sum(line.crashed for line in lines),
        against_full=compare(_outcomes(lines), _outcomes(full)),
        by_site=_shares(lines, lambda line: line.site),
        by_difficulty=_shares(lines, lambda line: line.difficulty),
        reasons=dict(Counter(line.reason for line in lines).most_common()),
        peak_bytes=max(line.kv.peak_bytes for line in lines),
        mean_peak_bytes=fmean(line.kv.peak_bytes for line in lines),
        mean_bytes=fmean(line.kv.mean_bytes for line in lines),
        full_bytes=fmean(line.kv.full_bytes for line in lines),
        host_bytes=fmean(line.kv.host_bytes for line in lines),
        tokens=fmean(line.tokens for line in lines),
        prefilled=fmean(line.prefilled for line in lines),
        decoded=fmean(line.decoded for line in lines),
        turns=fmean(line.turns for line in lines),
        seconds=fmean(line.seconds.total for line in lines),
        first_token_seconds=median(seconds for _, seconds in waits) if waits else None,
        late_first_token_seconds=median(late) if late else None,
        late_turns=len(late),
        per_turn=_curve(lines),
    )


def _curve(lines: Sequence[Line]) -> list[Point]:
    longest = max((turn.turn for line in lines for turn in line.per_turn), default=0)
    points = []
    for number in range(1, longest + 1):
        turns = [turn for line in lines for turn in line.per_turn if turn.turn == number]
        if not turns:
            continue
        waits = [turn.first_token_seconds for turn in turns if turn.first_token_seconds is not None]
        points.append(
            Point(
                turn=number,
                episodes=len(turns),
                seconds=fmean(turn.seconds for turn in turns),
                first_token_seconds=fmean(waits) if waits else None,
                fed_tokens=fmean(turn.fed_tokens for turn in turns),
                bytes=fmean(turn.bytes for turn in turns),
                full_bytes=fmean(turn.full_bytes for turn in turns),
            )
        )
    return points
