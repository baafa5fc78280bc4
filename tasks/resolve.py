"""From a task's name to an environment that plays it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any, cast

from envs.browser import BrowserEnv
from envs.browsergym_task import BrowserGymTask, gym_id, list_ids
from envs.errors import EnvError
from envs.records import Mode, Task
from envs.tools import ToolEnv
from tasks.demo.task import SUMMARY, ShopTask
from tasks.errors import TaskError
from tasks.grid.vwa import MINI, OFFICIAL, mini, official
from tasks.tools.tasks import is_tool_task, list_bfcl, list_tau2, make_tool_env
from tasks.vwa.schema import VwaTaskConfig
from tasks.vwa.sites import VARIABLES

#: Suites that are played in a browser.
PAGES = ("demo", "miniwob", MINI, OFFICIAL)
DEMOS: dict[str, tuple[Callable[[], Task], str]] = {"demo/shop": (ShopTask, SUMMARY)}


def list_tasks(*suites: str) -> list[tuple[str, str]]:
    """(id, one-line summary) of every task that can be played here, or of those whose ids begin with ``NAME/``.

    The benchmarks of tool use take seconds to be read, so that what is not asked for is not listed.
    """
    listed: dict[str, Callable[[], list[tuple[str, str]]]] = {
        "demo": lambda: [(name, summary) for name, (_, summary) in DEMOS.items()],
        "miniwob": _list_miniwob,
        MINI: lambda: [_line(*item) for item in mini().configs.items()],
        OFFICIAL: _list_official,
        "bfcl": list_bfcl,
        "tau2": list_tau2,
    }
    return [task for name, tasks in listed.items() if not suites or name in suites for task in tasks()]


def _list_miniwob() -> list[tuple[str, str]]:
    try:
        names = [name.removeprefix("browsergym/miniwob.") for name in list_ids("miniwob")]
    except EnvError:
        return []  # an optional extra; `confkv doctor` says how to install it
    return [(f"miniwob/{name}", f"MiniWoB: {name.replace('-', ' ')}") for name in names]


def _list_official() -> list[tuple[str, str]]:
    if not any(os.environ.get(name) for name in VARIABLES):
        return []  # without sites there is nothing to play on
    return [_line(*item) for item in official().configs.items()]


def _line(name: str, config: VwaTaskConfig) -> tuple[str, str]:
    intent = " ".join(config.intent.split())
    return name, f"{'+'.join(config.sites)}: {intent[:80]}{'…' if len(intent) > 80 else ''}"


def make_env(task_id: str, **options: Any) -> BrowserEnv | ToolEnv:
    """The environment of a task; for the options see :func:`open_env`, for tool use :func:`make_tool_env`.

    Raises:
        TaskError: there is no such task (the message names the closest ones), or a site it needs has no address.
        EnvError: the browser or the task's suite is not installed.
    """
    if is_tool_task(task_id.strip()):
        return make_tool_env(task_id.strip(), **options)
    task = _task(task_id.strip())
    if task is None:
        near = difflib.get_close_matches(task_id.strip(), [name for name, _ in list_tasks(*PAGES)], n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "`confkv tasks` lists them"
        raise TaskError(f"there is no task {task_id!r}; {hint}")
    return open_env(task, **options)


def open_env(
    task: Task,
    *,
    seed: int = 0,
    headed: bool = False,
    screenshots: bool = False,
    observation: str = "aria",
    count_tokens: Callable[[str], int] | None = None,
    max_tokens: int = 1500,
) -> BrowserEnv:
    """The environment that plays ``task`` and closes it; ``count_tokens`` measures observations against ``max_tokens``.

    Raises:
        EnvError: there is no browser, or no such ``observation``; the task is closed.
    """
    try:
        return BrowserEnv(
            task,
            seed=seed,
            headed=headed,
            screenshots=screenshots,
            observation=cast(Mode, observation),
            count_tokens=count_tokens,
            max_tokens=max_tokens,
        )
    except BaseException:
        task.close()
        raise


def _task(name: str) -> Task | None:
    if name in DEMOS:
        return DEMOS[name][0]()
    for prefix, suite_of in ((MINI, mini), (OFFICIAL, official)):
        if name.startswith(prefix + "/"):
            return suite_of().task(name)
    full = gym_id(name)
    suite = full.removeprefix("browsergym/").partition(".")[0]
    if name.startswith("browsergym/") or suite == "miniwob":
        return BrowserGymTask(full) if full in list_ids(suite) else None
    return None
