"""Charts as inline SVG whose colours are the page's own, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 14, 38
COLOURS = 8  # the page defines --c0 to --c7


@dataclass(frozen=True)
class Series:
    """A named line; ``colour`` is an index, ``dashed`` marks what is only reckoned."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    """A share with its interval, all between 0 and 1, and what is written behind it."""

    name: str
    value: float
    low: float
    high: float
    text: str
    colour: int


def nice_step(span: float, parts: int = 4) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that cuts ``span`` into at most ``parts`` parts."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / parts))
    return next(m * power for m in (1, 2, 2.5, 5, 10, 20) if span / (m * power) <= parts + 1e-9)


def line_chart(title: str, series: Sequence[Series], unit: Callable[[float], str]) -> str:
    """Lines over turns, from 0 up; "" where there is nothing to draw."""
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    last = max(2.0, max(x for x, _ in points))
    step = nice_step(max(y for _, y in points))
    top = step * max(1, math.ceil(max(y for _, y in points) / step - 1e-9))
    across = (WIDTH - LEFT - RIGHT) / (last - 1)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (x - 1) * across, TOP + (HEIGHT - TOP - BOTTOM) * (1 - y / top)

    parts = []
    for n in range(round(top / step) + 1):
        _, y = place(1, n * step)
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(unit(n * step))}</text>')
    every = max(1, math.ceil(nice_step(last - 1, 10)))
    for turn in [1, *range(every, int(last) + 1, every)]:
        if turn == 1 or turn > 1 + every / 2:
            x, _ = place(turn, 0)
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{turn}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 5}" text-anchor="middle">turn</text>')
    for one in series:
        places = [place(x, y) for x, y in one.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="5 4"' if one.dashed else ""
        colour = f"var(--c{one.colour % COLOURS})"
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not one.dashed:
            for (x, y), (turn, value) in zip(places, one.points, strict=True):
                hint = escape(f"{one.name}, turn {turn:g}: {unit(value)}")
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{hint}</title></circle>')
    return _svg(title, WIDTH, HEIGHT, parts)


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """Shares as bars with whiskers; "" where there are none."""
    if not bars:
        return ""
    row, label, behind = 34, 190, 130
    height = len(bars) * row + 26
    span = WIDTH - label - behind
    parts = []
    for n in range(5):
        x = label + span * n / 4
        parts.append(f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 20}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 5}" text-anchor="middle">{n * 25}%</text>')
    for i, bar in enumerate(bars):
        y = i * row + 8
        middle = y + 10
        low, high = label + span * bar.low, label + span * bar.high
        name = bar.name if len(bar.name) <= 28 else bar.name[:27] + "…"
        parts.append(f'<text x="{label - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}'
                     f"<title>{escape(bar.name)}</title></text>")  # fmt: skip
        parts.append(
            f'<rect x="{label}" y="{y}" width="{span * bar.value:.1f}" height="20" rx="3"'
            f' fill="var(--c{bar.colour % COLOURS})" fill-opacity=".75"/>'
        )
        parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>')
        for x in (low, high):
            parts.append(f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 5}" y2="{middle + 5}"/>')
        parts.append(f'<text x="{label + span + 10}" y="{middle + 4}">{escape(bar.text)}</text>')
    return _svg(title, WIDTH, height, parts)


def _svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
