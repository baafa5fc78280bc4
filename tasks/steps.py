"""From the loop's events to the lines of ``steps.jsonl``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tasks.folder import RecordedEnv, RunFolder
from tasks.records import ActionRecord, StepLine


class StepWriter:
    """Turns the loop's events into lines of ``steps.jsonl``."""

    def __init__(
        self, folder: RunFolder, env: RecordedEnv, session: Any, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._folder, self._env, self._session = folder, env, session
        self._clock = clock
        self._line: StepLine | None = None
        self._since = 0.0
        self._confidences: list[float] = []
        self.actions = 0
        self.turns = 0

    def event(self, event: dict[str, Any]) -> None:
        """Take in one event."""
        kind = event.get("type")
        if kind == "turn_start":
            self.flush(complete=False)
            observation = event["obs"]
            self._since, self._confidences = self._clock(), []
            self._line = StepLine(
                turn=event["turn"],
                url=observation.get("url", ""),
                title=observation.get("title", ""),
                observation=observation.get("text", ""),
                prompt=event.get("prompt") or "",
                screenshot=self._env.shot,
            )
            return
        line = self._line
        if line is None:
            return
        if kind == "token":
            token = event["token"]
            line.new_tokens += 1
            line.reply += token.text
            self._confidences.append(token.confidence)
        elif kind == "reply":
            line.reply, line.parse_error = event["text"], event.get("error")
            line.prompt_tokens = int(event.get("prompt_tokens", 0))
            line.first_token_seconds = event.get("first_token_seconds")
        elif kind == "action":
            self.actions += 1
            line.actions.append(self._action(event))
        elif kind == "turn_end":
            self.flush(complete=True)

    def flush(self, *, complete: bool) -> None:
        """Write the turn under way, if there is one."""
        line, self._line = self._line, None
        if line is None:
            return
        stats = self._session.stats
        line.complete = complete
        line.seconds = round(self._clock() - self._since, 4)
        if self._confidences:
            line.confidence_mean = sum(self._confidences) / len(self._confidences)
        line.tokens_seen = stats.tokens_seen
        line.kept = sum(stats.kept_per_layer) / max(1, len(stats.kept_per_layer))
        line.bytes, line.peak_bytes, line.full_bytes = stats.bytes, stats.peak_bytes, stats.full_bytes
        self.turns += 1
        self._folder.step(line)

    def _action(self, event: dict[str, Any]) -> ActionRecord:
        observation, info = event["obs"], event.get("info") or {}
        return ActionRecord(
            name=str(event["action"].get("name", "")),
            args=dict(event["action"].get("args") or {}),
            effect=observation.get("effect", ""),
            error=observation.get("error", ""),
            reward=float(event.get("reward", 0.0)),
            raw_reward=float(info.get("raw_reward", 0.0)),
            seconds=round(float(info.get("seconds", 0.0)), 4),
            url=observation.get("url", ""),
            title=observation.get("title", ""),
            screenshot=self._env.shot,
        )
