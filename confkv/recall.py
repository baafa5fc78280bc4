"""Recall and second look: bringing archived positions back, and running an uncertain token again with them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from confkv.archive import Archive
from confkv.rows import open_slots, used, value_norms, write_rows
from confkv.store import MASS, ORIGIN, POS, Store
from confkv_kernels import page_scores

if TYPE_CHECKING:
    from confkv.bridge import RingLayer
    from confkv.session import Session

#: Recorded mass of a slot that is to be vacated: below any real one, and it moves with the slot.
_VACANT = -1.0
#: Keys and values of each sliding-window layer.
Contents = list[tuple[Tensor | None, Tensor | None]]


@dataclass(frozen=True)
class Plan:
    """What a recall changes.

    Attributes:
        vacate: bool ``[G, h, n]`` over slots; they leave (h = 1 where the heads of a lane share one kept set).
        bring: bool ``[G, h, m]`` over ``rows``; they come back.
        rows, origin: ``[G, h, m]`` int64, archive rows and their origins, best page first.
        lengths: slots of each lane afterwards.
    """

    vacate: Tensor
    bring: Tensor
    rows: Tensor
    origin: Tensor
    lengths: list[int]


def choose(store: Store, archive: Archive, score: Tensor, free: Tensor, targets: list[int]) -> Plan:
    """Fill every lane with the best pages, up to ``targets``; what competes and is not in them leaves.

    A position that is held and belongs to a chosen page stays as it is. The last page may come in part, so that the
    budget is met exactly.

    Args:
        score: ``[G, h, P]`` float32 of pages in stored order.
        free: bool ``[G, h, n]``, slots that compete; False for all others, of whatever kind.
        targets: slots of each lane afterwards, at most.
    """
    heads, n, page = score.shape[1], free.shape[-1], archive.page
    free = free.cpu()
    valid = used(store.lengths, n, free.device)
    starts = archive.page_starts()
    total = starts.shape[0] * page
    origin = store.meta[:, :heads, :n, ORIGIN].long().cpu()
    inside = valid & (origin >= archive.first) & (origin < archive.end)
    # One more column than rows, for slots that are not archived.
    slot_of = torch.full((store.lanes, heads, total + 1), -1, dtype=torch.int64)
    slot_of.scatter_(2, torch.where(inside, archive.rows_of(origin), total), torch.arange(n).expand_as(origin))
    slot_of = slot_of[..., :total]
    candidate = (slot_of < 0) | free.gather(2, slot_of.clamp(min=0))
    # Equal in all heads of a lane: what does not compete is the same in each.
    fixed = (valid & ~free).sum(-1)[:, 0]
    room = (torch.tensor(targets) - fixed).clamp_(min=0).view(-1, 1, 1)
    count = candidate.unflatten(2, (-1, page)).sum(-1)
    partial = int(((count > 0) & (count < page)).sum(-1).max())
    most = min(starts.shape[0], -(-int(room.max()) // page) + partial)
    top = score.cpu().masked_fill(count == 0, float("-inf")).topk(most, -1).indices.unsqueeze(-1)
    rows = (top * page + torch.arange(page)).flatten(2)
    chosen = candidate.gather(2, rows)
    chosen &= chosen.cumsum(-1) <= room
    held = slot_of.gather(2, rows)
    stays = torch.zeros(store.lanes, heads, n + 1, dtype=torch.bool)
    stays.scatter_(2, torch.where(chosen & (held >= 0), held, n), True)
    origins = (starts[top] + torch.arange(page)).flatten(2)
    after = fixed + chosen.sum(-1)[:, 0]
    return Plan(valid & free & ~stays[..., :n], chosen & (held < 0), rows, origins, after.tolist())


def carry_out(store: Store, archive: Archive, plan: Plan) -> None:
    """Make the store what the plan says. Rows that come back take the slots of those that leave."""
    n = plan.vacate.shape[-1]
    mass = store.meta[:, :, :n, MASS]
    mass.masked_fill_(plan.vacate.to(store.device), _VACANT)
    targets = [min(a, b) for a, b in zip(store.lengths, plan.lengths, strict=True)]
    store.evict(torch.where(mass[:, : plan.vacate.shape[1]] == _VACANT, 0.0, float("inf")), targets)
    growth = [b - a for a, b in zip(store.lengths, plan.lengths, strict=True)]
    new = open_slots(store, growth) if any(growth) else None
    n = max(store.lengths)
    holes = (store.meta[:, :, :n, MASS] == _VACANT) & used(store.lengths, n, store.device)
    if new is not None:
        holes |= new.unsqueeze(1)
    bring = plan.bring.expand(-1, store.heads, -1)
    lane, head, _ = at = bring.nonzero(as_tuple=True)
    row, origin = (x.expand_as(bring)[at] for x in (plan.rows, plan.origin))
    k, v = archive.read(lane, head, row)
    # Both are in order of lane and head, and each of these has as many holes as rows.
    lanes, heads, slots = holes.nonzero(as_tuple=True)
    write_rows(store, lanes, heads, slots, k.to(store.device), v.to(store.device))
    meta = torch.zeros(row.shape[0], store.meta.shape[-1])
    meta[:, POS] = archive.positions(lane, head, row, origin).float()
    meta[:, ORIGIN] = origin.float()
    if store.norms is not None:
        meta[:, store.norms] = value_norms(v)
    store.meta[lanes, heads, slots] = meta.to(store.device)
    store.age()


def recall(session: Session, coming: int = 0) -> int:
    """Bring pages back for the newest queries, up to the budget of an uncertain step.

    Args:
        coming: tokens about to be appended, for which room is left.

    Returns:
        (lane, position) pairs brought back, the mean over heads (rounded up) where each head has its own; 0 also where
        nothing was ever evicted.
    """
    cache, manager = session.cache, session._manager
    archive = manager.archive if manager is not None else None
    if manager is None or archive is None or cache.store is None or not archive.end or not cache.queries:
        return 0
    start = time.perf_counter()
    store, end = manager.store, cache.seen + coming
    manager.archive_before(end)
    brought = 0
    if archive.pages:
        nominal = manager.policy.budget.at(None)
        assert nominal is not None
        targets = [h + b - coming for h, b in zip(store.held, manager.layer_budgets(nominal), strict=True)]
        scales = torch.tensor(cache.scales, device=archive.centre.device)
        score = page_scores(
            torch.cat(cache.queries).to(archive.centre.device),
            archive.centre[:, :, : archive.pages],
            scale=scales,
            softcap=cache.softcaps[0],
        )
        if manager.policy.scope == "layer":
            score = score.mean(1, keepdim=True)
        plan = choose(store, archive, score, manager.evictable(end, nominal), targets)
        brought = -(-int(plan.bring.sum()) // plan.bring.shape[1])
        if brought:
            carry_out(store, archive, plan)
            session._counts["recalls"] += 1
            session._counts["recalled"] += brought
            session._bytes["peak"] = max(session._bytes["peak"], session._allocated())
    session._seconds["recall"] += time.perf_counter() - start
    return brought


def brought_for_look(session: Session) -> int:
    """Take the token of the pass just made back out of the store and recall for its queries.

    Returns:
        what :func:`recall` brought back; where that is 0 the token is in the store as before.
    """
    store = session.cache.store
    if store is None:
        return 0
    store.n_fp = [n - 1 for n in store.n_fp]
    brought = recall(session, coming=1)
    if not brought:
        store.n_fp = [n + 1 for n in store.n_fp]
    return brought


def put_back(session: Session, rings: Contents) -> None:
    """Give the sliding-window layers what they held before the pass that is run again."""
    for ring, (k, v) in zip(session.cache.rings, rings, strict=True):
        ring.k, ring.v = k, v


def ring_contents(rings: list[RingLayer]) -> Contents:
    """Keys and values of sliding-window layers, for :func:`put_back`; a pass replaces the tensors."""
    return [(ring.k, ring.v) for ring in rings]
