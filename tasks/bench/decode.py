"""Teacher-forced runs: prefill a short prefix, then score token by token under a policy, some runs at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confkv.policies import Policy
from confkv.ragged import RaggedStore
from confkv.session import Session
from confkv.step import score
from confkv.store import Store
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
        confident: steps whose confidence reached the policy's tau; that of a token run again because of it did not.
        slots: what was allocated for before the first scored token, in positions a layer; 0: as the session grows.
        used: most positions that a layer held at once, the one just fed among them; the mean over its heads, rounded
            up, where they have budgets of their own.
        grown: whether the session had to allocate more than that.
        exchanged: share of (layer, decode step) pairs that exchanged what they hold for pages, of those that were due;
            None where none was.
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
    exchanged: float | None = None


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

    Where layers have budgets of their own it is those of the layer with most; the others get their share of that, and
    the heads of a layer theirs of the layer's.
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
    """Budget of each lane as a part of the largest layer's a head; 1 where the layers have one store."""
    store, manager, nominal = session.cache.store, session._manager, session.engine.policy.budget.at(None)
    assert store is not None
    if not isinstance(store, RaggedStore) or manager is None or nominal is None:
        return [1.0] * store.lanes
    budgets, each = manager.layer_budgets(nominal), store.per_layer
    largest = max(sum(budgets[first : first + each]) / each for first in range(0, store.lanes, each))
    return [budget / largest for budget in budgets]


def _rooms(session: Session, slots: int) -> list[int]:
    """Slots of each of the store's parts, where the layer with most gets ``slots`` a head."""
    store = session.cache.store
    return [math.ceil(slots * x - 1e-9) for x in _shares(session)][: len(store.parts)] if store is not None else []


def _longest(store: Store | None) -> int:
    """Positions of the layer with most, the mean over its heads, rounded up."""
    if store is None:
        return 0
    lengths, each = store.lengths, store.per_layer
    return max((-(-sum(lengths[first : first + each]) // each) for first in range(0, len(lengths), each)), default=0)


def _unshared(session: Session) -> bool:
    """Whether heads are to share their layer's budget and do not yet: before the first eviction."""
    manager = session._manager
    return session.engine.policy.shares is not None and manager is not None and not manager.allocation


@dataclass(frozen=True)
class Job:
    """A run to make: a policy on a segment, with a store allocated for ``slots`` positions (0: as the session grows).

    With ``slots`` the store grows only where a layer comes to hold more. Heads that share that allocation divide it
    anew when their shares are known.
    """

    policy: Policy
    segment: Segment
    slots: int = 0


def decode(model: Model, jobs: Sequence[Job], prefix: int, tokens: int, advance: Advance) -> list[Run]:
    """Measure: ``segment.ids[:prefix]`` is prefilled as plain text, the next ``tokens`` are scored one by one.

    All jobs are scored together, a session each: one forward pass a step reads the weights for all of them.

    Args:
        advance: told of tokens scored, all jobs' together.

    Returns:
        a run for each job; ``seconds`` is its session's: an equal share of each forward pass, and its own management.
    """
    followed = [_Followed(model, job, prefix) for job in jobs]
    scores: list[list[float]] = [[] for _ in jobs]
    begin = prefix
    while begin < prefix + tokens:
        watched = any(one.unshared for one in followed)
        end = min(begin + (1 if watched else _SLICE), prefix + tokens)
        new = score([one.session for one in followed], [job.segment.ids[begin:end] for job in jobs])
        for one, old, more in zip(followed, scores, new, strict=True):
            old += more
            one.watch()
        advance((end - begin) * len(jobs))
        begin = end
    return [
        one.run(identity(model, job.policy, job.segment, prefix, tokens, job.slots), -sum(own), tokens)
        for one, job, own in zip(followed, jobs, scores, strict=True)
    ]


class _Followed:
    """A session of a run, and how much of its allocation it used.

    Attributes:
        unshared: heads are to share their layer's budget and do not yet: before the first eviction.
    """

    def __init__(self, model: Model, job: Job, prefix: int) -> None:
        self.session, self.job, self.prefix, self.used = model.engine(job.policy).session(), job, prefix, 0
        self.session.extend(job.segment.ids[:prefix])
        self.unshared = _unshared(self.session)
        store = self.session.cache.store
        self.used = _longest(store)
        self.rooms = _rooms(self.session, job.slots)
        self.allocates = store is not None and job.slots > self.used + 1
        if isinstance(store, RaggedStore) and self.allocates:
            store.allocate(self.rooms)
        elif store is not None and self.allocates:
            store.reserve(job.slots - self.used)

    def watch(self) -> None:
        """Look at the store."""
        store = self.session.cache.store
        self.used = max(self.used, _longest(store))
        if self.unshared and not _unshared(self.session):
            self.unshared = False
            self.rooms = _rooms(self.session, self.job.slots)
            if isinstance(store, RaggedStore) and self.allocates:
                store.allocate(self.rooms)

    def run(self, known_by: Identity, nll: float, tokens: int) -> Run:
        """What came out."""
        session, stats = self.session, self.session.stats
        store, tau = session.cache.store, self.job.policy.budget.threshold
        tau = TAU if tau is None else tau
        recall = self.job.policy.recall
        # A step tells the confidence after a second look; before it, it was below tau.
        by_confidence = recall is not None and recall.gate == "confidence"
        parts = store.parts if store is not None else []
        rooms = zip(parts, self.rooms, strict=True) if parts else []
        return Run(
            identity=known_by,
            seconds=round(sum(stats.seconds.values()), 3),
            start=self.job.segment.start,
            tokens=tokens,
            nll=nll,
            mean_bytes=stats.mean_bytes,
            peak_bytes=stats.peak_bytes,
            full_bytes=stats.full_bytes,
            host_bytes=stats.host_bytes,
            kept=sum(step.kept for step in session.steps) / tokens,
            evictions=stats.evictions,
            recalls=stats.recalls,
            exchanged=stats.exchanged / stats.due if stats.due else None,
            looks=stats.looks,
            confident=sum(step.confidence >= tau and not (step.looked and by_confidence) for step in session.steps),
            slots=self.job.slots,
            # Between two looks the mean over layers says at least how far it went; the newest comes on top.
            used=max(self.used, *(math.ceil(step.kept) for step in session.steps)) + 1,
            grown=bool(self.job.slots) and any(part.capacity > max(room, self.prefix) for part, room in rooms),
        )
