"""What every bench leaves in its folder beside ``results.jsonl``: ``summary.json``, ``table.md``, ``figure.png``."""

from __future__ import annotations

import io
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.records import Record, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY_FILE, TABLE_FILE, FIGURE_FILE = "summary.json", "table.md", "figure.png"


class Summary(Record):
    """What ``--json`` prints; each bench adds its rows.

    ``settings`` are the options that matter, ``notes`` what a reader of the table has to know.
    """

    benchmark: str
    command: str
    models: list[str]
    dtype: str
    machine: dict[str, str | int]
    versions: dict[str, str]
    settings: dict[str, Any]
    notes: list[str]


def circumstances(benchmark: str, models: Sequence[str], dtype: str) -> dict[str, Any]:
    """The fields of :class:`Summary` that describe where and how the bench was run."""
    import torch

    return {
        "benchmark": benchmark,
        "command": shlex.join(["confkv", *sys.argv[1:]]),
        "models": list(models),
        "dtype": dtype,
        "machine": {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()},
        "versions": {
            "python": platform.python_version(),
            **{p: metadata.version(p) for p in ("torch", "transformers")},
        },
    }


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; None is an empty cell, floats have four significant digits."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(_cell(value) for value in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|")


def write(out: Path, summary: Summary, table: str, figure: Figure) -> None:
    """Write the three files, each whole or not at all. The table carries its command and notes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    notes = "".join(f"- {note}\n" for note in summary.notes)
    text = f"# {summary.benchmark}\n\n    {summary.command}\n\n{table}" + (f"\n{notes}" if notes else "")
    write_atomically(out / FIGURE_FILE, buffer.getvalue())
    write_atomically(out / TABLE_FILE, text.encode())
    write_atomically(out / SUMMARY_FILE, (summary.model_dump_json(indent=1) + "\n").encode())
