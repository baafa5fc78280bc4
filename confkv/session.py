"""Session: one growing conversation in one managed cache, from the first token to the last."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from confkv.confidence import confidence
from confkv.detokenise import Detokeniser
from confkv.errors import ConfkvError, SessionFileError
from confkv.manager import MASS_ROWS, Manager
from confkv.sampling import sample
from confkv.store import PINNED, PROTECTED, SINK, rotate
from confkv.telemetry import SessionStats, StepRecord, Token, TurnStats

if TYPE_CHECKING:
    from confkv.engine import Engine

Phase = Literal["prefill", "decode"]

#: Why the positions of a segment do not compete. Everything else competes from the start.
SEGMENTS = {"system": PINNED, "goal": PINNED, "observation": PROTECTED, "reply": 0, "text": 0}


@dataclass(frozen=True)
class Mark:
    """A point to :meth:`Session.rewind` to. Opaque."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Session:
    """One conversation.

    *Seen* is the logical length (every token that was fed), *kept* the physical one. Positions are absolute until the
    model's limit would be passed; then the survivors are re-based to compact positions, so a session has no maximum
    length. Not thread-safe. Open one with :meth:`Engine.session`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.cache = engine.new_cache()
        self.tokens: list[int] = []
        self.steps: list[StepRecord] = []
        self.pending: int | None = None
        self._manager: Manager | None = None
        self._logits: Tensor | None = None
        self._confidence, self._budget = 0.0, engine.policy.budget.at(None)
        self._counts = {"evictions": 0, "rebases": 0, "turn": 0, "forwards": 0, "seen": 0}
        self._bytes = {"peak": 0, "sum": 0}
        self._seconds = {"prefill": 0.0, "decode": 0.0, "manage": 0.0}
        #: per lane ``[H, end]``: original position of each re-based one; empty before the first re-basing
        self._origins: list[Tensor] = []
        self._shift = 0
        self._rng = torch.Generator().manual_seed(0)

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
                one arrives; ``reply`` and ``text`` compete at once.

        Raises:
            ConfkvError: unknown segment, nothing to append, or a full cache at the model's position limit.
        """
        if segment not in SEGMENTS:
            raise ConfkvError(f"unknown segment '{segment}'; use one of {', '.join(SEGMENTS)}")
        if not ids:
            raise ConfkvError("extend() was given no tokens")
        before = dict(self._seconds)
        held = [SEGMENTS[segment]] * len(ids)
        fed = list(ids)
        if self.pending is not None:
            fed, held = [self.pending, *fed], [0, *held]
        self._check_room(held, releases=segment == "observation")
        if segment == "observation":
            self._counts["turn"] += 1
            self._release()
        self.pending = None
        self.tokens.extend(ids)
        if self.cache.store is not None:
            self.cache.store.reserve(self._growth(segment, len(fed)), shrink=True)
        chunk = self.engine.chunk
        for start in range(0, len(fed), chunk):
            end = start + chunk
            self._feed(fed[start:end], held[start:end], "prefill", max(0, len(fed) - end))
        self._timed_confidence()
        spent = {key: self._seconds[key] - before[key] for key in before}
        return TurnStats(len(ids), spent["prefill"], spent["manage"], self._kept(), self.seen)

    def _growth(self, segment: str, count: int) -> int:
        """Slots that ``count`` tokens add at most: all of them where they are kept, else a chunk beyond the budget."""
        if SEGMENTS[segment] or self._budget is None:
            return count + 1
        return min(count, self.engine.chunk) + 1

    def _release(self) -> None:
        """The previous observation loses its protection and competes."""
        if self.cache.store is None or self._manager is None:
            return
        start = time.perf_counter()
        self.cache.store.release()
        _, dropped = self._manager.evict(None, self.cache.seen)
        self._counts["evictions"] += dropped
        self.cache.store.age()
        self._seconds["manage"] += time.perf_counter() - start

    def _feed(self, ids: list[int], held: list[int], phase: Phase, left: int = 0) -> None:
        """One forward pass and the management after it; ``left`` more tokens follow before the session is read."""
        steps, cache, engine = len(ids), self.cache, self.engine
        self._rebase_if_needed(steps)
        start = time.perf_counter()
        device = engine.model.device
        first = cache.seen
        positions = torch.arange(first, first + steps, device=device).unsqueeze(0)
        cache.begin(steps)
        self._logits = engine.forward(torch.tensor([ids], device=device), positions, cache)
        forwarded = time.perf_counter()
        sinks = engine.policy.sinks
        hold = [h + (SINK if self.seen + i < sinks else 0) for i, h in enumerate(held)]
        cache.seen += steps
        self._counts["seen"] += steps
        if cache.store is not None:
            cache.store.commit(first, hold if any(hold) else [], steps)
        self._manage(phase, left)
        done = time.perf_counter()
        self._seconds[phase] += forwarded - start
        self._seconds["manage"] += done - forwarded
        allocated = self._allocated()
        self._bytes["peak"] = max(self._bytes["peak"], allocated)
        self._bytes["sum"] += allocated
        self._counts["forwards"] += 1

    def _manage(self, phase: Phase, left: int) -> None:
        """Mass, eviction, quantising, and in decoding the confidence that sets the budget."""
        cache = self.cache
        assert self._logits is not None
        c = None
        if phase == "decode":
            self._confidence = confidence(self._logits)
            c = self._confidence
        if cache.store is None:
            return
        if self._manager is None:
            self._manager = Manager(self.engine.policy, cache.store)
        # Mass is read by the next eviction, and MASS_ROWS newer query rows outweigh all before them (1 - 0.9^32).
        if cache.queries and (left < MASS_ROWS or self._manager.due(c)):
            self._manager.record(cache.queries, cache.scales, cache.softcaps, cache.sink_logits)
        self._budget, dropped = self._manager.evict(c, cache.seen)
        self._counts["evictions"] += dropped
        cache.store.age()

    def _timed_confidence(self) -> None:
        start = time.perf_counter()
        assert self._logits is not None
        self._confidence = confidence(self._logits)
        self._seconds["manage"] += time.perf_counter() - start

    # -- generating ---------------------------------------------------------------------------------------------

    def generate(
        self,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        stop_ids: Iterable[int] | None = None,
        seed: int | None = None,
        allow: Callable[[int], bool] | None = None,
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

        Raises:
            ConfkvError: nothing was fed yet.
        """
        if self._logits is None:
            raise ConfkvError("nothing to continue; call extend() before generate()")
        stops = self.engine.stop_ids if stop_ids is None else frozenset(stop_ids)
        if seed is not None:
            self._rng.manual_seed(seed)
        pieces = Detokeniser(self.engine.tokenizer)
        for _ in range(max_new_tokens):
            start = time.perf_counter()
            if self.pending is not None:
                token, self.pending = self.pending, None
                self._feed([token], [0], "decode")
            before = time.perf_counter()
            token = self._sample(temperature, allow)
            self._seconds["decode"] += time.perf_counter() - before
            self.pending = token
            self.tokens.append(token)
            seconds = time.perf_counter() - start
            kept = self._kept()
            self.steps.append(
                StepRecord(self._counts["turn"], self._confidence, self._budget, kept, self._allocated(), seconds)
            )
            text = "" if token in stops else pieces.push(token)
            yield Token(token, text, self._confidence, self._budget, kept, seconds)
            if token in stops:
                return

    def retract(self) -> int | None:
        """Take back the last sampled token, which still waits to be fed: a stop token after which the reply is to go
        on. Returns it, or None if no token waits."""
        token, self.pending = self.pending, None
        if token is not None:
            self.tokens.pop()
        return token

    def _sample(self, temperature: float, allow: Callable[[int], bool] | None) -> int:
        assert self._logits is not None
        return sample(self._logits, temperature, self._rng, allow)

    # -- positions ----------------------------------------------------------------------------------------------

    def _require(self, end: int, steps: int) -> None:
        """Raise where a re-basing to ``end`` survivors does not make room for ``steps`` more positions."""
        limit = self.engine.max_positions
        assert limit is not None
        if not self.engine.policy.evicts or end + steps > limit:
            raise ConfkvError(
                f"{steps} more tokens do not fit: the session holds {end} positions and the model takes {limit}; "
                "use a policy that evicts, a smaller budget or a smaller chunk"
            )

    def _check_room(self, held: list[int], releases: bool) -> None:
        """Raise what :meth:`_rebase_if_needed` would raise on the way, before anything is changed.

        During prefill the number of survivors does not depend on what the tokens are, so it can be counted ahead.

        Args:
            held: why each of the tokens to come does not compete.
            releases: the previous observation competes from now on.
        """
        limit, cache, policy = self.engine.max_positions, self.cache, self.engine.policy
        if limit is None or cache.seen + len(held) <= limit:
            return
        store, position = cache.store, cache.seen
        if not policy.evicts:
            self._require(position, len(held))
        lanes = sum(window is None for window in self.engine.windows)
        lengths, kept = (store.lengths, store.held) if store is not None else ([0] * lanes, [0] * lanes)
        if store is not None and releases:
            kept = store.pinned()
        nominal = policy.budget.at(None)
        assert nominal is not None
        budgets = policy.budget.per_layer(nominal, lanes)
        rings = [(ring.length, ring.window - 1) for ring in cache.rings]
        for start in range(0, len(held), self.engine.chunk):
            lengths = [min(n, k + b) for n, k, b in zip(lengths, kept, budgets, strict=True)]
            part = held[start : start + self.engine.chunk]
            if position + len(part) > limit:
                position = max([*lengths, *(n for n, _ in rings)], default=0)
                self._require(position, len(part))
            position += len(part)
            lengths = [n + len(part) for n in lengths]
            kept = [k + sum(h >= PROTECTED for h in part) for k in kept]
            rings = [(min(n + len(part), most), most) for n, most in rings]

    def _rebase_if_needed(self, steps: int) -> None:
        limit, cache = self.engine.max_positions, self.cache
        if limit is None or cache.seen + steps <= limit:
            return
        start = time.perf_counter()
        store = cache.store
        lengths = store.lengths if store is not None else []
        end = max([*lengths, *(ring.length for ring in cache.rings)], default=0)
        self._require(end, steps)
        lane_freqs, ring_freqs = self.engine.lane_frequencies()
        if store is not None:
            origins = [self.original_positions(lane) for lane in range(store.lanes)]
            store.rebase(end, lane_freqs)
            self._remember_origins(origins, end)
        for ring, freq in zip(cache.rings, ring_freqs, strict=True):
            # A ring holds the newest positions without a gap: all of them move by the same distance.
            if ring.k is not None and freq is not None:
                delta = torch.full((ring.length,), float(end - cache.seen), device=ring.k.device)
                ring.k = rotate(ring.k, delta, freq)
        self._shift = self.seen - end
        cache.seen = end
        self._counts["rebases"] += 1
        self._seconds["manage"] += time.perf_counter() - start

    def _remember_origins(self, origins: list[Tensor], end: int) -> None:
        store = self.cache.store
        assert store is not None
        self._origins = []
        for lane, origin in enumerate(origins):
            table = torch.full((store.heads, end), -1, dtype=torch.int64, device=origin.device)
            self._origins.append(table.scatter_(1, store.positions(lane), origin))

    def original_positions(self, lane: int) -> Tensor:
        """Indices into :attr:`tokens` of what a lane (evictable layer) keeps, in slot order, ``[H, n]`` int64."""
        if self.cache.store is None:
            return torch.zeros(0, 0, dtype=torch.int64)
        now = self.cache.store.positions(lane)
        if not self._origins:
            return now
        table = self._origins[lane]
        end = table.shape[1]
        return torch.where(now < end, table.gather(1, now.clamp(max=end - 1)), now + self._shift)

    # -- state --------------------------------------------------------------------------------------------------

    def _allocated(self) -> int:
        return sum(self._bytes_by_kind().values())

    def _bytes_by_kind(self) -> dict[str, int]:
        store = self.cache.store
        kinds = store.bytes_by_kind() if store is not None else {"fp": 0, "int8": 0, "scales": 0, "meta": 0}
        kinds["meta"] += sum(table.nbytes for table in self._origins)
        kinds["ring"] = sum(r.k.nbytes + r.v.nbytes for r in self.cache.rings if r.k is not None and r.v is not None)
        return kinds

    def _kept_per_layer(self) -> list[int]:
        lengths = iter(self.cache.store.lengths if self.cache.store is not None else [])
        rings = iter(self.cache.rings)
        return [next(rings).length if w is not None else next(lengths, 0) for w in self.engine.windows]

    def _kept(self) -> float:
        kept = self._kept_per_layer()
        return sum(kept) / len(kept)

    @property
    def stats(self) -> SessionStats:
        """What the session holds and what it cost so far."""
        kinds = self._bytes_by_kind()
        return SessionStats(
            tokens_seen=self.seen,
            kept_per_layer=self._kept_per_layer(),
            bytes_by_kind=kinds,
            bytes=sum(kinds.values()),
            peak_bytes=self._bytes["peak"],
            mean_bytes=self._bytes["sum"] / max(self._counts["forwards"], 1),
            full_bytes=self.engine.full_bytes(self.seen),
            evictions=self._counts["evictions"],
            rebases=self._counts["rebases"],
            decode_steps=len(self.steps),
            seconds=dict(self._seconds),
        )

    def checkpoint(self) -> Mark:
        """A copy of everything needed to come back here."""
        tensors: dict[str, Tensor] = {}
        if self.cache.store is not None:
            tensors.update({f"store.{key}": value for key, value in self.cache.store.state().items()})
        for i, ring in enumerate(self.cache.rings):
            if ring.k is not None and ring.v is not None:
                tensors[f"ring.{i}.k"], tensors[f"ring.{i}.v"] = ring.k.clone(), ring.v.clone()
        tensors.update({f"origin.{i}": table.clone() for i, table in enumerate(self._origins)})
        if self._logits is not None:
            tensors["logits"] = self._logits.clone()
        tensors["rng"] = self._rng.get_state()
        state = {
            "tokens": list(self.tokens),
            "pending": self.pending,
            "position": self.cache.seen,
            "shift": self._shift,
            "confidence": self._confidence,
            "budget": self._budget,
            "counts": dict(self._counts),
            "bytes": dict(self._bytes),
            "seconds": dict(self._seconds),
            "steps": [vars(step) for step in self.steps],
        }
        return Mark(tensors, copy.deepcopy(state))

    def rewind(self, mark: Mark) -> None:
        """Go back to a checkpoint. Peak bytes and seconds stay: they were spent."""
        bytes_, seconds = dict(self._bytes), dict(self._seconds)
        self._restore(mark)
        self._bytes["peak"], self._seconds = bytes_["peak"], seconds

    def _restore(self, mark: Mark) -> None:
        tensors, state = mark.tensors, copy.deepcopy(mark.state)
        self.cache = self.engine.new_cache()
        self._manager = None
        if "store.k" in tensors:
            like = tensors["store.k"]
            store = self.cache.store_for(like[:, :, :0].to(self.engine.model.device))
            store.load_state({key[6:]: value for key, value in tensors.items() if key.startswith("store.")})
            self._manager = Manager(self.engine.policy, store)
        for i, ring in enumerate(self.cache.rings):
            if f"ring.{i}.k" in tensors:
                ring.k, ring.v = tensors[f"ring.{i}.k"].clone(), tensors[f"ring.{i}.v"].clone()
        count = sum(key.startswith("origin.") for key in tensors)
        self._origins = [tensors[f"origin.{i}"].clone() for i in range(count)]
        self._logits = tensors["logits"].clone() if "logits" in tensors else None
        self._rng.set_state(tensors["rng"].clone())
        self.tokens, self.pending = state["tokens"], state["pending"]
        self.cache.seen, self._shift = state["position"], state["shift"]
        self._confidence, self._budget = state["confidence"], state["budget"]
        self._counts, self._bytes, self._seconds = state["counts"], state["bytes"], state["seconds"]
        self.steps = [StepRecord(**step) for step in state["steps"]]

    def fork(self) -> Session:
        """An independent copy that continues from here."""
        twin = Session(self.engine)
        twin._restore(self.checkpoint())
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
            session._restore(mark)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise SessionFileError(f"{path} is damaged: parts of the session are missing or misshapen") from error
        return session
