"""The conversation fed anew each turn: what agents do that keep no KV session between turns.

This is the baseline that a persistent session is measured against. Token for token the two see the same conversation;
here each turn opens a new session and prefills all of it, page by page and reply by reply, before it samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from agent.reply import SessionLike


class Reprefill:
    """A session for :func:`agent.loop.run_episode` that holds token ids, not KV, from turn to turn.

    Args:
        open_session: opens a new, empty ``confkv`` session.

    Attributes:
        steps: the decoded tokens' records of all turns, in order.
    """

    def __init__(self, open_session: Callable[[], SessionLike]) -> None:
        self._open = open_session
        self._session = open_session()
        self._said: list[tuple[str, list[int]]] = []  # the conversation: (segment, ids)
        self._answered = False  # whether the turn's reply has begun
        self._past: list[Any] = []  # statistics of the turns' sessions that are closed
        self._steps: list[Any] = []

    def extend(self, ids: list[int], segment: Any = "text") -> Any:
        """Append tokens. What follows a reply begins a turn: the whole conversation is fed to a new session."""
        if self._answered and segment != "reply":
            self._begin_turn()
        self._said.append((segment, list(ids)))
        return self._session.extend(ids, segment=segment)

    def _begin_turn(self) -> None:
        self._past.append(self._session.stats)
        self._steps += list(getattr(self._session, "steps", []))
        self._session = self._open()  # the one before is gone before this one holds anything
        self._answered = False
        for segment, ids in self._said:
            self._session.extend(ids, segment=segment)

    def retract(self) -> int | None:
        """Take back the last sampled token, which still waits to be fed."""
        token = self._session.retract()
        if token is not None:
            self._said[-1][1].pop()
            if not self._said[-1][1]:
                self._said.pop()
        return token

    def generate(
        self,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        stop_ids: Iterable[int] | None = None,
        seed: int | None = None,
        allow: Callable[[int], bool] | None = None,
        segment: Any = "text",
    ) -> Iterator[Any]:
        """Sample a reply from the turn's session; it becomes part of the conversation."""
        self._answered = True
        reply: list[int] | None = None
        for token in self._session.generate(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            stop_ids=stop_ids,
            seed=seed,
            allow=allow,
            segment=segment,
        ):
            if reply is None:
                reply = []
                self._said.append((segment, reply))
            reply.append(int(token.id))
            yield token

    @property
    def seen(self) -> int:
        """Tokens of the conversation that the turn's session was fed."""
        return int(self._session.stats.tokens_seen)

    @property
    def steps(self) -> list[Any]:
        return [*self._steps, *getattr(self._session, "steps", [])]

    @property
    def stats(self) -> Any:
        """Statistics of the episode: counts and seconds summed over its sessions, bytes held those of the newest one,
        ``peak_bytes`` the largest, ``mean_bytes`` the mean over sessions by decoded tokens."""
        now = self._session.stats
        every = [*self._past, now]
        weights = [max(1, stats.decode_steps) for stats in every]
        summed = {
            name: sum(getattr(stats, name) for stats in every)
            for name in ("evictions", "rebases", "decode_steps", "recalls", "recalled", "looks", "fetched")
        }
        return replace(
            now,
            **summed,
            peak_bytes=max(stats.peak_bytes for stats in every),
            mean_bytes=sum(w * stats.mean_bytes for w, stats in zip(weights, every, strict=True)) / sum(weights),
            host_bytes=max(stats.host_bytes for stats in every),
            seconds={part: sum(stats.seconds.get(part, 0.0) for stats in every) for part in now.seconds},
        )
