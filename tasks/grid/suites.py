"""The suites that a grid can play, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.errors import TaskError
from tasks.grid.agents import ScriptedAgent


@dataclass(frozen=True)
class TaskInfo:
    """A task of a suite. ``site`` and ``difficulty`` group it in reports; "" where there is nothing to tell."""

    id: str
    site: str = ""
    difficulty: str = ""


class Suite(Protocol):
    """Tasks that are played and scored in one way. Used from several threads at a time."""

    name: str

    def tasks(self) -> Sequence[TaskInfo]:
        """All tasks, in the suite's order.

        Raises:
            an exception with ``user_facing`` set: what the suite needs (a browser, sites) is not there.
        """

    def make_env(
        self,
        task_id: str,
        *,
        seed: int,
        count_tokens: Callable[[str], int] | None = None,
        max_tokens: int = 1500,
        screenshots: bool = False,
        observation: str = "aria",
        headed: bool = False,
    ) -> Any:
        """A new gymnasium environment that plays the task; closing it frees all it took."""

    def oracle(self, task_id: str, seed: int) -> ScriptedAgent | None:
        """An agent that solves the task, None where the suite has none."""


class ResolvedSuite:
    """Tasks that ``confkv run --task`` knows by ids that begin with ``NAME/``."""

    def __init__(
        self,
        name: str,
        describe: Callable[[str], TaskInfo],
        oracle: Callable[[str], ScriptedAgent | None] = lambda task_id: None,
    ) -> None:
        self.name, self._describe, self._oracle = name, describe, oracle

    def tasks(self) -> Sequence[TaskInfo]:
        """See :class:`Suite`."""
        from envs.browsergym_task import list_ids
        from envs.chromium import find_chromium
        from tasks.resolve import list_tasks

        find_chromium()
        if self.name == "miniwob":
            list_ids("miniwob")  # says what to install where it is missing
        return [self._describe(name) for name, _ in list_tasks(self.name)]

    def make_env(self, task_id: str, **options: Any) -> Any:
        """See :class:`Suite`."""
        from tasks.resolve import make_env

        return make_env(task_id, **options)

    def oracle(self, task_id: str, seed: int) -> ScriptedAgent | None:
        """See :class:`Suite`."""
        return self._oracle(task_id)


def _demo() -> Suite:
    from tasks.demo.oracle import ShopOracle

    oracles: dict[str, Callable[[], ScriptedAgent]] = {"demo/shop": ShopOracle}
    return ResolvedSuite(
        "demo",
        lambda name: TaskInfo(name, site="shop", difficulty="easy"),
        lambda name: oracles[name]() if name in oracles else None,
    )


def _miniwob() -> Suite:
    return ResolvedSuite("miniwob", lambda name: TaskInfo(name, site="miniwob"))


#: name -> what makes it: a function, or "module:function" for one that is imported when it is asked for.
SUITES: dict[str, Callable[[], Suite] | str] = {
    "demo": _demo,
    "miniwob": _miniwob,
    "vwa-mini": "tasks.grid.vwa:mini",
    "visualwebarena": "tasks.grid.vwa:reachable",
    "bfcl-multi-turn": "tasks.tools.suites:multi_turn",
    "bfcl-long-context": "tasks.tools.suites:long_context",
    "bfcl-long-context-8k": "tasks.tools.suites:long_context_8k",
    "bfcl-long-context-12k": "tasks.tools.suites:long_context_12k",
    "tau2-telecom": "tasks.tools.suites:telecom",
}


def suite(name: str) -> Suite:
    """The suite of this name.

    Raises:
        TaskError: there is none.
    """
    make = SUITES.get(name)
    if make is None:
        raise TaskError(f"--suite {name} is unknown; use one of {', '.join(SUITES)}")
    if isinstance(make, str):
        module, _, function = make.partition(":")
        make = getattr(importlib.import_module(module), function)
    made: Suite = make()
    return made
