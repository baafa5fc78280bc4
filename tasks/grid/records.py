"""What a grid leaves: ``grid.json`` (what was asked for) and a line an episode in ``results.jsonl``."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from tasks.records import KV, Record, Seconds

GRID_FILE, RESULTS_FILE, SUMMARY_FILE, REPORT_FILE = "grid.json", "results.jsonl", "summary.json", "report.html"
TRACES = "traces"

AGENTS = ("model", "oracle", "noop", "random")
HISTORIES = ("persistent", "reprefill")
NO_CACHE = "none"  # policy and model of an agent that has none

#: Reasons that mean that the episode broke: it counts as not solved.
CRASHES = {
    "start_failed": "the environment did not start",
    "browser_lost": "the browser died or hung",
    "env_error": "the environment or the scoring failed",
    "model_error": "the model's session failed",
    "agent_error": "the scripted agent failed",
    "error": "something else failed",
}


class Key(Record):
    """What makes an episode the same one: asked for twice, it is played once.

    ``policy`` is the canonical spec; ``policy`` and ``model`` are "none" for scripted agents.
    """

    suite: str
    task: str
    policy: str
    model: str
    seed: int
    agent: str
    history: str

    @property
    def id(self) -> str:
        """12 hex digits over all fields."""
        told = {name: getattr(self, name) for name in Key.model_fields}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """How a person names it."""
        cache = (
            [] if self.policy == NO_CACHE else [self.policy] + (["reprefill"] if self.history != "persistent" else [])
        )
        who = self.model if self.model != NO_CACHE else self.agent
        return " · ".join([self.task, who, *cache, f"seed {self.seed}"])


class TurnLine(Record):
    """One turn of an episode, at its end.

    Attributes:
        seconds: of the turn, without waiting for the model.
        env_seconds: of them in the environment, for the turn's actions.
        first_token_seconds: from the turn's message to the first sampled token; None without a model.
        prompt_tokens: of the turn's message; ``fed_tokens``: all that were prefilled for it.
        new_tokens: sampled.
        tokens_seen: length of the conversation; ``kept``: positions held, mean over layers.
        bytes: held on the device; ``full_bytes``: what full KV would hold.
    """

    turn: int
    seconds: float = 0.0
    env_seconds: float = 0.0
    first_token_seconds: float | None = None
    prompt_tokens: int = 0
    fed_tokens: int = 0
    new_tokens: int = 0
    tokens_seen: int = 0
    kept: float = 0.0
    bytes: int = 0
    full_bytes: int = 0


class Line(Key):
    """A line of ``results.jsonl``: one episode.

    Attributes:
        site, difficulty: of the task, "" where the suite tells none.
        reason: why it ended: the loop's stop reason, or one of ``CRASHES``.
        error: one line about what broke, None otherwise.
        score_reason: why the reward is what it is, where the suite tells.
        turns, actions: how many were begun.
        tokens: of the conversation; ``prefilled``: fed, which with re-prefilling is far more; ``decoded``: sampled.
        per_turn: a record a turn.
        fingerprint: identity of the weights.
        trace: folder of the episode's own records, within the grid's folder.
    """

    schema_version: Literal[1] = 1
    site: str = ""
    difficulty: str = ""
    success: bool
    raw_reward: float = 0.0
    reason: str
    error: str | None = None
    score_reason: str = ""
    answer: str | None = None
    turns: int = 0
    actions: int = 0
    tokens: int = 0
    prefilled: int = 0
    decoded: int = 0
    kv: KV = Field(default_factory=KV)
    seconds: Seconds = Field(default_factory=Seconds)
    per_turn: list[TurnLine] = Field(default_factory=list)
    fingerprint: str = ""
    trace: str = ""
    started_at: datetime
    finished_at: datetime

    @property
    def key(self) -> Key:
        return Key(**{name: getattr(self, name) for name in Key.model_fields})

    @property
    def crashed(self) -> bool:
        """Whether it broke rather than being played to an end."""
        return self.reason in CRASHES


class GridSettings(Record):
    """``grid.json``: what decides the episodes of a folder. Workers and places are not part of it."""

    schema_version: Literal[1] = 1
    suite: str
    tasks: list[str]
    policies: list[str]
    models: list[str]
    seeds: int
    agent: str
    histories: list[str]
    max_turns: int
    max_new_tokens: int
    temperature: float
    observation: str = "aria"
    dtype: str
    device: str
    chunk: int
    batch: bool = False

    def episodes(self) -> list[Key]:
        """Every episode, in the order of play: what is compared is played close together."""
        return [
            Key(
                suite=self.suite,
                task=task,
                policy=policy,
                model=model,
                seed=seed,
                agent=self.agent,
                history=history,
            )
            for model in self.models
            for seed in range(self.seeds)
            for task in self.tasks
            for history in self.histories
            for policy in self.policies
        ]

    def difference(self, other: GridSettings) -> str:
        """The first setting in which the two differ, in words; "" where they are the same."""
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name.replace('_', ' ')}: {_short(mine, theirs)} there, {_short(theirs, mine)} asked for"
        return ""


def _short(value: Any, other: Any) -> str:
    """A setting in a few words; of two lists, what only this one has."""
    if not isinstance(value, list) or not isinstance(other, list):
        return repr(value) if isinstance(value, str) else str(value)
    own = [item for item in value if item not in other]
    names = " ".join(own[:3]) + (" ..." if len(own) > 3 else "")
    return f"{len(value)}" + (f" (with {names})" if own else "")
