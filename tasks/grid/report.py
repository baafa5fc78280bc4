"""``summary.json`` and ``report.html``, and the table on the terminal: all from ``results.jsonl``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tasks.grid.charts import Bar, Series, bar_chart, line_chart
from tasks.grid.log import read_lines, read_settings
from tasks.grid.records import CRASHES, NO_CACHE, REPORT_FILE, RESULTS_FILE, SUMMARY_FILE, GridSettings, Line
from tasks.grid.summary import LATE, Group, Share, Summary, summarise
from tasks.live import megabytes
from tasks.records import EPISODE_FILE, FIGURE_FILE, LOG_FILE, STEPS_FILE, write_atomically

TEMPLATE = Path(__file__).with_name("report.html.jinja")
TRACE_FILES = ((STEPS_FILE, "turns"), (EPISODE_FILE, "record"), (FIGURE_FILE, "cache"), (LOG_FILE, "log"))


def rebuild(out: Path) -> Summary:
    """Write summary and report of a folder anew.

    Raises:
        TaskError: the folder holds no grid, or cannot be read.
    """
    return write_report(out, read_settings(out), read_lines(out / RESULTS_FILE))


def write_report(out: Path, settings: GridSettings, lines: Iterable[Line]) -> Summary:
    """Write ``summary.json`` and ``report.html``, each whole or not at all."""
    known = list(lines)
    summary = summarise(settings, known)
    write_atomically(out / SUMMARY_FILE, (summary.model_dump_json(indent=1) + "\n").encode())
    write_atomically(out / REPORT_FILE, page(out, summary, known).encode())
    return summary


def name(group: Group, summary: Summary) -> str:
    """What tells a group from the others."""
    if group.policy == NO_CACHE:
        return group.agent
    parts = [group.policy]
    if len(summary.settings.models) > 1:
        parts.insert(0, group.model)
    if len(summary.settings.histories) > 1 or group.history != "persistent":
        parts.append(group.history)
    return " · ".join(parts)


def percent(value: float) -> str:
    """A share as a person reads it."""
    return f"{value:.0%}"


def share(found: Share) -> str:
    """``7 of 12 (32% to 81%)``."""
    return f"{found.solved} of {found.episodes} ({percent(found.interval.low)} to {percent(found.interval.high)})"


def seconds(value: float | None) -> str:
    """A time as a person reads it; "" where there is none."""
    return "" if value is None else f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def against(group: Group) -> str:
    """``+2 -5, p = 0.45``: solved by this and not by full, the other way round, and how likely by chance."""
    found = group.against_full
    return "" if found is None else f"+{found.only_this} -{found.only_other}, p = {found.p:.2g}"


def page(out: Path, summary: Summary, lines: Sequence[Line]) -> str:
    """The report as one HTML page that loads nothing. Links to traces are relative and lead to files that are there."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    groups = [(name(group, summary), group) for group in summary.groups]
    labels = {(g.model, g.policy, g.history): label for label, g in groups}
    return template.render(
        summary=summary,
        settings=summary.settings,
        groups=groups,
        has_model=summary.agent == "model",
        late=LATE,
        hosts=any(group.host_bytes for group in summary.groups),
        charts=charts(summary),
        crashes=CRASHES,
        sites=_keys(group.by_site for group in summary.groups),
        difficulties=_keys(group.by_difficulty for group in summary.groups),
        reasons=_keys(group.reasons for group in summary.groups),
        rows=[(line, labels.get((line.model, line.policy, line.history), ""), _files(out, line)) for line in lines],
        megabytes=megabytes,
        seconds=seconds,
        share=share,
        against=against,
        percent=percent,
    )


def charts(summary: Summary) -> list[tuple[str, str, str]]:
    """(title, what it says, SVG) of each chart that has something to show."""
    groups = [(name(group, summary), group) for group in summary.groups]
    bars = [
        Bar(label, g.success.interval.value, g.success.interval.low, g.success.interval.high,
            f"{g.success.solved} of {g.success.episodes}", i)
        for i, (label, g) in enumerate(groups)
    ]  # fmt: skip
    drawn = [("Success", "with 95% Wilson intervals", bar_chart("Success by policy", bars))]
    if summary.agent == "model":
        held = [Series(label, [(p.turn, p.bytes) for p in g.per_turn], i) for i, (label, g) in enumerate(groups)]
        if longest := max((g for _, g in groups), key=lambda g: len(g.per_turn), default=None):
            points = [(p.turn, p.full_bytes) for p in longest.per_turn]
            held.append(Series("full would hold", points, 7, dashed=True))
        first = [
            Series(label, [(p.turn, p.first_token_seconds) for p in g.per_turn if p.first_token_seconds is not None], i)
            for i, (label, g) in enumerate(groups)
        ]
        text = "bytes on the device at the end of a turn, mean; dashed: what full KV would hold"
        drawn.append(("KV by turn", text, line_chart("KV bytes by turn", held, megabytes)))
        text = "from the turn's message to the first sampled token, mean"
        drawn.append(("First token by turn", text, line_chart("Time to first token by turn", first, _axis_seconds)))
    took = [Series(label, [(p.turn, p.seconds) for p in g.per_turn], i) for i, (label, g) in enumerate(groups)]
    drawn.append(("Seconds by turn", "model and browser, mean", line_chart("Seconds by turn", took, _axis_seconds)))
    return [chart for chart in drawn if chart[2]]


def _axis_seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1 or value == 0 else f"{value * 1000:g} ms"


def _keys(tables: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for table in tables for key in table))


def _files(out: Path, line: Line) -> list[tuple[str, str]]:
    """(relative address, word) of each file of an episode's trace."""
    return [(f"{line.trace}/{file}", word) for file, word in TRACE_FILES if (out / line.trace / file).exists()]


def table(summary: Summary, width: int) -> Any:
    """The groups as a rich table that fits ``width`` characters: where there is little room, less is told."""
    from rich import box
    from rich.table import Table

    title = f"{summary.suite}: {summary.played} of {summary.planned} episodes"
    found = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    model, roomy = summary.agent == "model", width >= 116
    told: list[tuple[str, Callable[[Group], str], bool]] = [
        ("policy" if model else "agent", lambda g: name(g, summary), True),
        ("solved", lambda g: f"{g.success.solved} of {g.success.episodes}", True),
        ("95%", lambda g: f"{g.success.interval.low:.0%}-{g.success.interval.high:.0%}", True),
        ("against full", against, model and roomy),
        ("peak KV", lambda g: megabytes(g.peak_bytes), model),
        ("mean KV", lambda g: megabytes(g.mean_bytes), model and roomy),
        ("tokens", lambda g: f"{g.tokens:,.0f}", model and roomy),
        ("turns", lambda g: f"{g.turns:.1f}", not model or roomy),
        ("seconds", lambda g: f"{g.seconds:.1f}", True),
        ("first token", lambda g: seconds(g.first_token_seconds), model),
        ("broke", lambda g: str(g.crashed), True),
    ]
    shown = [(column, text) for column, text, wanted in told if wanted]
    for number, (column, _) in enumerate(shown):
        found.add_column(column, justify="right" if number else "left", no_wrap=number > 0, overflow="fold")
    for group in summary.groups:
        found.add_row(*(text(group) for _, text in shown))
    return found


def show(summary: Summary) -> None:
    """Print the table on stdout."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=140)
    console.print(table(summary, console.width), highlight=False)
