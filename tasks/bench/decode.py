"""Teacher-forced runs: prefill a short prefix, then score token by token under a policy, some segments at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from confkv.policies import Policy
from confkv.ragged import RaggedStore
from confkv.session import Session
from confkv.step import score
from tasks.bench.model import Model
from tasks.bench.results import Identity, Row
from tasks.bench.text import Segment

#: Where a policy has no threshold of its own, confident means what it means in CONF-KV (arXiv 2605.24786).
TAU = 0.7
_SLICE = 32

Advance = Callable[[int], None]


class Run(Row):
    """A finished run.

    Attributes:
        start: first token of the segment within the text.
        tokens: scored tokens (the prefix is not among them).
        nll: sum of their negative log-likelihoods, nats.
        mean_bytes, peak_bytes, full_bytes: as in ``SessionStats``: allocated on the device, mean over forward passes;
            full KV's at the end.
        host_bytes: bytes of the archive at the end, 0 where there is none.
        kept: positions held, mean over steps and layers.
        evictions, recalls, looks: as the session counts them.
        confident: steps whose confidence reached the policy's tau.
        slots: what was allocated for before the first scored token, in positions a layer; 0: as the session grows.
        used: most positions that a layer held at once, the one just fed among them.
        grown: whether the session had to allocate more than that.
    """

    start: int
    tokens: int
    nll: float
    mean_bytes: float
    peak_bytes: int
    full_bytes: int
    host_bytes: int
    kept: float
    evictions: int
    recalls: int
    looks: int
    confident: int
    slots: int
    used: int
    grown: bool


def identity(model: Model, policy: Policy, segment: Segment, prefix: int, tokens: int, slots: int) -> Identity:
    """What the run of ``policy`` over a segment is known by."""
    return Identity(
        bench="decode",
        model=model.name,
        fingerprint=model.fingerprint,
        policy=policy.spec,
        text=segment.text.digest,
        parameters={**model.parameters, "start": segment.start, "prefix": prefix, "tokens": tokens, "slots": slots},
    )


def slots_for(model: Model, policy: Policy, segment: Segment, prefix: int, target: float) -> int:
    """Positions a layer that take ``target`` bytes, to the nearest, under a policy with its metadata; by prefilling.

    Where layers have budgets of their own it is those of the layer with most; the others get their share of that.
    0 where the store cannot be given a size: an INT8 history is a second part that grows by itself.
    """
    session = model.engine(policy).session()
    session.extend(segment.ids[:prefix])
    store = session.cache.store
    if store is None or store.int8 or not store.lanes:
        return 0
    kinds = store.bytes_by_kind()
    a_slot = kinds["fp"] / sum(part.capacity * part.lanes for part in store.parts) * sum(_shares(session))
    a_slot += kinds["meta"] / max(1, store.meta.shape[2])
    other = session.stats.bytes - kinds["fp"] - kinds["meta"]
    return max(0, round((target - other) / a_slot))


def _shares(session: Session) -> list[float]:
    """Budget of each layer as a part of the largest; 1 where the layers have one store."""
    store, manager, nominal = session.cache.store, session._manager, session.engine.policy.budget.at(None)
    assert store is not None
    if not isinstance(store, RaggedStore) or manager is None or nominal is None:
        return [1.0] * store.lanes
    budgets = manager.layer_budgets(nominal)
    return [budget / max(budgets) for budget in budgets]


def _rooms(session: Session, slots: int) -> list[int]:
    """Slots of each of the store's parts, where the layer with most gets ``slots``."""
    store = session.cache.store
    return [math.ceil(slots * x - 1e-9) for x in _shares(session)][: len(store.parts)] if store is not None else []


def decode(
    model: Model, policy: Policy, segments: list[Segment], prefix: int, tokens: int, advance: Advance, slots: int = 0
) -> list[Run]:
    """Measure: ``segment.ids[:prefix]`` is prefilled as plain text, the next ``tokens`` are scored one by one.

    The segments are scored together, a session each: one forward pass a step reads the weights for all of them. With
    ``slots`` a store is allocated for so many positions a layer after the prefix; it grows only where a layer comes to
    hold more.

    Returns:
        a run for each segment; ``seconds`` is its share.
    """
    clock, engine = time.perf_counter(), model.engine(policy)
    followed = [_Followed(engine.session(), segment, prefix, slots) for segment in segments]
    scores: list[list[float]] = [[] for _ in segments]
    for begin in range(prefix, prefix + tokens, _SLICE):
        end = min(begin + _SLICE, prefix + tokens)
        new = score([one.session for one in followed], [segment.ids[begin:end] for segment in segments])
        for one, old, more in zip(followed, scores, new, strict=True):
            old += more
            one.watch()
        advance((end - begin) * len(segments))
    seconds = round((time.perf_counter() - clock) / len(segments), 3)
    return [
        one.run(identity(model, policy, one.segment, prefix, tokens, slots), -sum(own), tokens, seconds)
        for one, own in zip(followed, scores, strict=True)
    ]


class _Followed:
    """A session of a run, and how much of its allocation it used."""

    def __init__(self, session: Session, segment: Segment, prefix: int, slots: int) -> None:
        self.session, self.segment, self.prefix, self.slots, self.used = session, segment, prefix, slots, 0
        session.extend(segment.ids[:prefix])
        self.watch()
        store = session.cache.store
        self.rooms = _rooms(session, slots)
        if store is not None and slots > self.used + 1:
            if isinstance(store, RaggedStore):
                store.allocate(self.rooms)
            else:
                store.reserve(slots - self.used)

    def watch(self) -> None:
        """Look at the store."""
        store = self.session.cache.store
        self.used = max([self.used, *(store.lengths if store is not None else [])])

    def run(self, known_by: Identity, nll: float, tokens: int, seconds: float) -> Run:
        """What came out."""
        session, stats = self.session, self.session.stats
        store, tau = session.cache.store, session.engine.policy.budget.threshold
        tau = TAU if tau is None else tau
        parts = store.parts if store is not None else []
        return Run(
            identity=known_by,
            seconds=seconds,
            start=self.segment.start,
            tokens=tokens,
            nll=nll,
            mean_bytes=stats.mean_bytes,
            peak_bytes=stats.peak_bytes,
            full_bytes=stats.full_bytes,
            host_bytes=stats.host_bytes,
            kept=sum(step.kept for step in session.steps) / tokens,
            evictions=stats.evictions,
            recalls=stats.recalls,
            looks=stats.looks,
            confident=sum(step.confidence >= tau for step in session.steps),
            slots=self.slots,
            # Between two looks the mean over layers says at least how far it went; the newest comes on top.
            used=max(self.used, *(math.ceil(step.kept) for step in session.steps)) + 1,
            grown=bool(self.slots)
            and any(part.capacity > max(room, self.prefix) for part, room in zip(parts, self.rooms, strict=True)),
        )
