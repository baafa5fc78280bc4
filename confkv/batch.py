"""Replies under way, and the batch that decodes several of them with one forward pass a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from confkv import positions, step
from confkv.detokenise import Detokeniser
from confkv.errors import ConfkvError
from confkv.sampling import sample
from confkv.store import FRESH, PINNED, PROTECTED
from confkv.telemetry import Token

if TYPE_CHECKING:
    from confkv.engine import Engine
    from confkv.session import Session
    from confkv.step import Feed

#: Why the positions of a segment do not compete. Everything else competes from the start.
SEGMENTS = {"system": PINNED, "goal": PINNED, "observation": PROTECTED, "reply": FRESH, "text": 0}


class Reply:
    """What one session is sampling.

    Args:
        session: was fed.
        max_new_tokens, temperature, stop_ids, seed, allow, segment: as for :meth:`confkv.session.Session.generate`.

    Attributes:
        left: tokens still to come at most; 0 after a stop token.

    Raises:
        ConfkvError: unknown segment, or nothing was fed yet.
    """

    def __init__(
        self,
        session: Session,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        stop_ids: Iterable[int] | None = None,
        seed: int | None = None,
        allow: Callable[[int], bool] | None = None,
        segment: str = "text",
    ) -> None:
        if segment not in SEGMENTS:
            raise ConfkvError(f"unknown segment '{segment}'; use one of {', '.join(SEGMENTS)}")
        if session._logits is None:
            raise ConfkvError("nothing to continue; call extend() before generate()")
        self.session, self.left, self.temperature, self.allow = session, max_new_tokens, temperature, allow
        self.held = SEGMENTS[segment]
        self.stops = session.engine.stop_ids if stop_ids is None else frozenset(stop_ids)
        if seed is not None:
            session._rng.manual_seed(seed)
        self._pieces = Detokeniser(session.engine.tokenizer)

    def sample(self) -> int:
        """Choose the next token; it waits in the session."""
        session, start = self.session, time.perf_counter()
        assert session._logits is not None
        token = session.pending = sample(session._logits, self.temperature, session._rng, self.allow)
        session.tokens.append(token)
        session._seconds["decode"] += time.perf_counter() - start
        return token

    def note(self, token: int, seconds: float) -> Token:
        """The record of a token that was sampled in ``seconds``."""
        session, ends = self.session, token in self.stops
        self.left = 0 if ends else self.left - 1
        kept = session._record(seconds)
        text = "" if ends else self._pieces.push(token)
        return Token(token, text, session._confidence, session._budget, kept, seconds)


def advance(replies: Sequence[Reply], feed: Feed | None = None) -> list[Token]:
    """The next token of each reply; tokens that wait are fed by one forward pass for all.

    The seconds of the step are shared out equally.

    Args:
        feed: runs the pass; default: :func:`confkv.step.feed`.

    Raises:
        ConfkvError: a full cache at the model's position limit; nothing was fed then, and the tokens wait.
    """
    start = time.perf_counter()
    fed: list[Session] = []
    waiting: list[list[int]] = []
    held: list[list[int]] = []
    for reply in replies:
        session = reply.session
        session._recalled, session._looked = 0, False
        if session.pending is not None:
            fed.append(session)
            waiting.append([session.pending])
            held.append([reply.held])
            session.pending = None
    if fed:
        (feed or step.feed)(fed, waiting, held, "decode", 0)
    tokens = [reply.sample() for reply in replies]
    seconds = (time.perf_counter() - start) / len(replies)
    return [reply.note(token, seconds) for reply, token in zip(replies, tokens, strict=True)]


class Batch:
    """Several sessions decoded together: the weights are read once a step, whoever takes part.

    Each session has its own length, policy and sampling, yields the tokens that :meth:`Session.generate` would yield,
    and is left in the state that it would be left in. Rows join and leave between steps, and a session may be extended
    between them, while the others wait. Open one with :meth:`Engine.decode`.

    Attributes:
        errors: sessions that left because their next token could not be fed, and why. That token still waits.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.errors: dict[Session, ConfkvError] = {}
        self._replies: dict[Session, Reply] = {}

    def __len__(self) -> int:
        return len(self._replies)

    def __contains__(self, session: Session) -> bool:
        """Whether the session's reply is still under way."""
        return session in self._replies

    def add(
        self,
        session: Session,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        stop_ids: Iterable[int] | None = None,
        seed: int | None = None,
        allow: Callable[[int], bool] | None = None,
        segment: str = "text",
    ) -> None:
        """Let a session take part from the next step on; it leaves when its reply ends.

        Args:
            session: of an engine over this engine's model; its policy may be another.
            max_new_tokens, temperature, stop_ids, seed, allow, segment: as for :meth:`Session.generate`.

        Raises:
            ConfkvError: another model, a session that takes part already or was not fed, or an unknown segment.
        """
        if session.engine.model is not self.engine.model:
            raise ConfkvError("a batch decodes sessions of one model")
        if session in self._replies:
            raise ConfkvError("this session takes part already")
        reply = Reply(session, max_new_tokens, temperature, stop_ids, seed, allow, segment)
        self.errors.pop(session, None)
        if reply.left > 0:
            self._replies[session] = reply

    def remove(self, session: Session) -> None:
        """Take a session out before its reply has ended; its last token waits, as ever. No-op where it has left."""
        self._replies.pop(session, None)

    def step(self) -> dict[Session, Token]:
        """The next token of every session that takes part, in the order in which they joined; empty when none does.

        A session whose cache is full at the model's position limit leaves, noted in :attr:`errors`; the others go on.
        """
        for session in list(self._replies):
            try:
                if session.pending is not None:
                    positions.rebase_if_needed(session, 1)
            except ConfkvError as error:
                self.errors[session] = error
                self.remove(session)
        replies = list(self._replies.values())
        if not replies:
            return {}
        tokens = {reply.session: token for reply, token in zip(replies, advance(replies), strict=True)}
        for reply in replies:
            if not reply.left:
                self.remove(reply.session)
        return tokens

    def __iter__(self) -> Iterator[dict[Session, Token]]:
        """Steps until no session is left."""
        while tokens := self.step():
            yield tokens
