"""Tool-use tasks by name: ``bfcl/base_0`` to ``bfcl/miss_param_199``, ``tau2/telecom_0`` to ``tau2/telecom_113``."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from envs.tools import ToolEnv, World
from envs.tools.world import ToolsMissing
from tasks.errors import TaskError

BFCL, TAU2 = "bfcl/", "tau2/"


def is_tool_task(task_id: str) -> bool:
    """Whether a task's name is one of a tool-use benchmark."""
    return task_id.startswith((BFCL, TAU2))


def make_tool_env(task_id: str, *, observation: str = "aria", **options: Any) -> ToolEnv:
    """The environment of a task. What else a browser's may be told (``options``) changes nothing: results of calls are
    never shortened, as they are what is to be kept.

    Raises:
        TaskError: there is no such task, or pages are to be observed in a way of their own.
        ToolsMissing: the benchmark's package is not installed.
    """
    if observation != "aria":
        raise TaskError(f"--observation {observation} is for pages; {task_id} has text only")
    return ToolEnv(world(task_id))


def world(task_id: str) -> World:
    """The world of a task. For what it raises see :func:`make_tool_env`."""
    if task_id.startswith(BFCL):
        from envs.tools.bfcl import CATEGORIES, BfclWorld, load

        entry = "multi_turn_" + task_id.removeprefix(BFCL)
        category = task_id.removeprefix(BFCL).rpartition("_")[0]
        if category in CATEGORIES and entry in load(category):
            return BfclWorld(entry)
    elif task_id.startswith(TAU2 + "telecom_"):
        from envs.tools import telecom

        number = task_id.removeprefix(TAU2 + "telecom_")
        if number.isascii() and number.isdigit() and int(number) < len(telecom.load()):
            return telecom.TelecomWorld(int(number))
    raise TaskError(f"there is no task {task_id!r}; `confkv tasks` lists them")


def bfcl_ids(category: str) -> list[str]:
    """The tasks of a category of BFCL multi-turn, in its order.

    Raises:
        ToolsMissing: the package is not installed.
    """
    from envs.tools.bfcl import load

    return [BFCL + entry.removeprefix("multi_turn_") for entry in load(category)]


def telecom_ids() -> list[str]:
    """The tasks of tau2's telecom domain, base split, in its order.

    Raises:
        ToolsMissing: the package is not installed.
    """
    from envs.tools.telecom import load

    return [f"{TAU2}telecom_{index}" for index in range(len(load()))]


@cache
def gold_tokens() -> dict[str, int]:
    """Tokens of each ``long_context`` episode played with the gold calls, by Qwen2.5's tokenizer and template.

    The tool schemas are counted, so this is what a full cache holds at the end.
    """
    text = resources.files("tasks.tools").joinpath("long_context_tokens.json").read_text(encoding="utf-8")
    return {str(name): int(count) for name, count in json.loads(text).items()}


def list_bfcl() -> list[tuple[str, str]]:
    """(id, one-line summary) of BFCL's tasks; none without the extra ``tools``."""
    found: list[tuple[str, str]] = []
    try:
        from envs.tools.bfcl import CATEGORIES, load

        for category in CATEGORIES:
            ids = bfcl_ids(category)
            entries: list[Any] = [entry for entry, _ in load(category).values()]
            found += [(name, f"BFCL: {_short(entry['question'][0])}") for name, entry in zip(ids, entries, strict=True)]
    except ToolsMissing:
        pass  # an optional extra; naming such a task says how to install it
    return found


def list_tau2() -> list[tuple[str, str]]:
    """(id, one-line summary) of tau2's tasks; none without the extra ``tools``."""
    try:
        from envs.tools.telecom import load

        return [(name, f"tau2: {task}"[:100]) for name, task in zip(telecom_ids(), load(), strict=True)]
    except ToolsMissing:
        return []


def _short(messages: list[dict[str, Any]]) -> str:
    text = " ".join(" ".join(str(message["content"]) for message in messages).split())
    return text[:80] + ("…" if len(text) > 80 else "")
