"""The page a look is taken at: the one the agent ended on, or another in a tab of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envs.records import Probe


@dataclass(frozen=True)
class Page:
    """``url`` is None for the page the agent ended on."""

    probe: Probe
    url: str | None = None

    @property
    def address(self) -> str:
        """Where it is."""
        return self.url or self.probe.url

    def content(self) -> str:
        """Its HTML."""
        return self.probe.content(self.url)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        """What a script gives; None where the page does not have what it reaches for."""
        return self.probe.evaluate(self.url, script, argument)
