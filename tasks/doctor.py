"""What confkv needs on this machine: what is there, what is missing, and the command that mends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from confkv.cache_dir import VARIABLE, cache_dir
from confkv.errors import ConfkvError
from confkv.models.aliases import ALIASES, DEFAULT_ALIAS
from confkv.models.disk import make_folder
from confkv.models.source import ready_folder
from envs.chromium import find_chromium
from envs.errors import EnvError

PIP = f"{sys.executable} -m pip install"
# BrowserGym pins an old Playwright in its metadata, so it is no dependency of ours: --no-deps.
BROWSERGYM = ("browsergym-core", "browsergym-miniwob")
CHROMIUM = f"{sys.executable} -m playwright install --with-deps chromium, or: apt-get install chromium"
BROWSER_SECONDS = 20


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``needed``: a run fails without it; ``mend`` is empty where all is well."""

    name: str
    ok: bool
    detail: str
    mend: str = ""
    needed: bool = True

    def as_dict(self) -> dict[str, str | bool]:
        """The check as plain values."""
        return asdict(self)


def examine() -> Iterator[Check]:
    """All checks, each as soon as it is done. Changes nothing but the cache folder, which it creates."""
    yield _python()
    yield from _packages()
    yield _torch()
    yield _chromium()
    yield _cache()
    yield from _models()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info >= (3, 11)
    return Check("python", ok, f"{version} ({sys.executable})", "" if ok else "install Python 3.11 or newer")


def _packages() -> Iterator[Check]:
    """Each dependency against the range our own metadata asks for, then BrowserGym."""
    try:
        required = metadata.requires("confkv") or []
    except metadata.PackageNotFoundError:
        yield Check("confkv", False, "not installed as a package", f"{PIP} -e .")
        return
    for requirement in map(Requirement, required):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _package(requirement, f"{PIP} '{requirement}'")
    for name in BROWSERGYM:
        yield _package(Requirement(name), f"{PIP} --no-deps {' '.join(BROWSERGYM)}")


def _package(requirement: Requirement, mend: str) -> Check:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Check(requirement.name, False, "not installed", mend)
    if not requirement.specifier.contains(version, prereleases=True):
        return Check(requirement.name, False, f"{version} is outside {requirement.specifier}", mend)
    return Check(requirement.name, True, version)


def _torch() -> Check:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("compute", False, f"torch does not load ({error})", f"{PIP} --force-reinstall torch")
    from confkv.models.loader import cpu_has_bf16

    if torch.cuda.is_available():
        where = f"GPU {torch.cuda.get_device_name()}"
    else:
        where = f"CPU, {os.cpu_count()} cores, {'bf16' if cpu_has_bf16() else 'fp32 (no bf16 instructions)'}"
    return Check("compute", True, where)


def _chromium() -> Check:
    try:
        path = find_chromium()
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=BROWSER_SECONDS)
    except EnvError as error:
        return Check("chromium", False, str(error), CHROMIUM)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("chromium", False, f"does not start ({error})", CHROMIUM)
    if done.returncode != 0:
        cause = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
        return Check("chromium", False, f"{path} does not start ({cause})", CHROMIUM)
    return Check("chromium", True, f"{done.stdout.strip()} ({path})")


def _cache() -> Check:
    folder = cache_dir()
    try:
        make_folder(folder)
    except ConfkvError as error:
        return Check("cache", False, str(error), f"export {VARIABLE}=/a/folder/you/may/write")
    if not os.access(folder, os.W_OK):
        return Check("cache", False, f"{folder} is not writable", f"export {VARIABLE}=/a/folder/you/may/write")
    free = shutil.disk_usage(folder).free
    need = ALIASES[DEFAULT_ALIAS].gguf_bytes + ALIASES[DEFAULT_ALIAS].ready_bytes
    detail = f"{folder}, {free / 1e9:.1f} GB free"
    if free < need and ready_folder(ALIASES[DEFAULT_ALIAS]) is None:
        return Check("cache", False, detail, f"free {need / 1e9:.1f} GB, or export {VARIABLE}=/a/larger/disk")
    return Check("cache", True, detail)


def _models() -> Iterator[Check]:
    """The aliases. None is needed beforehand: a run fetches the one it uses."""
    for name, alias in ALIASES.items():
        folder: Path | None = ready_folder(alias)
        detail = str(folder) if folder else f"not fetched yet ({alias.gguf_bytes / 1e9:.1f} GB)"
        mend = "" if folder else f"confkv models --fetch {name}"
        yield Check(f"model {name}", folder is not None, detail, mend, needed=False)
