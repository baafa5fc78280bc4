"""One reply, sampled token by token. A reply that ends without an action is led into a code block and goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from agent.grammar import Grammar, block_of
from agent.parser import parse_reply
from agent.transcript import Transcript

FENCE = "```\n"
MIN_THOUGHT = 64  # tokens; a quarter of the limit where that is more: a thought that runs on never comes to act
MIN_ROOM = 16  # tokens that must be left for it to be worth going on
_ANNOUNCED = re.compile(r":[ \t]*\n\s*$")  # "Actions:", and a new line
_BLOCK = re.compile(r"```[^`]*\w\([^`]*```\s*$")  # a code block with a call in it, just closed


class TokenLike(Protocol):
    """A sampled token."""

    id: int
    text: str
    confidence: float


class SessionLike(Protocol):
    """What the loop needs of a KV session."""

    @property
    def stats(self) -> Any: ...

    def extend(self, ids: list[int], segment: Any) -> Any: ...

    def retract(self) -> int | None: ...

    def generate(
        self,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        stop_ids: Iterable[int] | None = None,
        seed: int | None = None,
        allow: Callable[[int], bool] | None = None,
        segment: Any = "text",
    ) -> Iterator[Any]: ...


class FreeReply:
    """Samples one reply from a session that holds the prompt, to a stop token or to the limit.

    Attributes:
        text: the reply so far, without special tokens; what was fed to lead it is part of it.
        count: tokens sampled.
        last: the last token of the reply, which the session holds or is about to.
        cut: the token limit ended it, not the model.
    """

    def __init__(self, session: SessionLike, transcript: Transcript) -> None:
        self._session, self._transcript = session, transcript
        self._ids: list[int] = []  # of the reply, what was fed to lead it included
        self._confidences: list[float] = []
        self.text, self.count, self.cut = "", 0, False

    @property
    def last(self) -> int | None:
        return self._ids[-1] if self._ids else None

    @property
    def confidence_mean(self) -> float | None:
        """Mean confidence of the sampled tokens, None if there were none."""
        return sum(self._confidences) / len(self._confidences) if self._confidences else None

    def sample(
        self, max_new_tokens: int, temperature: float, seed: int, on_token: Callable[[Any], None] = lambda token: None
    ) -> None:
        """Sample the reply."""
        self._go_on(max_new_tokens, temperature, seed, on_token)

    def _go_on(self, limit: int, temperature: float, seed: int | None, on_token: Callable[[Any], None]) -> None:
        """Sample until a stop token, the limit, or :meth:`_ends`."""
        stops: Sequence[int] = self._transcript.stop_ids
        written, sampled = self._transcript.reply_text(self._ids), 0
        ended = False

        def allow(token: int) -> bool:
            return self._allows(token, written)

        try:
            for token in self._session.generate(
                max_new_tokens=limit,
                temperature=temperature,
                stop_ids=stops,
                seed=seed,
                allow=allow,
                segment="reply",
            ):
                self._ids.append(int(token.id))
                self._confidences.append(float(token.confidence))
                sampled += 1
                on_token(token)
                written += token.text
                if int(token.id) in stops:
                    ended = True
                elif self._ends(token.text, written, sampled, limit):
                    ended = True
                    break
        finally:
            self.count += sampled
            self.text = self._transcript.reply_text(self._ids)
        self.cut = sampled > 0 and not ended

    def _allows(self, token: int, written: str) -> bool:
        """Whether a token may come after what is ``written``."""
        return True

    def _ends(self, piece: str, written: str, sampled: int, limit: int) -> bool:
        """Whether the reply ends with the token ``piece``, which no stop token is."""
        return False


class Reply(FreeReply):
    """Samples one reply from a session that holds the prompt.

    Small models often say what to do in a sentence and stop. Nothing is lost by that: the stop token was sampled but
    not fed, so it is taken back, a code block is opened, and the model fills it in the same turn.
    """

    def __init__(self, session: SessionLike, transcript: Transcript, tokenizer: Any, grammar: Grammar) -> None:
        super().__init__(session, transcript)
        self._tokenizer, self._grammar = tokenizer, grammar

    def sample(
        self, max_new_tokens: int, temperature: float, seed: int, on_token: Callable[[Any], None] = lambda token: None
    ) -> None:
        """Sample to a stop token, to the end of a block of actions, or to the limit."""
        self._go_on(max_new_tokens, temperature, seed, on_token)
        room = max_new_tokens - self.count
        if self.cut or room < MIN_ROOM or not self._wants_a_block(self.text):
            return
        if self.last in self._transcript.stop_ids:
            self._session.retract()
            self._ids.pop()
        opening = FENCE if not self.text or self.text.endswith("\n") else "\n" + FENCE
        ids = list(self._tokenizer.encode(opening, add_special_tokens=False))
        self._session.extend(ids, segment="reply")
        self._ids += ids
        self._go_on(room, temperature, None, on_token)

    def _piece(self, token: int) -> str:
        return str(self._tokenizer.decode([token], clean_up_tokenization_spaces=False))

    def _should_act(self, piece: str, written: str, too_long: bool) -> bool:
        """Whether the thought has run on, or actions are announced, and no block is open yet."""
        announced = "\n" in piece and _ANNOUNCED.search(written) is not None
        return (too_long or announced) and self._wants_a_block(written)

    @staticmethod
    def _wants_a_block(text: str) -> bool:
        return "```" not in text and "<think>" not in text and not parse_reply(text).actions

    def _allows(self, token: int, written: str) -> bool:
        block = block_of(written)
        if block is None:
            return True
        if token in self._transcript.stop_ids:
            return self._grammar.complete(block)
        return self._grammar.accepts(block + self._piece(token))

    def _ends(self, piece: str, written: str, sampled: int, limit: int) -> bool:
        if self._should_act(piece, written, sampled >= max(MIN_THOUGHT, limit // 4)):
            return True
        # What follows the actions would be a page that the model makes up.
        return "`" in piece and _BLOCK.search(written) is not None
