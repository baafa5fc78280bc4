"""Recall: bringing archived positions back, within a pass and after it, also for a token that is run again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from confkv.archive import Archive
from confkv.missing import missing
from confkv.rows import open_slots, used, value_norms, write_rows
from confkv.store import MASS, ORIGIN, POS, Store
from confkv_kernels import page_scores

if TYPE_CHECKING:
    from confkv.bridge import RingLayer
    from confkv.manager import Manager
    from confkv.session import Session

#: Recorded mass of a slot that is to be vacated: below any real one, and it moves with the slot.
_VACANT = -1.0
#: Stands for the origin of a slot that is not archived: beyond every real one.
_NOWHERE = 1 << 62
#: The last tokens of a goal or an observation that are fed a few at a time: a question, or the end of a page.
_QUESTION = 32
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

    @property
    def brought(self) -> int:
        """Positions that come back, summed over lanes: the mean over heads (rounded up) where each has its own."""
        return -(-int(self.bring.sum()) // self.bring.shape[1])


@dataclass(frozen=True)
class Slots:
    """What :func:`choose` reads of a store, or of some of its lanes: ``meta`` is ``[G, H, n, columns]``."""

    lanes: int
    lengths: list[int]
    meta: Tensor


def choose(store: Store | Slots, archive: Archive, score: Tensor, free: Tensor, targets: list[int]) -> Plan:
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
    pages = starts.shape[0]
    origin = store.meta[:, :heads, :n, ORIGIN].long().cpu()
    inside = valid & (origin >= archive.first) & (origin < archive.end)
    # Equal in all heads of a lane: what does not compete is the same in each.
    fixed = (valid & ~free).sum(-1)[:, 0]
    room = (torch.tensor(targets) - fixed).clamp_(min=0).view(-1, 1, 1)
    # Rows of each page that may come or stay: not those that are held by what does not compete.
    own = torch.where(inside & ~free, torch.div(archive.rows_of(origin), page, rounding_mode="floor"), pages)
    count = torch.full((store.lanes, heads, pages + 1), page)
    count = count.scatter_add_(2, own, torch.full_like(own, -1))[..., :pages]
    partial = int(((count > 0) & (count < page)).sum(-1).max())
    most = min(pages, -(-int(room.max()) // page) + partial)
    top = score.cpu().masked_fill(count == 0, float("-inf")).topk(most, -1).indices.unsqueeze(-1)
    rows = (top * page + torch.arange(page)).flatten(2)
    origins = (starts[top] + torch.arange(page)).flatten(2)
    # Which slot holds each of them already: a search among the slots, however long the archive is.
    by_origin, order = torch.where(inside, origin, _NOWHERE).sort(-1)
    at = torch.searchsorted(by_origin, origins).clamp_(max=n - 1)
    held, slot = by_origin.gather(2, at) == origins, order.gather(2, at)
    chosen = ~held | free.gather(2, slot)
    chosen &= chosen.cumsum(-1) <= room
    stays = torch.zeros(store.lanes, heads, n + 1, dtype=torch.bool)
    stays.scatter_(2, torch.where(chosen & held, slot, n), True)
    after = fixed + chosen.sum(-1)[:, 0]
    return Plan(valid & free & ~stays[..., :n], chosen & ~held, rows, origins, after.tolist())


def _scored(
    manager: Manager, archive: Archive, lanes: slice, q: Tensor, scales: list[float], softcap: float | None
) -> Tensor:
    """Score of each page for the queries ``[g, Hq, S, D]`` of some lanes, ``[g, h, P]`` float32 for :func:`choose`."""
    centre = archive.centre[lanes, :, : archive.pages]
    scale = torch.tensor(scales, device=centre.device)
    score = page_scores(q.to(centre.device), centre, scale=scale, softcap=softcap)
    return score.mean(1, keepdim=True) if manager.policy.scope == "layer" else score


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
    # Both are in order of lane and head, and each of these has as many holes as rows.
    _fill(store, archive, holes.nonzero(as_tuple=True), lane, head, row, origin)
    store.age()


def _fill(
    store: Store, archive: Archive, holes: tuple[Tensor, ...], lane: Tensor, head: Tensor, row: Tensor, origin: Tensor
) -> None:
    """Write N archived rows to N slots. ``holes`` are lane, head and slot; all tensors are ``[N]`` int64."""
    k, v = archive.read(lane, head, row)
    lanes, heads, slots = holes
    write_rows(store, lanes, heads, slots, k.to(store.device), v.to(store.device))
    meta = torch.zeros(row.shape[0], store.meta.shape[-1])
    meta[:, POS] = archive.positions(lane, head, row, origin).float()
    meta[:, ORIGIN] = origin.float()
    if store.norms is not None:
        meta[:, store.norms] = value_norms(v)
    store.meta[lanes, heads, slots] = meta.to(store.device)


class Fetch:
    """Recall within a forward pass: each lane gets pages for the very queries that are about to attend in it.

    Layer by layer, so that the queries of a layer already know what came back in the layers below: where all layers get
    pages at once, by the queries of a pass that saw none of them, what depends on two layers is not found. What leaves
    makes room for what comes, so that a lane keeps its length.

    Attributes:
        brought: as :func:`recall` returns it, so far.
        seconds: wall time so far.
        gated: whether each lane has a gate of its own.
        due, exchanged: lanes so far, and those of them whose gate opened.
    """

    def __init__(self, manager: Manager, archive: Archive, end: int, nominal: int, gated: bool = False) -> None:
        self.manager, self.archive, self.store = manager, archive, manager.store
        self.brought, self.seconds = 0, 0.0
        self.gated, self.end, self.due, self.exchanged = gated, end, 0, 0
        manager.archive_before(end)
        # What the newest tokens before the pass are to each other, they are to its first tokens too.
        self.free = manager.exchangeable(end, nominal)

    def __call__(self, lane: int, q: Tensor, scale: float, softcap: float | None) -> None:
        """Exchange what a lane holds for what ``q`` ``[1, Hq, S, D]`` (after RoPE) asks for."""
        start = time.perf_counter()
        self.due += 1
        if not self.gated or self._opens(lane, q, scale, softcap):
            self.exchanged += 1
            self._exchange(lane, q, scale, softcap)
        self.seconds += time.perf_counter() - start

    def _opens(self, lane: int, q: Tensor, scale: float, softcap: float | None) -> bool:
        recall = self.manager.policy.recall
        assert recall is not None
        if recall.gate == "layers":
            return recall.picks(lane, self.end)
        return missing(self.store, self.archive, lane, q, scale, softcap) > recall.missing

    def _exchange(self, lane: int, q: Tensor, scale: float, softcap: float | None) -> None:
        store, archive, n = self.store, self.archive, self.store.lengths[lane]
        score = _scored(self.manager, archive, slice(lane, lane + 1), q, [scale], softcap)
        view = Slots(1, [n], store.meta[lane : lane + 1])
        plan = choose(view, archive, score, self.free[lane : lane + 1, :, :n], [n])
        bring, vacate = plan.bring[0], plan.vacate[0]
        if bool(bring.any()):
            # Past its limit the archive may have too few rows for the slots.
            vacate &= vacate.cumsum(-1) <= bring.sum(-1, keepdim=True)
            bring, vacate = (x.expand(store.heads, -1) for x in (bring, vacate))
            head, _ = at = bring.nonzero(as_tuple=True)
            heads, slots = (x.to(store.device) for x in vacate.nonzero(as_tuple=True))
            holes = torch.full_like(heads, lane), heads, slots
            row, origin = (x[0].expand_as(bring)[at] for x in (plan.rows, plan.origin))
            _fill(store, archive, holes, torch.full_like(head, lane), head, row, origin)
            self.brought += plan.brought


def fetches(session: Session, decoding: bool = False) -> bool:
    """Whether pages could come back within the next prefill pass, or that of a decode step, and are to.

    In decoding they are where the distribution before it was uncertain: that one cannot be helped any more, but such
    stretches last, and the pages are chosen by the queries of the pass that they serve.
    """
    manager, policy = session._manager, session.engine.policy.recall
    archive = manager.archive if manager is not None else None
    due = policy is not None and (session._uncertain if decoding else policy.reads)
    return bool(due) and archive is not None and archive.pages > 0


def passes(session: Session, count: int, asks: bool) -> list[int]:
    """Where ``count`` tokens are cut into prefill passes, 0 and ``count`` among them.

    Where pages come back within a pass, it gets what its tokens need on average. So the token that an answer starts
    from has one of its own, and those before it are few in each.

    Args:
        asks: the tokens are a goal or an observation.
    """
    cuts = {*range(0, count, session.engine.chunk), count}
    if asks and fetches(session):
        recall = session.engine.policy.recall
        assert recall is not None
        last = count - 1
        cuts.update(range(last, max(0, last - _QUESTION), -(recall.question or _QUESTION)))
    return sorted(cuts)


def uncertain(session: Session, confidence: float, seen: int) -> bool:
    """Whether the distribution after the token with the index ``seen`` is one to recall after; False without recall."""
    recall = session.engine.policy.recall
    if recall is None:
        return False
    return _opening(session, seen) or recall.fires(confidence, seen)


def _opening(session: Session, seen: int) -> bool:
    """Whether the token with the index ``seen`` is among those with which an answer opens."""
    recall, asked = session.engine.policy.recall, session._counts["asked"]
    return recall is not None and asked > 0 and seen + 1 < asked + recall.opening


def answer_from(session: Session, fetched: int) -> int:
    """Recall for a goal or an observation just fed, after which an answer opens.

    What came within its passes, ``fetched``, is part of it.

    Returns:
        as :func:`recall`.
    """
    session._counts["asked"] = session.seen
    brought = recall(session)
    session._counts["recalls"] += fetched > 0 == brought
    session._counts["recalled"] += fetched
    session._counts["fetched"] -= fetched
    return brought + fetched


def fetching(session: Session, decoding: bool) -> Fetch | None:
    """What brings pages back within the pass that comes; None where nothing could, or is to."""
    return _fetch(session, decoding) if fetches(session, decoding) else None


def fetching_again(session: Session) -> Fetch | None:
    """What brings pages back for a token that is run again: it is taken out of the store. None where nothing could."""
    manager, store = session._manager, session.cache.store
    if manager is None or store is None or manager.archive is None or not manager.archive.pages:
        return None
    store.n_fp = [n - 1 for n in store.n_fp]
    return _fetch(session, decoding=True)


def _fetch(session: Session, decoding: bool) -> Fetch:
    manager = session._manager
    assert manager is not None and manager.archive is not None
    nominal = session._budget if decoding else manager.policy.budget.at(None)
    assert nominal is not None
    policy = manager.policy.recall
    assert policy is not None
    gated = decoding and policy.by_layer and not _opening(session, session.seen - 1)
    return Fetch(manager, manager.archive, session.cache.seen, nominal, gated)


def recall(session: Session) -> int:
    """Bring pages back for the newest queries, up to the budget of an uncertain step.

    Returns:
        (lane, position) pairs brought back, the mean over heads (rounded up) where each head has its own; 0 also where
        nothing was ever evicted.
    """
    cache, manager = session.cache, session._manager
    archive = manager.archive if manager is not None else None
    if manager is None or archive is None or cache.store is None or not archive.end or not cache.queries:
        return 0
    start = time.perf_counter()
    store, end = manager.store, cache.seen
    manager.archive_before(end)
    brought = 0
    if archive.pages:
        nominal = manager.policy.budget.at(None)
        assert nominal is not None
        targets = [h + b for h, b in zip(store.held, manager.layer_budgets(nominal), strict=True)]
        score = _scored(manager, archive, slice(None), torch.cat(cache.queries), cache.scales, cache.softcaps[0])
        plan = choose(store, archive, score, manager.exchangeable(end, nominal), targets)
        brought = plan.brought
        if brought:
            carry_out(store, archive, plan)
            session._counts["recalls"] += 1
            session._counts["recalled"] += brought
            session._bytes["peak"] = max(session._bytes["peak"], session._allocated())
    session._seconds["recall"] += time.perf_counter() - start
    return brought


def put_back(session: Session, rings: Contents) -> None:
    """Give the sliding-window layers what they held before the pass that is run again."""
    for ring, (k, v) in zip(session.cache.rings, rings, strict=True):
        ring.k, ring.v = k, v


def ring_contents(rings: list[RingLayer]) -> Contents:
    """Keys and values of sliding-window layers, for :func:`put_back`; a pass replaces the tensors."""
    return [(ring.k, ring.v) for ring in rings]
