"""``confkv report``: sum a grid's folder up anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="The --out of a `confkv eval`.", metavar="DIR")],
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object instead of a table.")] = False,
) -> None:
    """Write summary.json and report.html of a grid from its results.jsonl, and print the table."""
    from tasks.grid.report import rebuild, show

    summary = rebuild(folder)
    if json:
        print(summary.model_dump_json(), flush=True)
        return
    show(summary)
    print(f"files: {folder} (report.html, summary.json)", flush=True)
