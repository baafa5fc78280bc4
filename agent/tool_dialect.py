"""Tools with calls, for the loop: results of calls as the template's tool messages, the user's as user messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.actions import MAX_ACTIONS
from agent.parser import ParsedReply
from agent.records import TurnRecord
from agent.reply import Reply, SessionLike
from agent.tool_calls import RESPOND, parse_tool_calls
from agent.tool_transcript import ToolTranscript
from agent.transcript import Piece


class FreeReply(Reply):
    """A reply that is sampled to its end: it is not led into a block of actions, and no grammar holds it."""

    def __init__(self, session: SessionLike, transcript: ToolTranscript, tokenizer: Any) -> None:
        super().__init__(session, transcript, tokenizer, None)

    def sample(
        self, max_new_tokens: int, temperature: float, seed: int, on_token: Callable[[Any], None] = lambda token: None
    ) -> None:
        """Sample to a stop token or to the limit."""
        stops: Sequence[int] = self._transcript.stop_ids
        ended, sampled = False, self._session.generate(
            max_new_tokens=max_new_tokens, temperature=temperature, stop_ids=stops, seed=seed, segment="reply"
        )  # fmt: skip
        try:
            for token in sampled:
                self._ids.append(int(token.id))
                self._confidences.append(float(token.confidence))
                ended = int(token.id) in stops
                on_token(token)
        finally:
            self.count = len(self._ids)
            self.text = self._transcript.reply_text(self._ids)
        self.cut = self.count > 0 and not ended


class ToolDialect:
    """One conversation with tools.

    Args:
        tokenizer: a transformers tokenizer.
        info: what the environment told at reset: ``tools`` (function schemas) and ``system``.
    """

    answer: str | None = None

    def __init__(self, tokenizer: Any, info: Mapping[str, Any], *, pin_tools: bool = True) -> None:
        self._tokenizer, self._system = tokenizer, str(info.get("system", ""))
        self.transcript = ToolTranscript(tokenizer, info["tools"], pin_tools=pin_tools)

    def start(self, obs: Mapping[str, Any], turns_left: int) -> list[Piece]:
        """See :class:`agent.dialect.Dialect`."""
        return self.transcript.open(self._system, str(obs["text"]))

    def following(
        self,
        record: TurnRecord,
        obs: Mapping[str, Any],
        last_token: int | None,
        *,
        problem: str | None,
        warning: str | None,
        turns_left: int,
    ) -> list[Piece]:
        """See :class:`agent.dialect.Dialect`. Every call of the reply has its result, done or not."""
        if record.actions and record.actions[-1].action["name"] == RESPOND:
            return self.transcript.turn(str(obs["text"]), last_token)
        contents = [f"Error: {done.error}" if done.error else done.effect for done in record.actions]
        contents += ["Error: not done, as a call before it failed."] * len(record.skipped)
        contents += [f"Error: not done, as only {MAX_ACTIONS} calls are carried out at a time."] * len(record.extra)
        return self.transcript.results([*contents, *([f"Error: {problem}"] if problem else [])], last_token)

    def reply(self, session: SessionLike, obs: Mapping[str, Any]) -> Reply:
        """See :class:`agent.dialect.Dialect`."""
        return FreeReply(session, self.transcript, self._tokenizer)

    def parse(self, text: str) -> ParsedReply:
        """See :class:`agent.dialect.Dialect`."""
        return parse_tool_calls(text)
