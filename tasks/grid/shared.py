"""One loaded model that several episodes take turns at."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from confkv.policies import parse_policy
from tasks.bench.model import Model
from tasks.grid.batch import SharedPasses


class Stopped(KeyboardInterrupt):
    """The grid was told to stop; the episode under way is dropped."""


class Meter:
    """What an episode's sessions are fed, and how long it waited for the model.

    Attributes:
        waited: seconds in which another episode had the model.
        fed: tokens prefilled, over all sessions of the episode.
        failed: whether the model's side raised.
    """

    def __init__(self) -> None:
        self.waited, self.fed, self.failed = 0.0, 0, False

    def clock(self) -> float:
        """Seconds that do not run while another episode has the model."""
        return time.perf_counter() - self.waited


class SharedModel:
    """Weights in memory once, a policy's engine over them when it is asked for.

    A model is not thread-safe and two passes at a time are no faster than one after the other: each pass of a session
    (a message that is fed, a token that is decoded) holds ``lock``; browsers, grammar and records do not.

    Args:
        batch: tokens that several episodes decode at a time share a pass. That is much quicker, but sums are rounded
            differently with who else plays.
    """

    def __init__(self, model: Model, *, batch: bool = False) -> None:
        self.model = model
        self.lock = threading.Lock()
        self._passes = SharedPasses(self.lock) if batch else None
        self._engines: dict[str, Any] = {}

    def engine(self, policy: str) -> Any:
        """The engine of a policy's spec."""
        with self.lock:
            if policy not in self._engines:
                self._engines[policy] = self.model.engine(parse_policy(policy))
            return self._engines[policy]

    def tokenizer(self) -> Any:
        """A tokenizer for one thread: they keep settings between calls."""
        return copy.deepcopy(self.model.tokenizer)

    def session(self, policy: str, meter: Meter, stop: threading.Event) -> SharedSession:
        """A new session that takes its turns at the model."""
        session = self.engine(policy).session()
        if self._passes is not None:
            return BatchedSession(session, self.lock, meter, stop, self._passes)
        return SharedSession(session, self.lock, meter, stop)


class SharedSession:
    """A session whose passes wait for their turn. Its replies do not depend on who else plays.

    Raises (from every pass):
        Stopped: the grid was told to stop.
    """

    def __init__(self, session: Any, lock: threading.Lock, meter: Meter, stop: threading.Event) -> None:
        self._session, self._lock, self._meter, self._stop = session, lock, meter, stop

    @property
    def stats(self) -> Any:
        return self._session.stats

    @property
    def steps(self) -> Any:
        return self._session.steps

    @property
    def seen(self) -> int:
        return int(self._session.seen)

    def extend(self, ids: list[int], segment: Any = "text") -> Any:
        """See ``confkv.session.Session.extend``."""
        self._meter.fed += len(ids)
        with self._turn():
            return self._session.extend(ids, segment=segment)

    def retract(self) -> int | None:
        """See ``confkv.session.Session.retract``."""
        token: int | None = self._session.retract()
        return token

    def generate(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        """See ``confkv.session.Session.generate``; the model is free between two tokens."""
        tokens = self._session.generate(*arguments, **options)
        try:
            while True:
                with self._token():
                    token = next(tokens, None)
                if token is None:
                    return
                yield token
        finally:
            tokens.close()

    def _token(self) -> AbstractContextManager[None]:
        """What a token is decoded within."""
        return self._turn()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        start = time.perf_counter()
        with self._lock:
            self._meter.waited += time.perf_counter() - start
            with self._watched():
                yield

    @contextmanager
    def _watched(self) -> Iterator[None]:
        if self._stop.is_set():
            raise Stopped
        try:
            yield
        except Exception:
            self._meter.failed = True
            raise


class BatchedSession(SharedSession):
    """A session whose tokens are decoded together with those of others."""

    def __init__(
        self, session: Any, lock: threading.Lock, meter: Meter, stop: threading.Event, passes: SharedPasses
    ) -> None:
        super().__init__(session, lock, meter, stop)
        self._passes = passes
        # The session must not lead back here: a cycle would keep its cache until the collector comes.
        session.feed = partial(_timed_feed, passes, meter)

    def generate(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        """See ``confkv.session.Session.generate``."""
        with self._passes.reply():
            yield from super().generate(*arguments, **options)

    def _token(self) -> AbstractContextManager[None]:
        return self._watched()  # who runs the pass takes the lock


def _timed_feed(passes: SharedPasses, meter: Meter, *arguments: Any) -> None:
    asked = time.perf_counter()
    meter.waited += passes.feed(*arguments) - asked


def token_counter(tokenizer: Any) -> Callable[[str], int]:
    """Counts the tokens of a text."""
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
