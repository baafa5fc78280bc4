"""``results.jsonl``: one line a finished measurement, append-only and synced, so that a second start skips it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from tasks import journal
from tasks.errors import TaskError
from tasks.records import Record

RESULTS_FILE = "results.jsonl"

Scalar = int | float | str | bool


def digest(text: str) -> str:
    """What a text is known by: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Identity(Record):
    """What makes a measurement the same one: asked for twice, it is made once.

    Attributes:
        bench: name of the bench.
        model: as asked for; ``fingerprint`` is what counts.
        fingerprint: identity of the weights.
        policy: canonical spec.
        text: the :func:`digest` of the text, "" where no text is used.
        parameters: everything else that changes the outcome.
    """

    bench: str
    model: str
    fingerprint: str
    policy: str
    text: str
    parameters: dict[str, Scalar]

    @property
    def key(self) -> str:
        """16 hex digits over all but the model's name, which is only another word for the fingerprint."""
        told = self.model_dump(exclude={"model"})
        return digest(json.dumps(told, sort_keys=True))


class Row(Record):
    """A line of ``results.jsonl``; each bench adds its figures. ``seconds`` is wall time of the measurement."""

    identity: Identity
    seconds: float


R = TypeVar("R", bound=Row)


class ResultLog(Generic[R]):
    """The measurements of one folder. Open with :func:`open_log`."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self.path = path
        self.rows: dict[str, R] = {}
        for number, line in enumerate(journal.whole_lines(path), 1):
            try:
                row = kind.model_validate_json(line)
            except ValidationError as error:
                what = error.errors()[0]["msg"]
                raise TaskError(
                    f"{path} line {number} is not a row of this bench ({what}); name another --out"
                ) from error
            self.rows[row.identity.key] = row

    def measured(self, identity: Identity, measure: Callable[[], R]) -> R:
        """The row of ``identity``: the one on file, else a new one, which is on disk before this returns."""
        row = self.rows.get(identity.key)
        if row is not None:
            return row
        row = measure()
        self.add(row)
        return row

    def add(self, *rows: R) -> None:
        """New rows; they are on disk before this returns."""
        journal.append(self.path, [row.model_dump_json() for row in rows])
        self.rows.update((row.identity.key, row) for row in rows)


@contextmanager
def open_log(out: Path, kind: type[R]) -> Iterator[ResultLog[R]]:
    """The log of a folder, held by this process alone until the block ends.

    Raises:
        TaskError: the folder cannot be written, is in use, or holds rows of another bench.
    """
    with journal.held(out, "bench"):
        yield ResultLog(out / RESULTS_FILE, kind)
