"""Sessions on disk: one safetensors file, tensors beside a JSON header, readable without this package."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from confkv.checkpoint import Mark
from confkv.errors import SessionFileError

if TYPE_CHECKING:
    from confkv.engine import Engine

FORMAT = "confkv-session-4"


def write(path: Path, mark: Mark, engine: Engine) -> None:
    """Write a checkpoint; the file appears whole or not at all."""
    header = {
        "format": FORMAT,
        "model": engine.name,
        "fingerprint": engine.fingerprint,
        "policy": engine.policy.spec,
        "state": json.dumps(mark.state),
    }
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({key: value.contiguous() for key, value in mark.tensors.items()}, partial, metadata=header)
        os.replace(partial, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise SessionFileError(f"cannot write the session to {path}: {reason}; choose another place") from error
    finally:
        with suppress(OSError):  # where the folder itself could not be made, there is nothing to remove
            partial.unlink(missing_ok=True)


def read(path: Path, engine: Engine) -> Mark:
    """Read a checkpoint and check that it belongs to this model and policy."""
    if not path.is_file():
        raise SessionFileError(f"no session file at {path}; sessions are written by Session.save()")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise SessionFileError(f"{path} is not a confkv session (format {header.get('format')!r})")
            if header["fingerprint"] != engine.fingerprint:
                raise SessionFileError(
                    f"{path} was made with model '{header['model']}', not with '{engine.name}'; load that model"
                )
            if header["policy"] != engine.policy.spec:
                raise SessionFileError(
                    f"{path} was made with policy '{header['policy']}', not '{engine.policy.spec}'; "
                    f"use policy='{header['policy']}'"
                )
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        return Mark(tensors, json.loads(header["state"]))
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise SessionFileError(f"{path} is damaged or not a session file ({type(error).__name__})") from error
