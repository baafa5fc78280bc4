"""``cache.png``: what the cache held at each decoded token, why, and where the turns begin."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.records import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KEPT, BUDGET, CONFIDENCE, BYTES = "#1f5f8b", "#d1495b", "#3b7a57", "#6b5b95"
BAND, INK, FAINT = "#f2f0ea", "#333333", "#8a8a8a"
MAX_LABELS = 24


def draw(columns: Mapping[str, np.ndarray[Any, Any]], *, title: str, tau: float | None = None) -> Figure:
    """Three stacked panels over decode steps: tokens kept and budget, confidence, bytes.

    Args:
        columns: as ``records.decode_columns`` gives them; may be empty.
        title: one line above the panels.
        tau: the policy's confidence threshold, drawn as a line.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), dpi=130, layout="constrained", facecolor="white")
    axes = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2.2, 1.4))
    kept_axis, confidence_axis, bytes_axis = axes
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    steps = np.arange(1, len(columns["turn"]) + 1)
    _panel_kept(kept_axis, steps, columns)
    _panel_confidence(confidence_axis, steps, columns, tau)
    bytes_axis.set_ylabel("KV, MB")
    bytes_axis.fill_between(steps, columns["bytes"] / 1e6, color=BYTES, alpha=0.25, linewidth=0)
    bytes_axis.plot(steps, columns["bytes"] / 1e6, color=BYTES, linewidth=1.3)
    bytes_axis.set_ylim(bottom=0)
    bytes_axis.set_xlabel("decode step (one sampled token each)")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, colors=INK)
        axis.yaxis.label.set_size(9)
        axis.xaxis.label.set_size(9)
    if len(steps):
        kept_axis.set_xlim(0.5, len(steps) + 0.5)
        _mark_turns(axes, columns["turn"])
    else:
        kept_axis.text(0.5, 0.5, "no token was decoded", transform=kept_axis.transAxes, ha="center", color=FAINT)
    figure.align_ylabels(axes)
    return figure


def _panel_kept(axis: Axes, steps: np.ndarray[Any, Any], columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    axis.set_ylabel("tokens (mean over layers)")
    axis.plot(steps, columns["kept"], color=KEPT, linewidth=1.6, label="kept, pinned too")
    if np.isfinite(columns["budget"]).any():
        budget = columns["budget"]
        axis.step(steps, budget, where="mid", color=BUDGET, linewidth=1.1, label="budget of the rest")
    axis.set_ylim(bottom=0)
    _legend(axis)


def _panel_confidence(
    axis: Axes, steps: np.ndarray[Any, Any], columns: Mapping[str, np.ndarray[Any, Any]], tau: float | None
) -> None:
    axis.set_ylabel("confidence")
    axis.set_ylim(0, 1.03)
    axis.plot(steps, columns["confidence"], color=CONFIDENCE, linewidth=0.8, alpha=0.5)
    axis.scatter(steps, columns["confidence"], s=7, color=CONFIDENCE, linewidths=0, label="per token")
    if tau is not None and 0 <= tau <= 1:
        axis.axhline(tau, color=BUDGET, linewidth=1, linestyle=(0, (4, 3)), label=f"threshold {tau:g}")
    _legend(axis)


def _legend(axis: Axes) -> None:
    """Beside the panel, so that it never covers what it names."""
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False, labelcolor=INK)


def _mark_turns(axes: Any, turns: np.ndarray[Any, Any]) -> None:
    """Shade every other turn and name turns above the first panel, thinned where they would overlap."""
    starts = [0, *(np.flatnonzero(np.diff(turns)) + 1).tolist()]
    ends = [*starts[1:], len(turns)]
    every = max(1, -(-len(starts) // MAX_LABELS))
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for axis in axes:
            if i % 2:
                axis.axvspan(start + 0.5, end + 0.5, color=BAND, zorder=0, linewidth=0)
            elif i:
                axis.axvline(start + 0.5, color=BAND, linewidth=1, zorder=0)
        if i % every == 0:
            label = f"turn {turns[start]}" if len(starts) <= 10 else str(turns[start])
            axes[0].annotate(
                label,
                ((start + end + 1) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=FAINT,
            )


def write(path: Path, columns: Mapping[str, np.ndarray[Any, Any]], *, title: str, tau: float | None = None) -> None:
    """Draw and write a PNG, whole or not at all."""
    buffer = io.BytesIO()
    draw(columns, title=title, tau=tau).savefig(buffer, format="png")
    write_atomically(path, buffer.getvalue())
