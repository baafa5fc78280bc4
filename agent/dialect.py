"""How a task is put to the model and how its replies are read: pages with actions, or tools with calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent import prompts
from agent.grammar import Grammar
from agent.parser import ParsedReply, parse_reply
from agent.records import TurnRecord
from agent.reply import FreeReply, Reply, SessionLike
from agent.transcript import Piece, Transcript


@dataclass(frozen=True)
class Remarks:
    """What is told of a turn beside what it did.

    Attributes:
        problem: what was wrong with the reply, None if nothing.
        warning: said of actions done over and over, None if there are none.
        turns_left: the next one included.
    """

    problem: str | None
    warning: str | None
    turns_left: int


class Dialect(Protocol):
    """One for an episode; it renders the conversation piece by piece and keeps nothing of the session's."""

    answer: str | None
    """Name of the action that ends the episode with an answer, None where there is none."""

    def start(self, obs: Mapping[str, Any], turns_left: int) -> list[Piece]:
        """The whole first prompt."""

    def following(
        self, record: TurnRecord, obs: Mapping[str, Any], last_token: int | None, remarks: Remarks
    ) -> list[Piece]:
        """What is fed after the turn of ``record``.

        Args:
            obs: what the environment shows now.
            last_token: the last token sampled, which the session holds; None if there is none.
        """

    def reply(self, session: SessionLike, obs: Mapping[str, Any]) -> FreeReply:
        """A reply about to be sampled from the session."""

    def parse(self, text: str) -> ParsedReply:
        """Read a reply; never raises."""


class PageDialect:
    """A browser's pages; replies end in a code block of actions (:mod:`agent.prompts`, :mod:`agent.parser`)."""

    answer: str | None = "answer"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._transcript = tokenizer, Transcript(tokenizer)

    def start(self, obs: Mapping[str, Any], turns_left: int) -> list[Piece]:
        """See :class:`Dialect`."""
        message = prompts.observation(obs, turns_left=turns_left)
        return self._transcript.start(prompts.system_prompt(), prompts.goal_text(str(obs["goal"])), message)

    def following(
        self, record: TurnRecord, obs: Mapping[str, Any], last_token: int | None, remarks: Remarks
    ) -> list[Piece]:
        """See :class:`Dialect`."""
        message = prompts.observation(
            obs,
            actions=record.actions,
            skipped=record.skipped,
            extra=record.extra,
            problem=remarks.problem,
            warning=remarks.warning,
            turns_left=remarks.turns_left,
        )
        return self._transcript.turn(message, last_token)

    def reply(self, session: SessionLike, obs: Mapping[str, Any]) -> Reply:
        """See :class:`Dialect`."""
        return Reply(session, self._transcript, self._tokenizer, Grammar(str(obs["text"])))

    def parse(self, text: str) -> ParsedReply:
        """See :class:`Dialect`."""
        return parse_reply(text)
