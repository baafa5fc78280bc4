"""Checks of options that several verbs have."""

from __future__ import annotations

import re

from tasks.errors import TaskError


def check(device: str, dtype: str, **least: tuple[int, int]) -> None:
    """Check options before anything is loaded; ``least`` is option -> (value, smallest allowed).

    Raises:
        TaskError: one line that names the option.
    """
    from confkv.models.loader import DTYPES

    if dtype not in ("auto", *DTYPES, *DTYPES.values()):
        raise TaskError(f"--dtype {dtype} is unknown; use one of auto, {', '.join(DTYPES)}")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise TaskError(f"--device {device} is unknown; use cpu, cuda or auto")
    for name, (value, smallest) in least.items():
        if value < smallest:
            raise TaskError(f"--{name.replace('_', '-')} {value} is too small; use {smallest} or more")
