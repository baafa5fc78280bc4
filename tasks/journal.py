"""A file of lines that outlives a kill at any moment: append-only, synced, held by one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tasks.errors import TaskError
from tasks.folder import check_folder

LOCK_FILE = ".lock"


def whole_lines(path: Path) -> list[str]:
    """The complete lines of the file, none where there is no file. A last line that a kill cut short is taken off."""
    if not path.exists():
        return []
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        with path.open("r+b") as file:
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
    return data[:end].decode("utf-8").split("\n")[:-1]  # splitlines() would also cut at separators inside a text


def append(path: Path, lines: Iterable[str]) -> None:
    """Add lines; they are on disk before this returns.

    Raises:
        TaskError: the file cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise TaskError(f"cannot write {path} ({error.strerror or error}); free space") from error


@contextmanager
def held(out: Path, what: str) -> Iterator[None]:
    """Make the folder ``out`` and keep it for this process until the block ends; ``what`` names who writes there.

    Raises:
        TaskError: the folder cannot be written, or another process holds it.
    """
    check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise TaskError(f"another {what} is writing to {out}; wait for it or name another --out") from None
    try:
        yield
    finally:
        lock.release()
