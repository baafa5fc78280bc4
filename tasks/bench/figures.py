"""The figures of the benches: quiet axes, named values, no colour without a meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tasks.bench.comparison import PolicyRow
    from tasks.bench.memory import MemoryRow
    from tasks.bench.tools import ToolsRow

INK, FAINT, MARK, SECOND = "#333333", "#8a8a8a", "#1f5f8b", "#d1495b"


def _figure(width: float, height: float, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=130, layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    return figure


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8, colors=INK)
    axis.xaxis.label.set_fontsize(9)
    axis.yaxis.label.set_fontsize(9)


def comparison(rows: Sequence[PolicyRow], title: str) -> Figure:
    """Perplexity of each policy as a dot, best first, with the interval of its difference to ``full``."""
    ordered = sorted(rows, key=lambda row: -row.perplexity)
    figure = _figure(8.5, 1.4 + 0.34 * len(ordered), title)
    axis = figure.subplots()
    best = min(row.perplexity for row in ordered)
    for at, row in enumerate(ordered):
        colour = FAINT if row.policy in ("full", "window") else MARK
        axis.plot([best, row.perplexity], [at, at], color=colour, linewidth=1, alpha=0.4)
        axis.scatter([row.perplexity], [at], s=26, color=colour, zorder=3)
        if row.above_full is not None:
            reference = row.perplexity - row.above_full.value
            axis.plot([reference + row.above_full.low, reference + row.above_full.high], [at, at], color=colour, lw=3)
        gap = "" if row.gap_closed is None else f", gap closed {row.gap_closed:.2f}"
        axis.annotate(
            f"{row.perplexity:.2f}{gap}", (row.perplexity, at), xytext=(0, 5), textcoords="offset points",
            fontsize=7, color=INK, ha="center",
        )  # fmt: skip
    axis.set_yticks(range(len(ordered)), [f"{row.policy}\n{row.mean_bytes / 1e6:.1f} MB" for row in ordered])
    axis.set_ylim(-0.6, len(ordered) - 0.3)
    axis.margins(x=0.12)
    axis.set_xlabel("perplexity (lower is better); megabytes: mean allocated on the device")
    _plain(axis)
    return figure


def agreement(rows: Sequence[ToolsRow], title: str) -> Figure:
    """Share of gold tokens whose likeliest token is full KV's, over mean device bytes; bars: 95%."""
    figure = _figure(7.5, 4.2, title)
    axis = figure.subplots()
    for row in rows:
        at = row.mean_bytes / 1e6
        if row.interval is not None:
            axis.plot([at, at], [100 * row.interval.low, 100 * row.interval.high], color=MARK, lw=2, alpha=0.4)
        axis.scatter([at], [100 * row.agreement], s=28, color=MARK, zorder=3)
        axis.annotate(
            row.policy, (at, 100 * row.agreement), xytext=(5, 3), textcoords="offset points", fontsize=7, color=INK
        )
    axis.set_xlabel("megabytes on the device, mean over forward passes")
    axis.set_ylabel("agreement with full KV, %")
    axis.margins(x=0.15, y=0.1)
    _plain(axis)
    return figure


def by_age(rows: Sequence[MemoryRow], title: str) -> Figure:
    """Right answers and log p of the answer over the age of the fact, a line a policy."""
    from tasks.bench.memory import group_name

    figure = _figure(9.5, 4.2, title)
    names = [group_name(group) for group in rows[0].ages]
    for axis, value, label in zip(
        figure.subplots(1, 2), ("accuracy", "logp"), ("right answers", "mean log p of the answer, nats"), strict=True
    ):
        for index, row in enumerate(rows):
            style = {"color": INK, "lw": 2.5} if row.policy == "full" else {"color": f"C{index}", "lw": 1.3}
            axis.plot(range(len(names)), [getattr(g, value) for g in row.ages], marker="o", label=row.policy, **style)
        axis.set_xticks(range(len(names)), names)
        axis.set_xlabel("age of the fact, tokens")
        axis.set_ylabel(label)
        _plain(axis)
    axis.legend(fontsize=7, frameon=False)
    return figure


def heat_maps(
    panels: Mapping[str, np.ndarray[Any, Any]], columns: Sequence[str], lines: Sequence[str], title: str
) -> Figure:
    """One panel a policy: accuracy by length (across) and depth (down), NaN where nothing was asked."""
    count = max(1, len(panels))
    wide = min(3, count)
    tall = -(-count // wide)
    width = 1.6 + wide * max(2.2, 0.7 * len(columns) + 1.2)
    figure = _figure(width, 1.0 + tall * (1.0 + 0.42 * len(lines)), title)
    axes = np.atleast_1d(figure.subplots(tall, wide, squeeze=False)).ravel()
    for axis, (name, values) in zip(axes, panels.items(), strict=False):
        axis.imshow(values, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                axis.text(j, i, f"{value:.0%}", ha="center", va="center", fontsize=7, color=INK)
        axis.set_title(f"{name}: {np.nanmean(values):.0%}", fontsize=9, color=INK)
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(lines)), lines)
        axis.set_xlabel("haystack, tokens")
        axis.set_ylabel("depth of the needle")
        _plain(axis)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    return figure


def scatter(panels: Mapping[str, tuple[Sequence[float], Sequence[float], str]], title: str) -> Figure:
    """One panel a model: confidence across, KL shift up (log scale), the correlation as a line of text."""
    figure = _figure(1.0 + 4.2 * len(panels), 4.0, title)
    axes = np.atleast_1d(figure.subplots(1, len(panels), squeeze=False)).ravel()
    for axis, (name, (x, y, text)) in zip(axes, panels.items(), strict=True):
        shown = np.maximum(np.asarray(y, dtype=np.float64), 1e-6)
        axis.scatter(x, shown, s=9, color=MARK, alpha=0.45, linewidths=0)
        axis.set_yscale("log")
        axis.set_xlim(0, 1.02)
        axis.set_xlabel("confidence of the full distribution")
        axis.set_ylabel("KL(full || newest removed), nats")
        axis.set_title(f"{name}\n{text}", fontsize=8, color=INK, loc="left")
        _plain(axis)
    return figure


def precision(names: Sequence[str], perplexities: Sequence[float], sizes: Sequence[float], title: str) -> Figure:
    """Perplexity against mean bytes of each way of storing the history."""
    figure = _figure(7.0, 4.0, title)
    axis = figure.subplots()
    for name, value, size in zip(names, perplexities, sizes, strict=True):
        axis.scatter([size / 1e6], [value], s=36, color=SECOND if "simulated" in name else MARK)
        axis.annotate(name, (size / 1e6, value), xytext=(6, 3), textcoords="offset points", fontsize=8, color=INK)
    axis.margins(0.18)
    axis.set_xlabel("mean KV bytes, MB")
    axis.set_ylabel("perplexity")
    _plain(axis)
    return figure
