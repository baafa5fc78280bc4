"""Room on disk, locks between processes, and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from confkv.cache_dir import VARIABLE, cache_dir
from confkv.errors import ModelError
from confkv.models.progress import Progress

MARGIN = 100_000_000  # bytes left free beside what a step writes


def make_folder(path: Path) -> Path:
    """Create ``path`` with its parents.

    Raises:
        ModelError: the folder cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"cannot write {path} ({error.strerror}); point {VARIABLE} at a folder you may write"
        ) from error
    return path


def require_space(folder: Path, need: int, what: str) -> None:
    """Check that ``need`` bytes fit on the disk of ``folder`` before anything is written.

    Raises:
        ModelError: they do not.
    """
    free = shutil.disk_usage(make_folder(folder)).free
    if free < need + MARGIN:
        raise ModelError(
            f"{what} needs {(need + MARGIN) / 1e9:.1f} GB in {folder} and {free / 1e9:.1f} GB is free; "
            f"free some, or point {VARIABLE} at a larger disk"
        )


@contextmanager
def locked(key: str, progress: Progress) -> Iterator[None]:
    """Hold the cache's lock for ``key``: a second process waits, then finds what the first one made."""
    lock = FileLock(make_folder(cache_dir() / "locks") / f"{key}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"waiting for another process that prepares {key}", 0, None)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder to fill: it becomes ``target`` when the body ends, and vanishes if that fails.

    Call with the lock for ``target`` held: leftovers of a killed process are removed first.
    """
    make_folder(target.parent)
    prefix = f".{target.name}.part-"
    for leftover in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        yield part
        part.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        os.replace(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
