"""Positions of a session: what still fits below the model's limit, and re-basing the survivors when it is reached."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from confkv.errors import ConfkvError
from confkv.rope import rotate
from confkv.store import ORIGIN, PROTECTED, Store

if TYPE_CHECKING:
    from confkv.session import Session


def _require(session: Session, end: int, steps: int) -> None:
    """Raise where a re-basing to ``end`` survivors does not make room for ``steps`` more positions."""
    limit = session.engine.max_positions
    assert limit is not None
    if not session.engine.policy.evicts or end + steps > limit:
        raise ConfkvError(
            f"{steps} more tokens do not fit: the session holds {end} positions and the model takes {limit}; "
            "use a policy that evicts, a smaller budget or a smaller chunk"
        )


def check_room(session: Session, held: list[int], cuts: list[int], releases: bool) -> None:
    """Raise what :func:`rebase_if_needed` would raise on the way, before anything is changed.

    During prefill the number of survivors does not depend on what the tokens are, so it can be counted ahead; where
    shares follow the attention seen, the most that a lane may get is counted.

    Args:
        held: why each of the tokens to come does not compete.
        cuts: where they are cut into passes, both ends among them.
        releases: the next turn begins; what the last one protected competes from now on.
    """
    limit, cache, policy = session.engine.max_positions, session.cache, session.engine.policy
    if limit is None or cache.seen + len(held) <= limit:
        return
    store, position = cache.store, cache.seen
    if not policy.evicts:
        _require(session, position, len(held))
    layers = sum(window is None for window in session.engine.windows)
    lanes = layers * cache.per_layer
    lengths, kept = (store.lengths, store.held) if store is not None else ([0] * lanes, [0] * lanes)
    if store is not None and releases:
        kept = store.held_after_release()
    nominal = policy.budget.at(None)
    assert nominal is not None
    budgets = policy.budget.per_layer(nominal, layers)
    if policy.shares is not None:
        most = [policy.reserve + policy.shares.most(n - policy.reserve, cache.per_layer) for n in budgets]
        budgets = [n for n in most for _ in range(cache.per_layer)]
        if session._manager is not None:
            # Shares taken at a smaller budget were rounded there, and scale with it.
            budgets = [max(pair) for pair in zip(budgets, session._manager.layer_budgets(nominal), strict=True)]
    rings = [(ring.length, ring.window - 1) for ring in cache.rings]
    for start, end in pairwise(cuts):
        lengths = [min(n, k + b) for n, k, b in zip(lengths, kept, budgets, strict=True)]
        part = held[start:end]
        if position + len(part) > limit:
            position = max([*lengths, *(n for n, _ in rings)], default=0)
            _require(session, position, len(part))
        position += len(part)
        lengths = [n + len(part) for n in lengths]
        kept = [k + sum(h >= PROTECTED for h in part) for k in kept]
        rings = [(min(n + len(part), most), most) for n, most in rings]


def rebase_if_needed(session: Session, steps: int) -> None:
    """Where ``steps`` more positions would pass the model's limit, move the survivors to compact positions."""
    limit, cache = session.engine.max_positions, session.cache
    if limit is None or cache.seen + steps <= limit:
        return
    start = time.perf_counter()
    store = cache.store
    lengths = store.lengths if store is not None else []
    end = max([*lengths, *(ring.length for ring in cache.rings)], default=0)
    _require(session, end, steps)
    lane_freqs, ring_freqs = session.engine.lane_frequencies()
    if store is not None:
        origins = [lane_origins(session, store, lane) for lane in range(store.lanes)]
        store.rebase(end, lane_freqs)
        store.shift = session.seen - end
        if not store.origins:
            _remember_origins(session, origins, end)
        if (manager := session._manager) is not None:
            manager.rebase(end - cache.seen, lane_freqs)
            if manager.archive is not None:
                manager.archive.rebase(origins, end, lane_freqs)
    for ring, freq in zip(cache.rings, ring_freqs, strict=True):
        # A ring holds the newest positions without a gap: all of them move by the same distance.
        if ring.k is not None and freq is not None:
            delta = torch.full((ring.length,), float(end - cache.seen), device=ring.k.device)
            ring.k = rotate(ring.k, delta, freq)
    session._shift = session.seen - end
    cache.seen = end
    session._counts["rebases"] += 1
    session._seconds["manage"] += time.perf_counter() - start


def layer_origins(session: Session, layer: int) -> Tensor:
    """:meth:`Session.original_positions`."""
    store = session.cache.store
    if store is None:
        return torch.zeros(0, 0, dtype=torch.int64)
    first = layer * store.per_layer
    each = [lane_origins(session, store, lane) for lane in range(first, first + store.per_layer)]
    longest = max(rows.shape[1] for rows in each)
    return torch.cat([pad(rows, (longest - rows.shape[1], 0), value=-1) for rows in each])


def lane_origins(session: Session, store: Store, lane: int) -> Tensor:
    """Indices into the session's tokens of what a lane keeps, ``[H, n]`` int64, increasing in each row."""
    if store.origins:
        return store.meta[lane, :, : store.lengths[lane], ORIGIN].long().sort(-1).values
    now = store.positions(lane)
    if not session._origins:
        return now
    # A re-basing keeps the order of positions, so sorted ones give sorted origins.
    table = session._origins[lane]
    end = table.shape[1]
    return torch.where(now < end, table.gather(1, now.clamp(max=end - 1)), now + session._shift)


def _remember_origins(session: Session, origins: list[Tensor], end: int) -> None:
    store = session.cache.store
    assert store is not None
    session._origins = []
    for lane, origin in enumerate(origins):
        table = torch.full((store.heads, end), -1, dtype=torch.int64, device=origin.device)
        session._origins.append(table.scatter_(1, store.positions(lane), origin))
