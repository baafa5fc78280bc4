"""Decode steps of several episodes in one pass over the model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confkv import positions, step
from confkv.errors import ConfkvError
from confkv.step import Phase

GATHER = 0.005  # seconds that a pass waits for the replies under way to bring their next token


@dataclass(eq=False)
class _Request:
    """A token that a session is to be fed; ``begun`` is when its pass began, by the performance counter."""

    session: Any
    ids: list[int]
    held: list[int]
    begun: float = 0.0
    done: bool = False
    error: Exception | None = None


class SharedPasses:
    """What feeds the sessions of one model from several threads.

    Reading the weights is most of a decode step, and one pass reads them once for all its sessions. Who asks first runs
    the pass for everybody who waits.

    Args:
        lock: held while the model runs; a prefill holds it too.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._changed = threading.Condition()
        self._waiting: list[_Request] = []
        self._replies, self._led = 0, False

    @contextmanager
    def reply(self) -> Iterator[None]:
        """While a session writes a reply, passes wait a little for its tokens."""
        with self._changed:
            self._replies += 1
        try:
            yield
        finally:
            with self._changed:
                self._replies -= 1
                self._changed.notify_all()

    def feed(
        self, sessions: Sequence[Any], ids: list[list[int]], held: list[list[int]], phase: Phase, left: int = 0
    ) -> float:
        """As :func:`confkv.step.feed`, for one session: a decode step joins those of others.

        Returns:
            when the pass began, by ``time.perf_counter()``.
        """
        begun = time.perf_counter()
        if phase == "prefill":  # whoever extends a session holds the lock
            step.feed(sessions, ids, held, phase, left)
            return begun
        ((session,), (own,), (why,)) = sessions, ids, held
        request = _Request(session, own, why)
        with self._changed:
            self._waiting.append(request)
            self._changed.notify_all()
            while self._led and not request.done:
                self._changed.wait()
            self._led = self._led or not request.done
        if not request.done:
            self._lead()
        if request.error is not None:
            raise request.error
        return request.begun

    def _lead(self) -> None:
        """Run one pass for all who wait, the caller included."""
        requests: list[_Request] = []
        try:
            with self._changed:
                self._changed.wait_for(lambda: len(self._waiting) >= self._replies, timeout=GATHER)
            with self._lock:
                with self._changed:
                    requests, self._waiting = self._waiting, []
                _run(requests)
        finally:
            with self._changed:
                for request in requests:
                    request.done = True
                self._led = False
                self._changed.notify_all()


def _run(requests: list[_Request]) -> None:
    fit: list[_Request] = []
    for request in requests:
        request.begun = time.perf_counter()
        try:
            positions.rebase_if_needed(request.session, 1)
            fit.append(request)
        except ConfkvError as error:  # full KV at the model's position limit: its token waits, the others go on
            (request.session.pending,), request.error = request.ids, error
    if not fit:
        return
    try:
        step.feed([r.session for r in fit], [r.ids for r in fit], [r.held for r in fit], "decode")
    except Exception as error:
        for request in fit:
            request.error = error
