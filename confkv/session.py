"""Session: one growing conversation in one managed cache, from the first token to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from confkv import checkpoint, positions, step
from confkv.batch import SEGMENTS, Reply, advance
from confkv.checkpoint import Mark as Mark
from confkv.confidence import confidence
from confkv.errors import ConfkvError, SessionFileError
from confkv.manager import Manager
from confkv.recall import answer_from, passes, uncertain
from confkv.step import Feed
from confkv.telemetry import SessionStats, StepRecord, Token, TurnStats

if TYPE_CHECKING:
    from confkv.engine import Engine


class Session:
    """One conversation.

    *Seen* is the logical length (every token that was fed), *kept* the physical one. Positions are absolute until the
    model's limit would be passed; then the survivors are re-based to compact positions, so a session has no maximum
    length. Not thread-safe. Open one with :meth:`Engine.session`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.cache = engine.new_cache()
        #: what runs a pass, as :func:`confkv.step.feed`; one in its place may run those of several sessions together
        self.feed: Feed = step.feed
        self.tokens: list[int] = []
        self.steps: list[StepRecord] = []
        self.pending: int | None = None
        self._manager: Manager | None = None
        self._logits: Tensor | None = None
        self._confidence, self._budget = 0.0, engine.policy.budget.at(None)
        self._counts = {"evictions": 0, "rebases": 0, "turn": 0, "forwards": 0, "seen": 0}
        self._counts |= {"recalls": 0, "recalled": 0, "looks": 0, "fetched": 0, "uncertain": 0, "asked": 0}
        self._counts |= {"due": 0, "exchanged": 0}
        #: what came back at the decode step under way, and whether its token was run again
        self._recalled, self._looked = 0, False
        self._bytes = {"peak": 0, "sum": 0}
        self._seconds = {"prefill": 0.0, "decode": 0.0, "manage": 0.0, "recall": 0.0, "look": 0.0}
        #: per lane ``[H, end]``: original position of each re-based one; empty before the first re-basing
        self._origins: list[Tensor] = []
        self._shift = 0
        self._rng = torch.Generator().manual_seed(0)

    @property
    def logits(self) -> Tensor | None:
        """Raw logits of the next token, ``[V]`` in the model's dtype, to be read only; None before anything was fed."""
        return self._logits

    # -- feeding ------------------------------------------------------------------------------------------------

    @property
    def seen(self) -> int:
        """Tokens fed so far; a sampled token that waits to be fed is not among them."""
        return self._counts["seen"]

    def extend(self, ids: list[int], segment: str = "text") -> TurnStats:
        """Append tokens, in chunks with evictions between them.

        Args:
            ids: token ids; the last sampled token is fed before them and must not be repeated here.
            segment: ``system`` and ``goal`` are never evicted; the newest ``observation`` is protected until the next
                one arrives, a ``reply`` until the next but one (so that it is there whole while it is written and
                while the next one is); ``text`` competes at once.

        Raises:
            ConfkvError: unknown segment, nothing to append, or a full cache at the model's position limit.
        """
        if segment not in SEGMENTS:
            raise ConfkvError(f"unknown segment '{segment}'; use one of {', '.join(SEGMENTS)}")
        if not ids:
            raise ConfkvError("extend() was given no tokens")
        before, fetched = dict(self._seconds), self._counts["fetched"]
        held = [SEGMENTS[segment]] * len(ids)
        fed = list(ids)
        if self.pending is not None:
            fed, held = [self.pending, *fed], [held[0] if segment == "reply" else 0, *held]
        asks = segment in ("goal", "observation")
        cuts = passes(self, len(fed), asks)
        positions.check_room(self, held, cuts, releases=segment == "observation")
        if segment == "observation":
            self._counts["turn"] += 1
            self._release()
        self.pending = None
        self.tokens.extend(ids)
        if self.cache.store is not None:
            self.cache.store.reserve(self._growth(segment, len(fed)), shrink=True)
        for start, end in pairwise(cuts):
            self.feed([self], [fed[start:end]], [held[start:end]], "prefill", max(0, len(fed) - end))
        # A goal or a page of its own may need what earlier ones said.
        recalled = answer_from(self, self._counts["fetched"] - fetched) if asks else 0
        self._timed_confidence()
        spent = {key: self._seconds[key] - before[key] for key in before}
        return TurnStats(len(ids), spent["prefill"], spent["manage"], self._kept(), self.seen, recalled)

    def _growth(self, segment: str, count: int) -> int:
        """Slots that ``count`` tokens add at most: all of them where they are kept, else a chunk beyond the budget."""
        if SEGMENTS[segment] or self._budget is None:
            return count + 1
        return min(count, self.engine.chunk) + 1

    def _release(self) -> None:
        """The previous observation, and the reply before the last, lose their protection and compete."""
        if self.cache.store is None or self._manager is None:
            return
        start = time.perf_counter()
        self.cache.store.release()
        _, dropped = self._manager.evict(None, self.cache.seen)
        self._counts["evictions"] += dropped
        self.cache.store.age()
        self._seconds["manage"] += time.perf_counter() - start

    def _timed_confidence(self) -> None:
        start = time.perf_counter()
        assert self._logits is not None
        self._confidence = confidence(self._logits)
        # As for a decode step, which is asked about while the token it fed is not counted yet.
        self._uncertain = uncertain(self, self._confidence, self.seen - 1)
        self._seconds["manage"] += time.perf_counter() - start

    @property
    def _uncertain(self) -> bool:
        """Whether the newest distribution is one after which a policy recalls."""
        return bool(self._counts["uncertain"])

    @_uncertain.setter
    def _uncertain(self, value: bool) -> None:
        self._counts["uncertain"] = int(value)

    # -- generating ---------------------------------------------------------------------------------------------

    def generate(
        self,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        stop_ids: Iterable[int] | None = None,
        seed: int | None = None,
        allow: Callable[[int], bool] | None = None,
        segment: str = "text",
    ) -> Iterator[Token]:
        """Sample a reply, token by token.

        The last token sampled waits: the next :meth:`extend` or :meth:`generate` feeds it. Leaving the loop early is
        safe at any token.

        Args:
            max_new_tokens: at most so many.
            temperature: 0 is greedy; confidence is always that of the raw logits.
            stop_ids: tokens that end the reply, yielded with empty text; default: the model's.
            seed: reseeds the session's generator; None continues it.
            allow: tells of a token id whether it may come next (a grammar); asked for likely ones only. Confidence
                and policy do not see it.
            segment: what the tokens are to the cache, as in :meth:`extend`. An agent's turns are ``reply``; as they
                are protected, whatever they hold is on top of the budget.

        Raises:
            ConfkvError: unknown segment, or nothing was fed yet.
        """
        reply = Reply(self, max_new_tokens, temperature, stop_ids, seed, allow, segment)
        while reply.left > 0:
            yield advance([reply], self.feed)[0]

    def _record(self, seconds: float) -> float:
        """Note a decoded token; returns positions kept, the mean over layers."""
        kept, turn, looked = self._kept(), self._counts["turn"], self._looked
        budget, allocated = self._budget, self._allocated()
        self.steps.append(StepRecord(turn, self._confidence, budget, kept, allocated, seconds, self._recalled, looked))
        return kept

    def score(self, ids: list[int]) -> list[float]:
        """Teacher-forced decoding: log p of each token given all before it (nats).

        Each is then fed by a decode step of its own, with confidence and eviction as if it had been sampled.

        Raises:
            ConfkvError: nothing was fed yet, or a sampled token waits (:meth:`retract` it or :meth:`extend` first).
        """
        return step.score([self], [ids])[0]

    def retract(self) -> int | None:
        """Take back the last sampled token, which still waits to be fed: a stop token after which the reply is to go
        on. Returns it, or None if no token waits."""
        token, self.pending = self.pending, None
        if token is not None:
            self.tokens.pop()
        return token

    # -- positions ----------------------------------------------------------------------------------------------

    def original_positions(self, lane: int) -> Tensor:
        """Indices into :attr:`tokens` of what an evictable layer keeps.

        Returns:
            ``[H, n]`` int64, strictly increasing in each row: which positions are kept, not where the store has them.
            Where heads have budgets of their own, n is the most that one keeps, and shorter rows begin with -1.
        """
        return positions.layer_origins(self, lane)

    # -- state --------------------------------------------------------------------------------------------------

    def _allocated(self) -> int:
        return sum(self._bytes_by_kind().values())

    def _bytes_by_kind(self) -> dict[str, int]:
        store = self.cache.store
        kinds = store.bytes_by_kind() if store is not None else {"fp": 0, "int8": 0, "scales": 0, "meta": 0}
        kinds["meta"] += sum(table.nbytes for table in self._origins)
        kinds["meta"] += self._manager.nbytes if self._manager is not None else 0
        if self._manager is not None and self._manager.archive is not None:
            kinds["index"] = self._manager.archive.device_bytes
        kinds["ring"] = sum(r.k.nbytes + r.v.nbytes for r in self.cache.rings if r.k is not None and r.v is not None)
        return kinds

    def _kept_per_layer(self) -> list[float]:
        """Positions of each layer, the mean over heads that differ."""
        each = self.cache.per_layer
        lengths = iter(self.cache.store.lengths if self.cache.store is not None else [])
        rings = iter(self.cache.rings)
        return [next(rings).length if w else sum(islice(lengths, each)) / each for w in self.engine.windows]

    def _kept(self) -> float:
        kept = self._kept_per_layer()
        return sum(kept) / len(kept)

    @property
    def stats(self) -> SessionStats:
        """What the session holds and what it cost so far."""
        kinds = self._bytes_by_kind()
        archive = self._manager.archive if self._manager is not None else None
        return SessionStats(
            tokens_seen=self.seen,
            kept_per_layer=[round(kept) for kept in self._kept_per_layer()],
            bytes_by_kind=kinds,
            bytes=sum(kinds.values()),
            peak_bytes=self._bytes["peak"],
            mean_bytes=self._bytes["sum"] / max(self._counts["forwards"], 1),
            full_bytes=self.engine.full_bytes(self.seen),
            evictions=self._counts["evictions"] // self.cache.per_layer,
            rebases=self._counts["rebases"],
            decode_steps=len(self.steps),
            seconds=dict(self._seconds),
            host_bytes=archive.host_bytes if archive is not None else 0,
            recalls=self._counts["recalls"],
            recalled=self._counts["recalled"],
            looks=self._counts["looks"],
            fetched=self._counts["fetched"],
            due=self._counts["due"],
            exchanged=self._counts["exchanged"],
        )

    def checkpoint(self) -> Mark:
        """A copy of everything needed to come back here."""
        return checkpoint.take(self)

    def rewind(self, mark: Mark) -> None:
        """Go back to a checkpoint. Peak bytes and seconds stay: they were spent."""
        bytes_, seconds = dict(self._bytes), dict(self._seconds)
        checkpoint.restore(self, mark)
        self._bytes["peak"], self._seconds = bytes_["peak"], seconds

    def fork(self) -> Session:
        """An independent copy that continues from here."""
        twin = Session(self.engine)
        checkpoint.restore(twin, self.checkpoint())
        return twin

    def save(self, path: str | Path) -> None:
        """Write the session to one safetensors file, atomically.

        Raises:
            SessionFileError: the file cannot be written.
        """
        from confkv import session_file

        session_file.write(Path(path), self.checkpoint(), self.engine)

    @classmethod
    def load(cls, path: str | Path, engine: Engine) -> Session:
        """Read a session written by :meth:`save`; it continues exactly where it stopped.

        Raises:
            SessionFileError: not a session file, damaged, or made with another model or policy.
        """
        from confkv import session_file

        session = cls(engine)
        mark = session_file.read(Path(path), engine)
        try:
            checkpoint.restore(session, mark)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise SessionFileError(f"{path} is damaged: parts of the session are missing or misshapen") from error
        return session
