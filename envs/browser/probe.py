"""The parent's side of looking at pages for scoring: each look is a request to the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from envs.browser.process import WorkerLost
from envs.errors import EnvError, ProbeError


class RemoteProbe:
    """``envs.records.Probe`` through ``ask``, which sends a request and gives its reply.

    Every method raises ``ProbeError`` where the worker or its browser does not answer.
    """

    def __init__(self, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._send = ask

    @property
    def url(self) -> str:
        """See ``envs.records.Probe``."""
        return str(self._ask("url"))

    def content(self, url: str | None) -> str:
        """See ``envs.records.Probe``."""
        return str(self._ask("content", url))

    def evaluate(self, url: str | None, script: str, argument: Any = None) -> Any:
        """See ``envs.records.Probe``."""
        return self._ask("evaluate", url, script, argument)

    def fetch(self, url: str) -> bytes:
        """See ``envs.records.Probe``."""
        return cast(bytes, self._ask("fetch", url))

    def close(self) -> None:
        """Close the tab that looks were taken from."""
        self._ask("close")

    def _ask(self, name: str, *args: Any) -> Any:
        try:
            return self._send({"op": "probe", "name": name, "args": list(args)})["value"]
        except (WorkerLost, EnvError) as error:
            raise ProbeError(str(error)) from error
