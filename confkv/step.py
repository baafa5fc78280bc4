"""One forward pass, of one session or of several over the same weights, and the management after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from confkv import positions
from confkv.bridge import Together
from confkv.confidence import confidence
from confkv.errors import ConfkvError
from confkv.manager import Manager
from confkv.recall import Contents, Fetch, fetching, fetching_again, put_back, ring_contents, uncertain
from confkv.store import SINK

if TYPE_CHECKING:
    from confkv.session import Session

Phase = Literal["prefill", "decode"]
#: What runs a pass: :func:`feed`, or what stands in for it. Sessions, tokens, why they are held, phase, tokens left.
Feed = Callable[["Sequence[Session]", list[list[int]], list[list[int]], Phase, int], object]


def feed(sessions: Sequence[Session], ids: list[list[int]], held: list[list[int]], phase: Phase, left: int = 0) -> None:
    """Append tokens to each session by one forward pass for all, then manage each cache by its own policy.

    Weights are read once however many sessions there are; attention and management are each session's own. Its share
    of the pass's time is what it is charged for.

    Args:
        sessions: over the same model; their policies may differ.
        ids: tokens of each session, equally many.
        held: why each of them does not compete.
        left: tokens that follow before the sessions are read.

    Raises:
        ConfkvError: a full cache at the model's position limit; nothing was fed then, and in decoding the tokens wait.
    """
    steps, engine = len(ids[0]), sessions[0].engine
    try:
        for session in sessions:
            positions.rebase_if_needed(session, steps)
    except ConfkvError:
        if phase == "decode":
            for session, own in zip(sessions, ids, strict=True):
                session.pending = own[0]
        raise
    start = time.perf_counter()
    device = engine.model.device
    first = [session.cache.seen for session in sessions]
    at = torch.tensor(first, device=device).unsqueeze(1) + torch.arange(steps, device=device)
    rings = [ring_contents(s.cache.rings) if s.engine.policy.looks else [] for s in sessions]
    tokens = torch.tensor(ids, device=device)
    fetches = [fetching(session, phase == "decode") for session in sessions]
    _forward(sessions, tokens, at, fetches)
    for session, fetch in zip(sessions, fetches, strict=True):
        start += _note(session, fetch, phase) if fetch is not None else 0.0
    forwarded, aside = time.perf_counter(), _aside(sessions)
    verdicts = _judge(sessions, tokens, at, rings, fetches) if phase == "decode" else [None] * len(sessions)
    judged = time.perf_counter() - forwarded - (_aside(sessions) - aside)
    for session, own, position, verdict in zip(sessions, held, first, verdicts, strict=True):
        begun, before = time.perf_counter(), _aside([session])
        _settle(session, own, position, left, verdict)
        session._seconds[phase] += (forwarded - start) / len(sessions)
        spent = time.perf_counter() - begun - (_aside([session]) - before)
        session._seconds["manage"] += spent + judged / len(sessions)
        allocated = session._allocated()
        session._bytes["peak"] = max(session._bytes["peak"], allocated)
        session._bytes["sum"] += allocated
        session._counts["forwards"] += 1


def score(sessions: Sequence[Session], ids: Sequence[list[int]]) -> list[list[float]]:
    """Teacher-forced decoding of several sessions at once; see :meth:`confkv.session.Session.score`.

    Args:
        sessions: over the same model; their policies may differ.
        ids: tokens of each session, equally many.

    Returns:
        log p of each token of each session, nats.

    Raises:
        ConfkvError: a session that was not fed yet or has a sampled token waiting, unequal numbers of tokens, or
            different models.
    """
    if any(s._logits is None or s.pending is not None for s in sessions):
        raise ConfkvError("score() needs a session that was extended and has no sampled token waiting")
    if len(sessions) != len(ids) or len({len(own) for own in ids}) > 1:
        raise ConfkvError("score() needs as many tokens for each session as for the others")
    if len({id(session.engine.model) for session in sessions}) > 1 or len(set(map(id, sessions))) < len(sessions):
        raise ConfkvError("score() needs different sessions over one model")
    out: list[list[float]] = [[] for _ in sessions]
    for tokens in zip(*ids, strict=True):
        start = time.perf_counter()
        for session, token, scores in zip(sessions, tokens, out, strict=True):
            assert session._logits is not None
            scores.append(float(session._logits.float().log_softmax(-1)[token]))
            session.tokens.append(token)
            session._recalled, session._looked = 0, False
        feed(sessions, [[token] for token in tokens], [[0]] * len(sessions), "decode")
        seconds = (time.perf_counter() - start) / len(sessions)
        for session in sessions:
            session._record(seconds)
    return out


def _forward(
    sessions: Sequence[Session], tokens: Tensor, at: Tensor, fetches: Sequence[Fetch | None] | None = None
) -> None:
    """One pass; ``fetches`` bring pages back within it."""
    for i, session in enumerate(sessions):
        session.cache.begin(tokens.shape[1])
        session.cache.fetch = fetches[i] if fetches else None
    engine, (one, *others) = sessions[0].engine, sessions
    if not others:
        one._logits = engine.forward(tokens, at, one.cache)
        return
    logits = engine.forward(tokens, at, Together([session.cache for session in sessions]))
    for session, row in zip(sessions, logits, strict=True):
        session._logits = row


def _note(session: Session, fetch: Fetch, phase: Phase) -> float:
    """Count what came back within a pass; returns the seconds it took."""
    if phase == "prefill":
        session._counts["fetched"] += fetch.brought
    else:
        session._recalled += fetch.brought
        session._counts["due"] += fetch.due
        session._counts["exchanged"] += fetch.exchanged
        session._counts["recalls"] += fetch.brought > 0
        session._counts["recalled"] += fetch.brought
    session._seconds["recall"] += fetch.seconds
    return fetch.seconds


@dataclass(frozen=True)
class _Verdict:
    """What a decode step turned out to be.

    Attributes:
        confidence: of its first pass.
        uncertain: whether it is one with recall.
    """

    confidence: float
    uncertain: bool


def _judge(
    sessions: Sequence[Session], tokens: Tensor, at: Tensor, rings: list[Contents], fetches: Sequence[Fetch | None]
) -> list[_Verdict | None]:
    """Note the confidence of a decode step, and tell whether it is one with recall; second looks are taken here.

    A look runs the token of the pass just made again, with pages recalled for its own queries. A pass that had them
    already stands, as does one when there is nothing to recall.
    """
    verdicts: list[_Verdict | None] = []
    looking, again = [], []
    for i, session in enumerate(sessions):
        assert session._logits is not None
        c = session._confidence = confidence(session._logits)
        due = uncertain(session, c, session.seen)
        verdicts.append(_Verdict(c, due))
        fetch = fetching_again(session) if due and session.engine.policy.looks and fetches[i] is None else None
        if fetch is not None:
            looking.append(i)
            again.append(fetch)
            put_back(session, rings[i])
    if not looking:
        return verdicts
    start = time.perf_counter()
    rows = [sessions[i] for i in looking]
    _forward(rows, tokens[looking], at[looking], again)
    fetched = sum(_note(session, fetch, "decode") for session, fetch in zip(rows, again, strict=True))
    seconds = (time.perf_counter() - start - fetched) / len(rows)
    for session in rows:
        session._looked = True
        session._counts["looks"] += 1
        session._seconds["look"] += seconds
        assert session._logits is not None
        session._confidence = confidence(session._logits)
    return verdicts


def _settle(session: Session, held: list[int], first: int, left: int, verdict: _Verdict | None) -> None:
    """What was fed becomes the session's; then mass, eviction, quantising.

    In decoding, where there is a verdict, the confidence sets the budget, or the gate of a recall does.
    """
    cache, policy, steps = session.cache, session.engine.policy, len(held)
    hold = [h + (SINK if session.seen + i < policy.sinks else 0) for i, h in enumerate(held)]
    cache.seen += steps
    session._counts["seen"] += steps
    if cache.store is None:
        return
    cache.store.commit(first, hold if any(hold) else [], steps)
    c = session._confidence if verdict else None
    if verdict and policy.recall is not None:
        c = None if verdict.uncertain else float("inf")
    if session._manager is None:
        session._manager = Manager(policy, cache.store, session.engine.lexicon)
    # What is chosen next is chosen among the tokens fed, the newest included.
    session._manager.read(session.tokens, session.seen)
    if cache.queries and session._manager.wants(left, c):
        session._manager.record(cache.queries, cache.scales, cache.softcaps, cache.sink_logits)
    session._budget, dropped = session._manager.evict(c, cache.seen)
    session._counts["evictions"] += dropped
    cache.store.age()
    if verdict is not None:
        session._manager.past.add(verdict.confidence)
        session._uncertain = verdict.uncertain


def _aside(sessions: Sequence[Session]) -> float:
    """Seconds of recalls and looks so far, which are counted apart from management."""
    return sum(session._seconds["recall"] + session._seconds["look"] for session in sessions)
