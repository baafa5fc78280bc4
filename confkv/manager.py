"""Applies a policy to a store: records attention mass, chooses what stays, moves it together."""

from __future__ import annotations

import torch
from torch import Tensor

from confkv.archive import Archive
from confkv.policies.base import Policy
from confkv.store import HOLD, MASS, POS, Store
from confkv_kernels import attention_mass

#: Query rows at the end of a prefill chunk from which attention mass is taken.
MASS_ROWS = 32


class Manager:
    """One policy over one store. Holds no state of its own beyond the archive and a cache of per-layer budgets."""

    def __init__(self, policy: Policy, store: Store) -> None:
        self.policy, self.store = policy, store
        self._budgets: dict[int, list[int]] = {}
        self.archive = Archive(store, policy.recall) if policy.recall is not None and store.lanes else None

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
        if len(set(scales)) == 1 and len(set(softcaps)) == 1:
            mass = attention_mass(
                torch.cat(queries),
                store.k[:, :, : max(store.n_fp)],
                history=store.all_history(),
                scale=scales[0],
                softcap=softcaps[0],
                sinks=torch.stack([s for s in sinks if s is not None]) if sinks[0] is not None else None,
                visible=self._visible(store.n_history, store.n_fp, rows),
            )
            self._fold(slice(None), self._by_slot(mass), rows)
            return
        for lane, q in enumerate(queries):
            mass = attention_mass(
                q,
                store.fp(lane)[0],
                history=store.history(lane),
                scale=scales[lane],
                softcap=softcaps[lane],
                sinks=sinks[lane],
                visible=self._visible(store.n_history[lane : lane + 1], store.n_fp[lane : lane + 1], rows),
            )
            self._fold(slice(lane, lane + 1), mass, rows)

    def _visible(self, n_history: list[int], n_fp: list[int], rows: int) -> Tensor | None:
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
        """Mass by column (see :meth:`_visible`) -> mass by slot, in which the window follows its lane's own history."""
        n_history = self.store.n_history
        past = max(n_history)
        if min(n_history) == past:
            return mass
        slot = torch.arange(max(self.store.lengths), device=mass.device)
        own = torch.tensor(n_history, device=mass.device).view(-1, 1, 1)
        column = torch.where(slot < own, slot, slot - own + past).clamp_(max=mass.shape[-1] - 1)
        return mass.gather(2, column.expand(-1, mass.shape[1], -1))

    def _fold(self, lanes: slice, mass: Tensor, rows: int) -> None:
        column = self.store.meta[lanes, :, : mass.shape[-1], MASS]
        column.copy_(self.policy.ranker.update(mass, column, rows))

    def layer_budgets(self, nominal: int) -> list[int]:
        """Budget of each lane for a nominal budget."""
        if nominal not in self._budgets:
            self._budgets[nominal] = self.policy.budget.per_layer(nominal, self.store.lanes)
        return self._budgets[nominal]

    def evict(self, confidence: float | None, end: int) -> tuple[int | None, int]:
        """Bring every lane within its budget.

        Args:
            confidence: of the distribution just computed; None during prefill.
            end: position of the next token.

        Returns:
            the nominal budget (None: unlimited) and the number of (lane, position) pairs dropped.
        """
        nominal = self.policy.budget.at(confidence)
        targets = self._targets(nominal)
        if targets is None:
            return nominal, 0
        self.archive_before(end)
        return nominal, self.store.evict(self._scores(self.store.lengths, end), targets)

    def archive_before(self, end: int) -> None:
        """Archive whatever an eviction could drop now; ``end`` is the position of the next token."""
        if self.archive is not None:
            self.archive.cover(self.store, end + self.store.shift - self.policy.protect)

    def due(self, confidence: float | None) -> bool:
        """Whether :meth:`evict` would drop anything now."""
        return self._targets(self.policy.budget.at(confidence)) is not None

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
        if min(lengths) != n:
            length = torch.tensor(lengths, device=free.device).view(-1, 1, 1)
            free = free & (torch.arange(n, device=free.device) < length)
        return free

    def _scores(self, lengths: list[int], end: int) -> Tensor:
        n = max(lengths)
        meta = self.store.meta[:, :, :n]
        if self.policy.scope == "layer":
            mass = meta[..., MASS].mean(1, keepdim=True) if self.needs_mass else meta[:, :1, :, MASS]
            position = meta[:, :1, :, POS]
        else:
            mass, position = meta[..., MASS], meta[..., POS]
        free = self.competes(end)
        score = self.policy.ranker.score(mass, position, free, end)
        return torch.where(free, score, float("inf"))
