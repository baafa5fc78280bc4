"""One teacher-forced run: prefill a short prefix, then score token by token under a policy."""

from __future__ import annotations

import time
from collections.abc import Callable

from confkv.policies import Policy
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


def identity(model: Model, policy: Policy, segment: Segment, prefix: int, tokens: int) -> Identity:
    """What the run of ``policy`` over a segment is known by."""
    return Identity(
        bench="decode",
        model=model.name,
        fingerprint=model.fingerprint,
        policy=policy.spec,
        text=segment.text.digest,
        parameters={**model.parameters, "start": segment.start, "prefix": prefix, "tokens": tokens},
    )


def threshold(policy: Policy) -> float:
    """The policy's tau, also where another budget wraps the one by confidence."""
    budget = policy.budget
    return float(getattr(budget, "tau", getattr(getattr(budget, "base", None), "tau", TAU)))


def decode(model: Model, policy: Policy, segment: Segment, prefix: int, tokens: int, advance: Advance) -> Run:
    """Measure: ``segment.ids[:prefix]`` is prefilled as plain text, the next ``tokens`` are scored one by one."""
    clock = time.perf_counter()
    session = model.engine(policy).session()
    session.extend(segment.ids[:prefix])
    scores: list[float] = []
    for begin in range(prefix, prefix + tokens, _SLICE):
        piece = segment.ids[begin : min(begin + _SLICE, prefix + tokens)]
        scores += session.score(piece)
        advance(len(piece))
    stats, tau = session.stats, threshold(policy)
    return Run(
        identity=identity(model, policy, segment, prefix, tokens),
        seconds=round(time.perf_counter() - clock, 3),
        start=segment.start,
        tokens=tokens,
        nll=-sum(scores),
        mean_bytes=stats.mean_bytes,
        peak_bytes=stats.peak_bytes,
        full_bytes=stats.full_bytes,
        host_bytes=int(getattr(stats, "host_bytes", 0)),
        kept=sum(step.kept for step in session.steps) / tokens,
        evictions=stats.evictions,
        recalls=int(getattr(stats, "recalls", 0)),
        looks=int(getattr(stats, "looks", 0)),
        confident=sum(step.confidence >= tau for step in session.steps),
    )
