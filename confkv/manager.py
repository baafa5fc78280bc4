"""Applies a policy to a store: records attention mass, chooses what stays, moves it together."""

from __future__ import annotations

import torch
from torch import Tensor

from confkv import observe
from confkv.archive import Archive
from confkv.observe import QueryWindow, View
from confkv.policies.adakv import scaled
from confkv.policies.base import Policy
from confkv.policies.budget import Past
from confkv.policies.ranker import MASS_ROWS
from confkv.rarity import Lexicon, Rarity
from confkv.rows import used
from confkv.store import HOLD, MASS, ORIGIN, POS, Store
from confkv_kernels import attention_mass

#: What :meth:`Ranker.score` is given of a store: mass or signal, positions, and which of them compete.
Seen = tuple[Tensor, Tensor, Tensor]


class Manager:
    """One policy over one store of one session.

    Attributes:
        archive: evicted positions, where the policy recalls; else None.
        rarity: how rare each token of the session is, where the policy guards the rarest; else None.
        past: confidences of the decode steps so far, each before any second look.
        window: the newest queries, where the policy's ranker attends with them.
        allocation: positions of each lane, where the policy's budget follows the attention seen, or where the heads of
            a layer share it: then without those that no head can drop. Empty before the first eviction.
    """

    def __init__(self, policy: Policy, store: Store, lexicon: Lexicon | None = None) -> None:
        self.policy, self.store = policy, store
        self._budgets: dict[int, list[int]] = {}
        self.past = Past()
        self.window = QueryWindow(policy.ranker.queries) if policy.ranker.queries else None
        self.allocation: list[int] = []
        self.archive = Archive(store, policy.recall) if policy.recall is not None and store.lanes else None
        self.rarity: Rarity | None = None
        if policy.guard and store.lanes:
            assert lexicon is not None, "a guard has to know the vocabulary"
            self.rarity = Rarity(lexicon)

    def read(self, tokens: list[int], end: int) -> None:
        """Note the tokens of the session that were fed, those before ``end``; before anything is chosen among them."""
        if self.rarity is not None:
            self.rarity.read(tokens, end)

    @property
    def needs_mass(self) -> bool:
        """Whether the attention of each step has to be handed to :meth:`record`."""
        return self.policy.evicts and self.policy.ranker.needs_mass and self.store.lanes > 0

    def record(
        self, queries: list[Tensor], scales: list[float], softcaps: list[float | None], sinks: list[Tensor | None]
    ) -> None:
        """Fold the attention of the newest queries into the recorded mass of every slot.

        Args:
            queries: per lane ``[1, Hq, w, D]``, the newest w query rows of the step.
            scales, softcaps, sinks: per lane, as the model passed them to its attention.
        """
        store, rows = self.store, queries[0].shape[2]
        if self.window is not None:
            self.window.push(queries, scales, softcaps, sinks)
            return
        if self.policy.ranker.columns or rows > MASS_ROWS:
            observe.record(self, queries, scales, softcaps, sinks)
            return
        if not store.by_lane and len(set(scales)) == 1 and len(set(softcaps)) == 1:
            mass = attention_mass(
                torch.cat(queries),
                store.k[:, :, : max(store.n_fp)],
                history=store.all_history(),
                scale=scales[0],
                softcap=softcaps[0],
                sinks=torch.stack([s for s in sinks if s is not None]) if sinks[0] is not None else None,
                visible=self.visible(store.n_history, store.n_fp, rows),
            )
            self.fold(slice(None), self._by_slot(mass), rows)
            return
        n_history, n_fp = store.n_history, store.n_fp
        for lane, q in enumerate(queries):
            mass = attention_mass(
                q,
                store.fp(lane)[0],
                history=store.history(lane),
                scale=scales[lane],
                softcap=softcaps[lane],
                sinks=sinks[lane],
                visible=self.visible(n_history[lane : lane + 1], n_fp[lane : lane + 1], rows),
            )
            self.fold(slice(lane, lane + 1), mass, rows)

    def visible(self, n_history: list[int], n_fp: list[int], rows: int) -> Tensor | None:
        """``[G or 1, 1, rows, m]``: what each of the newest rows sees of the last m columns; it sees all before them.

        Columns are the history up to the longest, then the full-precision part up to the longest. Row r sees what its
        lane holds but the ``rows - 1 - r`` positions after its own.
        """
        past, fewest = max(n_history), min(n_fp)
        even = min(n_history) == past
        if rows == 1 and even and fewest == max(n_fp):
            return None
        device = self.store.device
        column = torch.arange(past + fewest - rows + 1 if even else min(n_history), past + max(n_fp), device=device)
        ends = n_fp[:1] if fewest == max(n_fp) else n_fp
        last = torch.tensor(ends, device=device).view(-1, 1, 1, 1) + past - rows + 1
        seen = column < last + torch.arange(rows, device=device).view(1, 1, rows, 1)
        if even:
            return seen
        return seen & ((column >= past) | (column < torch.tensor(n_history, device=device).view(-1, 1, 1, 1)))

    def _by_slot(self, mass: Tensor) -> Tensor:
        """Mass by column (see :meth:`visible`) -> mass by slot, in which the window follows its lane's own history."""
        n_history = self.store.n_history
        past = max(n_history)
        if min(n_history) == past:
            return mass
        slot = torch.arange(max(self.store.lengths), device=mass.device)
        own = torch.tensor(n_history, device=mass.device).view(-1, 1, 1)
        column = torch.where(slot < own, slot, slot - own + past).clamp_(max=mass.shape[-1] - 1)
        return mass.gather(2, column.expand(-1, mass.shape[1], -1))

    def fold(self, lanes: slice, mass: Tensor, rows: int) -> None:
        """Fold the mean mass of ``rows`` newer rows, ``[g, H, n]`` by slot, into what some lanes recorded."""
        column = self.store.meta[lanes, :, : mass.shape[-1], MASS]
        column.copy_(self.policy.ranker.update(mass, column, rows))

    def wants(self, left: int, confidence: float | None) -> bool:
        """Whether the pass just made has to be recorded; ``left`` more tokens follow before the session is read.

        Mass is read by the next eviction, and what a ranker takes its rows from, the newest, may be still to come.
        """
        ranker = self.policy.ranker
        return self.needs_mass and (ranker.every_chunk or left < ranker.rows or self.due(confidence))

    def layer_budgets(self, nominal: int) -> list[int]:
        """Budget of each lane for a nominal budget."""
        if self.allocation and self.policy.shares is None:
            return self.allocation
        if nominal not in self._budgets:
            self._budgets[nominal] = self._per_lane(nominal)
        return self._budgets[nominal]

    def _per_lane(self, nominal: int) -> list[int]:
        each, reserve = self.store.per_layer, self.policy.reserve
        budgets = self.policy.budget.per_layer(nominal, self.store.lanes // each)
        if not self.allocation:
            return [n for n in budgets for _ in range(each)]
        shares = [self.allocation[first : first + each] for first in range(0, self.store.lanes, each)]
        pairs = zip(shares, budgets, strict=True)
        return [reserve + x for share, n in pairs for x in scaled(share, n - reserve)]

    def evict(self, confidence: float | None, end: int) -> tuple[int | None, int]:
        """Bring every lane within its budget.

        Args:
            confidence: of the distribution just computed; None during prefill.
            end: position of the next token.

        Returns:
            the nominal budget (None: unlimited) and the number of (lane, position) pairs dropped.
        """
        nominal = self.policy.budget.at(confidence, self.past)
        seen = self._allocate(nominal, confidence, end)
        targets = self._targets(nominal)
        if targets is None:
            return nominal, 0
        assert nominal is not None
        self.archive_before(end)
        mass, position, free = self._seen(end) if seen is None else seen
        score = self._scores((mass, position, self._unguarded(free, nominal)), end)
        if self.policy.block > 1:
            position = self.store.meta[:, :1, : score.shape[-1], POS]
            score, targets = by_block(score, position, self.store.lengths, targets, self.policy.block)
        return nominal, self.store.evict(score, targets)

    def _allocate(self, nominal: int | None, confidence: float | None, end: int) -> Seen | None:
        """Share the budget among the lanes, where that follows the attention seen; returns what it had to look at."""
        budget, store, shares = self.policy.budget, self.store, self.policy.shares
        if nominal is None or (confidence is not None and self.allocation):
            return None
        if shares is not None and self._targets(nominal) is not None:
            mass, position, free = seen = self._seen(end)
            score = torch.where(free, self.policy.ranker.across_heads(mass, position, free, end), float("-inf"))
            base = [n - self.policy.reserve for n in budget.per_layer(nominal, store.lanes // store.per_layer)]
            score, position = (x.unflatten(0, (-1, store.per_layer)).flatten(1, 2) for x in (score, position))
            self.allocation = shares.allocate(score, position, base)
            self._budgets.clear()
            return seen
        if budget.allocates and any(n - h > nominal for n, h in zip(store.lengths, store.held, strict=True)):
            self.allocation = budget.allocate(View(store, self.window, end).window_mass())
        return None

    def archive_before(self, end: int) -> None:
        """Archive whatever an eviction could drop now; ``end`` is the position of the next token."""
        if self.archive is not None:
            self.archive.cover(self.store, end + self.store.shift - self.policy.protect)

    def due(self, confidence: float | None) -> bool:
        """Whether :meth:`evict` would drop anything now."""
        return self._targets(self.policy.budget.at(confidence, self.past)) is not None

    def _targets(self, nominal: int | None) -> list[int] | None:
        """Slots each lane may keep; None where no lane holds more."""
        store = self.store
        if nominal is None or not store.lanes:
            return None
        targets = [h + b for h, b in zip(store.held, self.layer_budgets(nominal), strict=True)]
        return targets if any(n > t for n, t in zip(store.lengths, targets, strict=True)) else None

    def competes(self, end: int) -> Tensor:
        """bool ``[G, h, n]`` over slots, True where a position may be dropped (h = 1 with the scope of a layer)."""
        lengths = self.store.lengths
        n = max(lengths)
        meta = self.store.meta[:, : 1 if self.policy.scope == "layer" else None, :n]
        free = (meta[..., HOLD] == 0) & (meta[..., POS] < end - self.policy.protect)
        return free if min(lengths) == n else free & used(lengths, n, free.device)

    def evictable(self, end: int, nominal: int) -> Tensor:
        """:meth:`competes` less the rarest tokens, on which every lane spends a share of its budget."""
        return self._unguarded(self.competes(end), nominal)

    def _unguarded(self, free: Tensor, nominal: int) -> Tensor:
        if self.rarity is None:
            return free
        counts = [self.policy.guarded(budget) for budget in self.layer_budgets(nominal)]
        origin = self.store.meta[:, : free.shape[1], : free.shape[2], ORIGIN]
        return free & ~self.rarity.rarest(origin, free, counts)

    def exchangeable(self, end: int, nominal: int) -> Tensor:
        """:meth:`evictable` less the best by the ranker: what a recall may exchange for pages.

        The same share in every head of a lane, rounded up.
        """
        free, recall = self.evictable(end, nominal), self.policy.recall
        if recall is None or recall.share >= 1.0:
            return free
        score = self._scores(self._seen(end, free), end)
        rank = score.argsort(dim=-1, stable=True).argsort(-1)
        return free & (rank < (recall.share * free.sum(-1, keepdim=True)).ceil())

    def _seen(self, end: int, free: Tensor | None = None) -> Seen:
        """``free`` is what takes part, where that is known; else all that competes."""
        n = max(self.store.lengths)
        meta = self.store.meta[:, :, :n]
        signal = self.policy.ranker.signal(View(self.store, self.window, end))
        mass, position = meta[..., MASS] if signal is None else signal, meta[..., POS]
        if self.policy.scope == "layer":
            mass = mass.mean(1, keepdim=True) if self.needs_mass or signal is not None else mass[:, :1]
            position = position[:, :1]
        return mass, position, self.competes(end) if free is None else free

    def _scores(self, seen: Seen, end: int) -> Tensor:
        """The ranker's scores, ``+inf`` where nothing takes part."""
        mass, position, free = seen
        score = self.policy.ranker.score(mass, position, free, end)
        return torch.where(free, score, float("inf"))

    # -- state --------------------------------------------------------------------------------------------------

    def rebase(self, delta: int, inv_freq: list[Tensor | None]) -> None:
        """The newest positions moved by ``delta``; ``inv_freq`` as in :meth:`Store.rebase`."""
        if self.window is not None:
            self.window.turn(float(delta), inv_freq)

    @property
    def nbytes(self) -> int:
        """Bytes of the queries held, and of how rare tokens are."""
        return sum(x.nbytes for x in (self.window, self.rarity) if x is not None)

    def state(self) -> dict[str, Tensor]:
        """What the session's past decides later, as tensors; :meth:`load_state` restores it exactly."""
        out = {
            "past": torch.tensor(self.past.values, dtype=torch.float64),
            "past_count": torch.tensor(self.past.count),
            "allocation": torch.tensor(self.allocation, dtype=torch.int64),
        }
        if self.window is not None:
            out.update({f"window.{key}": value for key, value in self.window.state().items()})
        return out

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Inverse of :meth:`state`."""
        self.past = Past([float(x) for x in state["past"]], int(state["past_count"]))
        self.allocation = [int(x) for x in state["allocation"]]
        self._budgets.clear()
        held = {key[7:]: value for key, value in state.items() if key.startswith("window.")}
        if self.window is not None and held:
            self.window.load_state(held, self.store.device)


def by_block(
    score: Tensor, position: Tensor, lengths: list[int], targets: list[int], size: int
) -> tuple[Tensor, list[int]]:
    """Scores and targets with which whole blocks leave: the worst ones, until a lane is within its target.

    A block is what competes among ``size`` aligned positions; its score is their mean. The block that the protected
    window reaches into stays for now.

    Args:
        score: ``[G, 1, n]`` float32, ``+inf`` where a slot does not compete.
        position: ``[G, 1, n]`` float32.
        lengths, targets: slots held, and to keep at most, per lane.

    Returns:
        the blocks' ranks in place of the scores, and the slots that each lane keeps.
    """
    n = score.shape[-1]
    block = (position / size).long()
    # Positions up to the newest that competes are free but for what is held; its block may reach beyond.
    free = used(lengths, n, score.device) & score.isfinite()
    newest = torch.where(free, position, -1.0).amax(-1, keepdim=True)
    free &= (block + 1) * size <= newest + 1
    blocks = int(block.amax()) + 1
    index = torch.where(free, block, blocks)
    shape = (*score.shape[:2], blocks + 1)
    total = score.new_zeros(shape).scatter_add_(-1, index, torch.where(free, score, 0.0))
    count = score.new_zeros(shape).scatter_add_(-1, index, free.float())
    mean = torch.where(count > 0, total / count, float("inf"))
    worst_first = mean.argsort(dim=-1, stable=True)
    gone = count.gather(-1, worst_first).cumsum(-1)
    need = torch.tensor([n - t for n, t in zip(lengths, targets, strict=True)], device=score.device).view(-1, 1, 1)
    last = (gone < need).sum(-1, keepdim=True)
    dropped = torch.where(need > 0, gone.gather(-1, last.clamp(max=blocks)), 0.0)
    rank = torch.empty_like(mean).scatter_(
        -1, worst_first, torch.arange(blocks + 1.0, device=score.device).expand(shape)
    )
    kept = [n - int(d) for n, d in zip(lengths, dropped.flatten(), strict=True)]
    return torch.where(free, rank.gather(-1, index), float("inf")), kept
