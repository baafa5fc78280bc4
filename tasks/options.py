"""Checks of options that several verbs have."""

from __future__ import annotations

import re
from typing import Any, get_args

from envs.records import Mode
from tasks.errors import TaskError


def check_temperature(value: float) -> None:
    """Check that replies can be sampled at this temperature.

    Raises:
        TaskError: it is negative, infinite or no number.
    """
    if not 0.0 <= value < float("inf"):
        raise TaskError(f"--temperature {value:g} must be 0 (greedy) or more")


def check_observation(mode: str) -> None:
    """Check that pages can be observed in this way.

    Raises:
        TaskError: there is no such way.
    """
    if mode not in get_args(Mode):
        raise TaskError(f"--observation {mode} is unknown; use one of {', '.join(get_args(Mode))}")


def check_episode(asked: Any, **least: tuple[int, int]) -> None:
    """Check the options that every way of playing an episode has; ``least`` as for :func:`check`.

    Raises:
        TaskError: one line that names the option.
    """
    check(
        asked.device,
        asked.dtype,
        max_turns=(asked.max_turns, 1),
        max_new_tokens=(asked.max_new_tokens, 1),
        chunk=(asked.chunk, 1),
        **least,
    )
    check_temperature(asked.temperature)
    check_observation(asked.observation)


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
