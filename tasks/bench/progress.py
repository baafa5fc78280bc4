"""What a person sees on stderr while a bench runs: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

LINE_SECONDS = 20.0


class Progress:
    """One bar (or a line now and then) for the measurement under way. Use as a context manager."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bars: Any = None
        self._task: Any = None
        self._label, self._done, self._total, self._last = "", 0, 0, 0.0

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(file=self._stream),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._bars is not None:
            self._bars.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=self._stream, flush=True)

    def begin(self, label: str, total: int) -> None:
        """A measurement of ``total`` steps begins; the one before is over."""
        self._label, self._done, self._total, self._last = label, 0, total, time.monotonic()
        if self._bars is None:
            return
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(label.replace("[", "\\["), total=total)

    def advance(self, steps: int = 1) -> None:
        """So many more steps are done."""
        self._done += steps
        if self._bars is not None:
            self._bars.update(self._task, completed=self._done)
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            self.say(f"... {self._label}: {self._done} of {self._total}")
