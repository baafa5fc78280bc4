"""What a person sees on stderr while a grid runs: a bar on a terminal, a line an episode everywhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, TextIO

from tasks.grid.records import Key, Line
from tasks.live import megabytes


def spoken(seconds: float) -> str:
    """A length of time as a person says it: ``40 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def outcome(line: Line) -> str:
    """How an episode went, in one line."""
    verdict = "success" if line.success else f"no success ({line.reason})"
    told = [f"{verdict}, {line.turns} turn{'s' if line.turns != 1 else ''}, {line.seconds.total:.1f} s"]
    if line.kv.peak_bytes:
        told.append(f"peak KV {megabytes(line.kv.peak_bytes)}")
    if line.error:
        told.append(" ".join(line.error.split())[:160])
    return "; ".join(told)


class GridProgress:
    """Follows the episodes. Use as a context manager; threads may call it.

    Args:
        total: episodes of the grid.
        done: of them on file already.
    """

    def __init__(self, total: int, done: int, workers: int, stream: TextIO | None = None, plain: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._total, self._done, self._before, self._workers = total, done, done, workers
        self._solved = 0
        self._start = time.monotonic()
        self._lock = threading.RLock()
        self._now: dict[int, tuple[str, int]] = {}  # worker -> (episode, turn)
        self._live: Any = None
        self._plain = plain or not self._stream.isatty()

    def __enter__(self) -> GridProgress:
        if not self._plain:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(file=self._stream),
                get_renderable=self._render,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            if self._live is not None:
                self._live.console.print(text, highlight=False, markup=False)
            else:
                print(text, file=self._stream, flush=True)

    def started(self) -> None:
        """Models are loaded: the time left is estimated from here on."""
        self._start = time.monotonic()
        self._before = self._done

    def begin(self, worker: int, key: Key) -> None:
        """An episode begins."""
        self._now[worker] = (key.label, 0)

    def turn(self, worker: int, turn: int) -> None:
        """A turn of a worker's episode begins."""
        label, _ = self._now.get(worker, ("", 0))
        self._now[worker] = (label, turn)

    def end(self, worker: int, line: Line) -> None:
        """An episode is over."""
        with self._lock:
            self._now.pop(worker, None)
            self._done += 1
            self._solved += line.success
            self.say(f"[{self._done} of {self._total}] {line.key.label}: {outcome(line)}{self._left()}")

    @property
    def left(self) -> float | None:
        """Seconds until all are played, if they go on at the mean pace so far; None before the first is over."""
        played = self._done - self._before
        if not played:
            return None
        return (time.monotonic() - self._start) / played * (self._total - self._done)

    def _left(self) -> str:
        left = self.left
        return f"; about {spoken(left)} left" if left is not None and self._done < self._total else ""

    def _render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Table.grid(padding=(0, 2))
        played, left = self._done - self._before, self.left
        head.add_row(
            Text(f"{self._done} of {self._total} episodes", style="bold"),
            ProgressBar(total=max(1, self._total), completed=self._done, width=32),
            Text(f"{self._solved} of {played} solved" if played else "", style="green"),
            Text(f"{spoken(time.monotonic() - self._start)} so far"),
            Text(f"about {spoken(left)} left" if left is not None else "", style="cyan"),
        )
        rows = [
            Text(f"  {label}" + (f"  turn {turn}" if turn else ""), style="dim", no_wrap=True, overflow="ellipsis")
            for _, (label, turn) in sorted(self._now.copy().items())
        ]
        return Group(head, *rows, Text("  Ctrl-C stops; what is over stays, --resume goes on", style="dim italic"))
