"""The folder of a grid: ``grid.json`` says what is played there, ``results.jsonl`` what has been."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from tasks import journal
from tasks.errors import TaskError
from tasks.folder import check_folder
from tasks.grid.records import GRID_FILE, RESULTS_FILE, TRACES, GridSettings, Line
from tasks.records import write_atomically


class GridLog:
    """The lines of one folder, by key. Open with :func:`open_grid`; threads may add to it."""

    def __init__(self, out: Path) -> None:
        self.path = out / RESULTS_FILE
        self.lines = {line.key.id: line for line in read_lines(self.path)}
        self._lock = threading.Lock()

    def add(self, line: Line) -> None:
        """An episode that is over; on disk before this returns.

        Raises:
            TaskError: it cannot be written.
        """
        with self._lock:
            journal.append(self.path, [line.model_dump_json()])
            self.lines[line.key.id] = line

    def fingerprints(self, model: str) -> set[str]:
        """Of the weights that a model's episodes on file were played with."""
        return {line.fingerprint for line in self.lines.values() if line.model == model}


def begin_trace(final: Path) -> Path:
    """The name under which an episode's folder is made, until it is whole and moved to ``final``.

    What an episode that was killed, or has no line, left under either name is removed.
    """
    partial = final.with_name(f".{final.name}.partial")
    for leftover in (final, partial):
        shutil.rmtree(leftover, ignore_errors=True)
    return partial


def read_lines(path: Path) -> list[Line]:
    """The lines of a ``results.jsonl``, in order; a last one that a kill cut short is taken off the file.

    Raises:
        TaskError: a line is not an episode.
    """
    lines = []
    for number, text in enumerate(journal.whole_lines(path), 1):
        try:
            lines.append(Line.model_validate_json(text))
        except ValidationError as error:
            what = f"{'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}"
            raise TaskError(f"{path} line {number} is not an episode of this version ({what})") from error
    return lines


def read_settings(out: Path) -> GridSettings:
    """What a folder's grid was asked for.

    Raises:
        TaskError: the folder holds no grid.
    """
    try:
        return GridSettings.model_validate_json((out / GRID_FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{out} holds no grid ({GRID_FILE} is missing); name the --out of a `confkv eval`") from error
    except ValidationError as error:
        raise TaskError(f"{out / GRID_FILE} is of another version of confkv; name another folder") from error


def check_out(out: Path, settings: GridSettings, resume: bool) -> None:
    """See that a grid can be written to ``out`` before anything is loaded. Nothing is created.

    Raises:
        TaskError: it cannot be written, holds something else, or a grid of other settings; says what to do.
    """
    check_folder(out)
    # Hidden files are the lock, and what a kill left of a file that was being written.
    there = [path for path in out.iterdir() if not path.name.startswith(".")] if out.exists() else []
    if not there:
        return
    if not (out / GRID_FILE).exists():
        raise TaskError(f"--out {out} is not empty and holds no grid; name another folder")
    if not resume:
        raise TaskError(f"--out {out} holds a grid already; continue it with --resume, or name another folder")
    if difference := read_settings(out).difference(settings):
        raise TaskError(f"--out {out} was made with other settings ({difference}); name another folder")


@contextmanager
def open_grid(out: Path, settings: GridSettings, resume: bool) -> Iterator[GridLog]:
    """The log of a folder, held by this process alone until the block ends; what a kill left half done is removed.

    Raises:
        TaskError: as :func:`check_out`, or another process writes there.
    """
    check_out(out, settings, resume)
    with journal.held(out, "grid"):
        check_out(out, settings, resume)  # another may have begun one in between
        if not (out / GRID_FILE).exists():
            write_atomically(out / GRID_FILE, (settings.model_dump_json(indent=1) + "\n").encode())
        for partial in (out / TRACES).glob(".*.partial"):
            shutil.rmtree(partial, ignore_errors=True)
        for temporary in out.glob(".*.tmp"):
            temporary.unlink(missing_ok=True)
        yield GridLog(out)
