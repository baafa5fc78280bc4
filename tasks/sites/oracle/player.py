"""A script as an agent."""

from __future__ import annotations

from collections.abc import Callable

from envs.records import Action, Observation
from tasks.sites.oracle import classifieds, forum, shopping
from tasks.sites.oracle.hand import Hand, Script
from tasks.vwa.schema import VwaTaskConfig

SCRIPTS: dict[int, Callable[[Hand, dict[str, str]], Script]] = {
    **classifieds.SCRIPTS,
    **shopping.SCRIPTS,
    **forum.SCRIPTS,
}


class Oracle:
    """Plays one task by the script of its template; it knows of the task what its intent says."""

    def __init__(self, task: VwaTaskConfig) -> None:
        self._hand = Hand()
        self._script = SCRIPTS[task.intent_template_id or 0](self._hand, dict(task.instantiation_dict))
        self._begun = False

    def act(self, observation: Observation) -> Action:
        """The script's next action.

        Raises:
            tasks.sites.oracle.hand.Stuck: a page is not as the script expects it.
        """
        try:
            if self._begun:
                return self._script.send(observation)
            self._begun, self._hand.seen = True, observation
            return next(self._script)
        except StopIteration as end:
            return {"name": "answer", "args": {"text": str(end.value)}}


def oracle(task: VwaTaskConfig) -> Oracle:
    """A fresh player for a task of ``vwa-mini``.

    Raises:
        KeyError: the task is of another suite.
    """
    return Oracle(task)
