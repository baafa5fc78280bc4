"""Tools with calls, for the loop: results of calls as the template's tool messages, the user's as user messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.actions import MAX_ACTIONS
from agent.dialect import Remarks
from agent.parser import ParsedReply
from agent.records import TurnRecord
from agent.reply import FreeReply, SessionLike
from agent.tool_calls import RESPOND, parse_tool_calls
from agent.tool_transcript import ToolTranscript
from agent.transcript import Piece


class ToolDialect:
    """One conversation with tools.

    Args:
        tokenizer: a transformers tokenizer.
        info: what the environment told at reset: ``tools`` (function schemas) and ``system``.
    """

    answer: str | None = None

    def __init__(self, tokenizer: Any, info: Mapping[str, Any], *, pin_tools: bool = True) -> None:
        self._system = str(info.get("system", ""))
        self.transcript = ToolTranscript(tokenizer, info["tools"], pin_tools=pin_tools)

    def start(self, obs: Mapping[str, Any], turns_left: int) -> list[Piece]:
        """See :class:`agent.dialect.Dialect`."""
        return self.transcript.open(self._system, str(obs["text"]))

    def following(
        self, record: TurnRecord, obs: Mapping[str, Any], last_token: int | None, remarks: Remarks
    ) -> list[Piece]:
        """See :class:`agent.dialect.Dialect`. Every call of the reply has its result, done or not."""
        if record.actions and record.actions[-1].action["name"] == RESPOND:
            return self.transcript.turn(str(obs["text"]), last_token)
        contents = [f"Error: {done.error}" if done.error else done.effect for done in record.actions]
        contents += ["Error: not done, as a call before it failed."] * len(record.skipped)
        contents += [f"Error: not done, as only {MAX_ACTIONS} calls are carried out at a time."] * len(record.extra)
        contents += [f"Error: {remarks.problem}"] if remarks.problem else []
        return self.transcript.results(contents, last_token)

    def reply(self, session: SessionLike, obs: Mapping[str, Any]) -> FreeReply:
        """See :class:`agent.dialect.Dialect`."""
        return FreeReply(session, self.transcript)

    def parse(self, text: str) -> ParsedReply:
        """See :class:`agent.dialect.Dialect`."""
        return parse_tool_calls(text)
