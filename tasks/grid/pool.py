"""Workers: threads that play episodes until none is left, one fails for good, or the grid is told to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]

from tasks.grid.play import Player
from tasks.grid.records import Key, Line
from tasks.grid.shared import Stopped
from tasks.grid.suites import TaskInfo
from tasks.signals import handled

PATIENCE = 5.0  # seconds in which an episode under way may notice that it is over, before its browser is killed
LAST = 40.0  # seconds until a thread that does not end is left behind


class Pool:
    """Plays keys with several players.

    Args:
        players: one a worker.
        stop: shared with the players.
        on_line: called in a worker's thread with the worker's number and each episode that is over.
        on_begin: called likewise with each that begins.
    """

    def __init__(
        self,
        players: list[Player],
        stop: threading.Event,
        on_line: Callable[[int, Line], None],
        on_begin: Callable[[int, Key], None] = lambda worker, key: None,
    ) -> None:
        self._players, self._stop = players, stop
        self._on_line, self._on_begin = on_line, on_begin
        self._failure: Exception | None = None
        self._left: deque[tuple[Key, TaskInfo]] = deque()
        # Events, as an interrupted Thread.join() of Python 3.11 takes a thread that runs for one that has ended.
        self._ended = [threading.Event() for _ in players]

    def run(self, episodes: Iterable[tuple[Key, TaskInfo]]) -> None:
        """Play them all.

        Raises:
            KeyboardInterrupt: Ctrl-C, after every browser is closed; episodes under way are dropped.
            Exception: what no later episode could be played after, e.g. a full disk.
        """
        self._left.extend(episodes)
        threads = [
            threading.Thread(target=self._work, args=(number, player), name=f"worker-{number}", daemon=True)
            for number, player in enumerate(self._players)
        ]
        try:
            for thread in threads:
                thread.start()
            for ended in self._ended:
                while not ended.wait(0.2):
                    continue
        except KeyboardInterrupt:
            with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._end(threads)
            raise
        if self._failure is not None:
            raise self._failure

    def _work(self, number: int, player: Player) -> None:
        try:
            self._play(number, player)
        finally:
            self._ended[number].set()

    def _play(self, number: int, player: Player) -> None:
        while not self._stop.is_set():
            try:
                key, task = self._left.popleft()
            except IndexError:
                return
            try:
                self._on_begin(number, key)
                self._on_line(number, player.play(key, task))
            except Stopped:
                return
            except Exception as error:
                self._failure = self._failure or error
                self._stop.set()

    def _end(self, threads: list[threading.Thread]) -> None:
        """Wait for the threads; a browser that keeps one waiting is killed."""
        self._stop.set()
        begun = time.monotonic()
        for thread, ended in zip(threads, self._ended, strict=True):
            if thread.ident is None:
                continue  # Ctrl-C came before it was started
            while not ended.wait(0.2) and time.monotonic() - begun < LAST:
                if time.monotonic() - begun >= PATIENCE:
                    for player in self._players:
                        _kill(player.env)


def _kill(env: Any) -> None:
    """Kill an environment's worker process and its browser: who waits for it is told at once."""
    pid = getattr(env, "worker_pid", None)
    if pid is None:
        return
    try:
        worker = psutil.Process(pid)
        family = [worker, *worker.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
