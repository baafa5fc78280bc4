"""``confkv tasks``: what can be played."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer


def tasks(
    filter: Annotated[
        str, typer.Argument(help="Only tasks whose id or summary holds this text.", metavar="[FILTER]")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="A JSON list of {id, summary} on stdout.")] = False,
) -> None:
    """List the tasks that `confkv run --task` takes."""
    from tasks.errors import TaskError
    from tasks.resolve import list_tasks

    wanted = filter.casefold()
    found = [(name, text) for name, text in list_tasks() if wanted in f"{name} {text}".casefold()]
    if json:
        print(jsonlib.dumps([{"id": name, "summary": text} for name, text in found], indent=1))
        return
    if not found:
        raise TaskError(f"no task holds {filter!r}; `confkv tasks` without a filter lists all")
    width = max(len(name) for name, _ in found)
    for name, text in found:
        print(f"{name:<{width}}  {text}")
