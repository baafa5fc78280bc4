"""What an episode is watched with: whose fault a crash is, what each turn cost, what was logged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from envs.records import Action, Observation
from tasks.folder import RecordedEnv, RunFolder
from tasks.grid.agents import ScriptedAgent
from tasks.grid.records import TurnLine
from tasks.grid.shared import Meter, Stopped


class WatchedEnv(RecordedEnv):
    """The environment of one episode; ``crash`` says how it broke, None while it has not."""

    def __init__(self, env: Any, folder: RunFolder, stop: threading.Event) -> None:
        super().__init__(env, folder)
        self._stop = stop
        self.crash: str | None = None

    @contextmanager
    def _watched(self, crash: str) -> Iterator[None]:
        if self._stop.is_set():
            raise Stopped
        try:
            yield
        except Exception:
            self.crash = self.crash or crash
            raise

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin the episode."""
        with self._watched("start_failed"):
            return super().reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One action."""
        with self._watched("env_error"):
            found = super().step(action)
        if found[4].get("worker_restarted"):
            self.crash = self.crash or "browser_lost"
        return found

    def finish(self, answer: str | None) -> tuple[float, str]:
        """The score at the end."""
        with self._watched("env_error"):
            return super().finish(answer)


class WatchedAgent:
    """A scripted agent; ``failed`` says whether it raised."""

    def __init__(self, agent: ScriptedAgent) -> None:
        self._agent, self.failed = agent, False

    def act(self, observation: Observation) -> Action:
        """The next action."""
        try:
            return self._agent.act(observation)
        except Exception:
            self.failed = True
            raise


class TurnLog:
    """From the loop's events to a record a turn."""

    def __init__(self, env: WatchedEnv, session: Any, meter: Meter) -> None:
        self._env, self._session, self._meter = env, session, meter
        self._line: TurnLine | None = None
        self._since, self._env_since, self._fed_since = 0.0, 0.0, 0
        self.turns: list[TurnLine] = []

    def event(self, event: dict[str, Any]) -> None:
        """Take in one event."""
        kind = event.get("type")
        if kind == "turn_start":
            self.flush()
            self._line = TurnLine(turn=event["turn"])
            self._since, self._env_since, self._fed_since = self._meter.clock(), self._env.seconds, self._meter.fed
        elif self._line is not None and kind == "token":
            self._line.new_tokens += 1
        elif self._line is not None and kind == "reply":
            self._line.prompt_tokens = int(event.get("prompt_tokens", 0))
            self._line.first_token_seconds = event.get("first_token_seconds")
        elif kind == "turn_end":
            self.flush()

    def flush(self) -> None:
        """Close the turn under way, if there is one."""
        line, self._line = self._line, None
        if line is None:
            return
        stats = self._session.stats
        line.seconds = round(self._meter.clock() - self._since, 4)
        line.env_seconds = round(self._env.seconds - self._env_since, 4)
        if line.first_token_seconds is not None:
            line.first_token_seconds = round(line.first_token_seconds, 4)
        line.fed_tokens = self._meter.fed - self._fed_since
        line.tokens_seen, line.bytes, line.full_bytes = stats.tokens_seen, stats.bytes, stats.full_bytes
        line.kept = round(sum(stats.kept_per_layer) / max(1, len(stats.kept_per_layer)), 1)
        self.turns.append(line)


@contextmanager
def logged_here(stream: TextIO) -> Iterator[None]:
    """Send what this thread's agent logs, tracebacks above all, to ``stream``."""
    logger, handler, here = logging.getLogger("agent"), logging.StreamHandler(stream), threading.get_ident()
    handler.addFilter(lambda record: record.thread == here)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def off_the_terminal() -> Iterator[None]:
    """Keep what agents log to the episodes' own files, in every thread."""
    logger = logging.getLogger("agent")
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before
