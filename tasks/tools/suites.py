"""Suites of tool use: BFCL multi-turn and tau2 telecom, played in the same grid as the browser's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envs.records import Action, Observation
from envs.tools import RESPOND
from tasks.grid.agents import ScriptedAgent, action
from tasks.grid.suites import TaskInfo
from tasks.tools.tasks import bfcl_ids, gold_tokens, make_tool_env, telecom_ids, world

#: Upper bounds of the groups of lengths, tokens.
LENGTHS = (8_000, 12_000, 16_000, 32_000)


class GoldAgent:
    """Plays a benchmark's own solution, whatever is seen."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self._actions = iter(actions)

    def act(self, observation: Observation) -> Action:
        """See :class:`tasks.grid.agents.ScriptedAgent`."""
        return next(self._actions, action(RESPOND, text=""))


class ToolSuite:
    """Tasks of one benchmark.

    Args:
        name: the suite's.
        tasks: lists them.
    """

    def __init__(self, name: str, tasks: Callable[[], list[TaskInfo]]) -> None:
        self.name, self._tasks = name, tasks

    def tasks(self) -> Sequence[TaskInfo]:
        """See :class:`tasks.grid.suites.Suite`."""
        return self._tasks()

    def make_env(self, task_id: str, **options: Any) -> Any:
        """See :class:`tasks.grid.suites.Suite`."""
        return make_tool_env(task_id, **options)

    def oracle(self, task_id: str, seed: int) -> ScriptedAgent | None:
        """See :class:`tasks.grid.suites.Suite`."""
        return GoldAgent(world(task_id).gold())


def length_group(tokens: int) -> str:
    """The group of an episode that has so many tokens, as in ``8k-12k``."""
    below = 0
    for bound in LENGTHS:
        if tokens < bound:
            return f"{below // 1000}k-{bound // 1000}k"
        below = bound
    return f"{below // 1000}k+"


def multi_turn() -> ToolSuite:
    """BFCL multi-turn without ``long_context``: 600 tasks, grouped by category."""

    def tasks() -> list[TaskInfo]:
        categories = ("base", "miss_func", "miss_param")
        return [TaskInfo(name, site=category) for category in categories for name in bfcl_ids(category)]

    return ToolSuite("bfcl-multi-turn", tasks)


def _long_context(name: str, below: int | None) -> ToolSuite:
    def tasks() -> list[TaskInfo]:
        counts = gold_tokens()
        ids = [task for task in bfcl_ids("long_context") if below is None or counts[task] < below]
        return [TaskInfo(task, site="long_context", difficulty=length_group(counts[task])) for task in ids]

    return ToolSuite(name, tasks)


def long_context() -> ToolSuite:
    """All 200 tasks, grouped by the tokens of the gold episode; 42 have more than 32k."""
    return _long_context("bfcl-long-context", None)


def long_context_8k() -> ToolSuite:
    """The tasks whose gold episode has fewer than 8k tokens."""
    return _long_context("bfcl-long-context-8k", 8_000)


def long_context_12k() -> ToolSuite:
    """The tasks whose gold episode has fewer than 12k tokens: all but the 42 with more than 32k."""
    return _long_context("bfcl-long-context-12k", 12_000)


def telecom() -> ToolSuite:
    """tau2 telecom solo, 114 tasks; the 20 that want nothing but a transfer to a human are a group of their own."""

    def tasks() -> list[TaskInfo]:
        from envs.tools.telecom import TelecomWorld

        ids = telecom_ids()
        only = [TelecomWorld(index).transfer_only for index in range(len(ids))]
        return [TaskInfo(name, site="transfer" if alone else "solve") for name, alone in zip(ids, only, strict=True)]

    return ToolSuite("tau2-telecom", tasks)
