"""From a task's name to an environment that plays it."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from envs.browser import BrowserEnv
from envs.browsergym_task import BrowserGymTask, gym_id, list_ids
from envs.errors import EnvError
from tasks.errors import TaskError


def list_tasks() -> list[tuple[str, str]]:
    """(id, one-line summary) of every task that can be played here."""
    tasks = []
    try:
        miniwob = list_ids("miniwob")
    except EnvError:
        miniwob = []  # an optional extra; `confkv doctor` says how to install it
    for name in miniwob:
        short = name.removeprefix("browsergym/miniwob.")
        tasks.append((f"miniwob/{short}", f"MiniWoB: {short.replace('-', ' ')}"))
    return tasks


def make_env(
    task_id: str,
    *,
    seed: int = 0,
    headed: bool = False,
    screenshots: bool = False,
    count_tokens: Callable[[str], int] | None = None,
    max_tokens: int = 1500,
) -> BrowserEnv:
    """The environment of a task; ``count_tokens`` measures observations against ``max_tokens``.

    Raises:
        TaskError: there is no such task; the message names the closest ones.
        EnvError: the browser or the task's suite is not installed.
    """
    options = {"seed": seed, "headed": headed, "screenshots": screenshots, "max_tokens": max_tokens}
    name = task_id.strip()
    full = gym_id(name)
    suite = full.removeprefix("browsergym/").partition(".")[0]
    if name.startswith("browsergym/") or suite == "miniwob":
        if full in list_ids(suite):
            return BrowserEnv(BrowserGymTask(full), count_tokens=count_tokens, **options)
    known = [task for task, _ in list_tasks()]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`confkv tasks` lists them"
    raise TaskError(f"there is no task {task_id!r}; {hint}")
