"""Progress of long steps: a callback, or a rich bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int | None], None]
"""Called with (what is being done, bytes or items done, total or None where it is not known)."""


def silent(what: str, done: int, total: int | None) -> None:
    """A progress callback that says nothing."""


@contextmanager
def reporting(progress: bool | Progress) -> Iterator[Progress]:
    """A progress callback for the body: the caller's own, a rich bar (True), or none (False)."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield silent
        return
    from rich import progress as rp
    from rich.console import Console

    columns = (
        rp.TextColumn("{task.description}"),
        rp.BarColumn(bar_width=20),
        rp.TaskProgressColumn(),
        rp.TimeElapsedColumn(),
    )
    with rp.Progress(*columns, console=Console(file=sys.stderr)) as bar:
        tasks: dict[str, rp.TaskID] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield report
