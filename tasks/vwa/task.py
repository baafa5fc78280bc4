"""One task of VisualWebArena as a browser environment plays it: started on its sites, scored once at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from envs.errors import ProbeError
from envs.records import Probe, TaskSpec
from tasks.vwa.evaluators import CannotScore, Helpers, evaluate
from tasks.vwa.schema import VwaTaskConfig
from tasks.vwa.sites import SiteMap

VIEWPORT = {"width": 1280, "height": 2048}  # CSS pixels, the official protocol's
MAX_TURNS = 30
MAX_REPEATS = 5  # times that the same action may be without effect

_log = logging.getLogger(__name__)


class VwaTask:
    """A task on its sites.

    Args:
        config: the task as loaded.
        sites: where its sites are.
        helpers: models that judge texts and pictures, for the tasks that need them.
        close: called when the environment is closed, e.g. to end sites that only this task has.

    Raises:
        TaskError: a site the task needs has no address.
    """

    max_repeats = MAX_REPEATS

    def __init__(
        self,
        config: VwaTaskConfig,
        sites: SiteMap,
        *,
        helpers: Helpers | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.sites, self.helpers = sites, helpers or Helpers()
        self.config = sites.resolve(config)
        self._close = close

    def start(self, seed: int) -> TaskSpec:
        """Reset the sites; the seed changes nothing, as a task is one task.

        Raises:
            TaskError: a site cannot be reset.
        """
        self.sites.reset(self.config)
        first, *more = self.config.start_urls
        size = self.config.viewport_size
        given = size.model_dump(exclude_none=True) if size is not None else {}
        spec: TaskSpec = {
            "goal": self.config.intent,
            "url": first,
            "more_urls": more,
            "images": self.config.images,
            "logins": self.sites.logins(self.config),
            "viewport": VIEWPORT | given,
            "hosts": dict(self.sites.hosts),
            "seed": seed,
        }
        if self.config.geolocation:
            spec["geolocation"] = self.config.geolocation
        return spec

    def score(self, answer: str | None) -> tuple[float, bool]:
        """Nothing is scored before the end."""
        return 0.0, False

    def finish(self, answer: str | None, probe: Probe) -> tuple[float, str]:
        """See ``envs.records.EndScored``. What cannot be scored is 0 and says so."""
        try:
            verdict = evaluate(
                self.config,
                answer,
                probe,
                helpers=self.helpers,
                shop_url=self.sites.urls.get("shopping") if self.sites.magento else None,
                reference=self.sites.reference,
            )
        except (CannotScore, ProbeError) as error:
            return 0.0, f"cannot be scored: {error}"
        except Exception as error:  # a crash stays in the average, as a 0 with its reason
            _log.exception("task %s cannot be scored", self.config.task_id)
            return 0.0, f"cannot be scored: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return verdict.score, verdict.reason

    def close(self) -> None:
        """Free what the task holds."""
        self._close()
