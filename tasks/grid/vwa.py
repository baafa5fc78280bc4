"""VisualWebArena as suites: the official tasks on the sites that ``VWA_*`` variables name, ours on our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tasks.errors import TaskError
from tasks.grid.agents import ScriptedAgent
from tasks.grid.suites import TaskInfo
from tasks.vwa.load import load_tasks, official_tasks
from tasks.vwa.logins import Account
from tasks.vwa.schema import VwaTaskConfig
from tasks.vwa.sites import VARIABLES, SiteMap, embedded_sites, needed_sites, official_sites
from tasks.vwa.task import VwaTask

MINI, OFFICIAL = "vwa-mini", "visualwebarena"
Opened = tuple[SiteMap, Callable[[], None]]
"""Sites, and what frees them when the episode's environment is closed."""


class VwaSuite:
    """Tasks in VisualWebArena's form.

    Args:
        configs: the tasks; the id of one is ``NAME/NUMBER``.
        open_sites: called for each episode.
        oracle: an agent that solves a task, None where there is none.
    """

    def __init__(
        self,
        name: str,
        configs: Sequence[VwaTaskConfig],
        open_sites: Callable[[], Opened],
        oracle: Callable[[VwaTaskConfig], ScriptedAgent | None] = lambda config: None,
    ) -> None:
        self.name, self._open, self._oracle = name, open_sites, oracle
        self.configs = {f"{name}/{config.task_id}": config for config in configs}

    def tasks(self) -> Sequence[TaskInfo]:
        """See :class:`tasks.grid.suites.Suite`. A task on several sites counts with the first."""
        from envs.chromium import find_chromium

        find_chromium()
        return [
            TaskInfo(task_id, config.sites[0], config.overall_difficulty) for task_id, config in self.configs.items()
        ]

    def task(self, task_id: str) -> VwaTask | None:
        """The task on its sites, which are freed when it is closed; None where the suite has none of this id.

        Raises:
            TaskError: a site that the task needs has no address.
        """
        if task_id not in self.configs:
            return None
        sites, close = self._open()
        try:
            return VwaTask(self.configs[task_id], sites, close=close)
        except BaseException:
            close()
            raise

    def make_env(self, task_id: str, **options: Any) -> Any:
        """See :class:`tasks.grid.suites.Suite`.

        Raises:
            TaskError: there is no such task, or a site that it needs has no address.
        """
        from tasks.resolve import open_env

        task = self.task(task_id)
        if task is None:
            raise TaskError(f"there is no task {task_id!r} among the {len(self.configs)} of {self.name}")
        return open_env(task, **options)

    def oracle(self, task_id: str, seed: int) -> ScriptedAgent | None:
        """See :class:`tasks.grid.suites.Suite`."""
        return self._oracle(self.configs[task_id])


@cache
def official() -> VwaSuite:
    """The official tasks, whether or not their sites have an address.

    Raises:
        TaskError: the tasks are not installed.
    """
    return VwaSuite(OFFICIAL, official_tasks(), lambda: (official_sites(), lambda: None))


def reachable() -> VwaSuite:
    """The official tasks that can be played here: every site whose address one names has one.

    Raises:
        TaskError: the tasks are not installed, or no site has an address.
    """
    sites = official_sites()
    # A task may name more addresses than it lists as its sites: many begin on the home page.
    played = [
        config for config in official().configs.values() if {*config.sites, *needed_sites(config)} <= set(sites.urls)
    ]
    if not played:
        names = ", ".join(VARIABLES)
        raise TaskError(f"no site of VisualWebArena has an address; export {names}; see `confkv doctor --vwa`")
    return VwaSuite(OFFICIAL, played, lambda: (sites, lambda: None))


@cache
def mini() -> VwaSuite:
    """75 tasks on the sites in this package; each episode has a server and a database of its own."""
    from tasks.sites import Sites
    from tasks.sites.mini import FILE, SEED
    from tasks.sites.oracle import oracle
    from tasks.sites.store import PASSWORD, USERNAME

    account = Account(USERNAME, PASSWORD)

    def opened() -> Opened:
        made = Sites(SEED)
        return embedded_sites(made, account), made.close

    return VwaSuite(MINI, load_tasks(FILE), opened, oracle)
