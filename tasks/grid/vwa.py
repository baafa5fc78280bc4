"""VisualWebArena as suites: the official tasks on the sites that ``VWA_*`` variables name, ours on our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.errors import TaskError
from tasks.grid.agents import ScriptedAgent
from tasks.grid.suites import TaskInfo
from tasks.vwa.load import load_tasks, official_tasks
from tasks.vwa.logins import Account
from tasks.vwa.schema import VwaTaskConfig
from tasks.vwa.sites import VARIABLES, SiteMap, embedded_sites, official_sites
from tasks.vwa.task import VwaTask

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
        self._configs = {f"{name}/{config.task_id}": config for config in configs}

    def tasks(self) -> Sequence[TaskInfo]:
        """See :class:`tasks.grid.suites.Suite`. A task on several sites counts with the first."""
        from envs.chromium import find_chromium

        find_chromium()
        return [
            TaskInfo(task_id, config.sites[0], config.overall_difficulty) for task_id, config in self._configs.items()
        ]

    def make_env(self, task_id: str, **options: Any) -> Any:
        """See :class:`tasks.grid.suites.Suite`.

        Raises:
            TaskError: a site that the task needs has no address.
        """
        from envs.browser import BrowserEnv

        sites, close = self._open()
        try:
            return BrowserEnv(VwaTask(self._configs[task_id], sites, close=close), **options)
        except BaseException:
            close()
            raise

    def oracle(self, task_id: str, seed: int) -> ScriptedAgent | None:
        """See :class:`tasks.grid.suites.Suite`."""
        return self._oracle(self._configs[task_id])


def official() -> VwaSuite:
    """The official tasks whose sites have an address here.

    Raises:
        TaskError: the tasks are not installed, or no site has an address.
    """
    sites = official_sites()
    played = [config for config in official_tasks() if set(config.sites) <= set(sites.urls)]
    if not played:
        names = ", ".join(VARIABLES)
        raise TaskError(f"no site of VisualWebArena has an address; export {names}; see `confkv doctor --vwa`")
    return VwaSuite("visualwebarena", played, lambda: (sites, lambda: None))


def mini() -> VwaSuite:
    """75 tasks on the sites in this package; each episode has a server and a database of its own."""
    import tasks.sites
    from tasks.sites import Sites
    from tasks.sites.oracle import oracle
    from tasks.sites.store import PASSWORD, USERNAME

    account = Account(USERNAME, PASSWORD)

    def opened() -> Opened:
        made = Sites()
        return embedded_sites(made, account), made.close

    return VwaSuite("vwa-mini", load_tasks(Path(tasks.sites.__file__).with_name("vwa_mini.json")), opened, oracle)
