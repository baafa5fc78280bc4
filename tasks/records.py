"""What a run leaves: ``episode.json``, a line a turn in ``steps.jsonl``, a row a token in ``decode.npz``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION: Literal[1] = 1

EPISODE_FILE = "episode.json"
STEPS_FILE = "steps.jsonl"
DECODE_FILE = "decode.npz"
FIGURE_FILE = "cache.png"
LOG_FILE = "error.txt"
SCREENSHOTS = "screenshots"


class Record(BaseModel):
    """A record of the run's folder; unknown fields are an error, so a typing slip cannot pass silently."""

    model_config = ConfigDict(extra="forbid")


class KV(Record):
    """The cache over the episode, in bytes allocated on the device; ``host_bytes``: of the archive in host memory.

    ``full_bytes`` is what full KV would have held for ``tokens_seen`` tokens; ``peak_ratio`` is full / peak.
    ``recalls`` counts the times positions came back from the archive, ``recalled`` the (layer, position) pairs,
    ``looks`` the tokens that were run again with them.
    """

    peak_bytes: int = 0
    mean_bytes: float = 0.0
    full_bytes: int = 0
    bytes: int = 0
    bytes_by_kind: dict[str, int] = Field(default_factory=dict)
    kept_per_layer: list[int] = Field(default_factory=list)
    evictions: int = 0
    rebases: int = 0
    host_bytes: int = 0
    recalls: int = 0
    recalled: int = 0
    looks: int = 0

    @classmethod
    def of(cls, stats: Any) -> KV:
        """From a session's statistics."""
        return cls(**{name: getattr(stats, name) for name in cls.model_fields})

    @property
    def peak_ratio(self) -> float | None:
        """How many times more full KV would have held than this cache at its peak; None before any token."""
        return self.full_bytes / self.peak_bytes if self.peak_bytes and self.full_bytes else None


class Seconds(Record):
    """Wall time by part: ``prefill``, ``decode``, ``manage``, ``recall`` and ``look`` of the session, ``env`` in the
    environment, ``total`` of the episode. Not part of ``total``: ``load`` of the model, and ``wait`` for a model that
    other episodes were using."""

    prefill: float = 0.0
    decode: float = 0.0
    manage: float = 0.0
    recall: float = 0.0
    look: float = 0.0
    env: float = 0.0
    load: float = 0.0
    wait: float = 0.0
    total: float = 0.0

    @classmethod
    def of(cls, stats: Any, **others: float) -> Seconds:
        """The session's parts from its statistics, the others as given."""
        parts = ("prefill", "decode", "manage", "recall", "look")
        return cls(**{part: float(stats.seconds.get(part, 0.0)) for part in parts}, **others)


class Settings(Record):
    """How the episode was asked for, beside task, model, policy and seed."""

    max_turns: int
    max_new_tokens: int
    temperature: float
    observation: str = "aria"
    dtype: str
    device: str
    chunk: int
    screenshots: bool
    headed: bool

    @classmethod
    def of(cls, asked: Any, **others: bool) -> Settings:
        """What ``asked`` says of them, and ``others``."""
        told: dict[str, Any] = {name: getattr(asked, name) for name in cls.model_fields if name not in others}
        return cls(**told | others)


class Episode(Record):
    """``episode.json``: one episode, whole or cut short (``stop_reason`` says which)."""

    schema_version: Literal[1] = SCHEMA_VERSION
    task: str
    goal: str = ""
    model: str
    model_fingerprint: str = ""
    policy: str
    seed: int
    success: bool = False
    reward: float = 0.0
    raw_reward: float = 0.0
    stop_reason: str
    error: str | None = None
    answer: str | None = None
    score_reason: str = ""
    turns: int = 0
    actions: int = 0
    tokens_seen: int = 0
    decode_steps: int = 0
    kv: KV = Field(default_factory=KV)
    seconds: Seconds = Field(default_factory=Seconds)
    settings: Settings
    versions: dict[str, str] = Field(default_factory=dict)
    started_at: datetime
    finished_at: datetime
    out: str


class ActionRecord(Record):
    """One action of a turn and what came of it. ``screenshot`` is the file taken after it."""

    name: str
    args: dict[str, Any]
    effect: str = ""
    error: str = ""
    reward: float = 0.0
    raw_reward: float = 0.0
    seconds: float = 0.0
    url: str = ""
    title: str = ""
    screenshot: str | None = None


class StepLine(Record):
    """One line of ``steps.jsonl``: a turn from the page it saw to what its actions did.

    ``complete`` is False for a turn that was cut short. Bytes and token counts: at the turn's end. ``prompt_tokens``
    are the turn's message's, ``first_token_seconds`` run from feeding it to the first sampled token.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    turn: int
    url: str = ""
    title: str = ""
    observation: str = ""
    prompt: str = ""
    screenshot: str | None = None
    reply: str = ""
    parse_error: str | None = None
    actions: list[ActionRecord] = Field(default_factory=list)
    complete: bool = True
    prompt_tokens: int = 0
    first_token_seconds: float | None = None
    new_tokens: int = 0
    confidence_mean: float | None = None
    tokens_seen: int = 0
    kept: float = 0.0
    bytes: int = 0
    peak_bytes: int = 0
    full_bytes: int = 0
    seconds: float = 0.0


DECODE_COLUMNS = ("turn", "confidence", "budget", "kept", "bytes", "seconds", "recalled", "looked")


def decode_columns(steps: Iterable[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """A session's step records as one array a column; ``budget`` is NaN where nothing bounds the cache."""
    rows = [
        tuple(float("nan") if getattr(s, name) is None else getattr(s, name) for name in DECODE_COLUMNS) for s in steps
    ]
    table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(DECODE_COLUMNS))
    columns = {name: table[:, i] for i, name in enumerate(DECODE_COLUMNS)}
    kinds = {"turn": np.int32, "bytes": np.int64, "recalled": np.int32, "looked": np.bool_}
    return {name: column.astype(kinds.get(name, np.float32)) for name, column in columns.items()}


def read_decode(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of a ``decode.npz``."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in DECODE_COLUMNS}


def read_episode(folder: Path) -> Episode:
    """The episode of a run's folder.

    Raises:
        OSError: no such file. pydantic.ValidationError: another schema.
    """
    return Episode.model_validate_json((folder / EPISODE_FILE).read_text(encoding="utf-8"))


def read_steps(folder: Path) -> list[StepLine]:
    """The turns of a run's folder, in order; a last line cut by a kill is left out."""
    text = (folder / STEPS_FILE).read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [StepLine.model_validate_json(line) for line in whole.split("\n") if line.strip()]


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path``, sync it, move it into place: a reader sees old or new, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
