"""Applies a policy to a store: records attention mass, chooses what stays, moves it together."""

from __future__ import annotations

import torch
from torch import Tensor

from confkv.policies.base import Policy
from confkv.store import HOLD, MASS, POS, Store
from confkv_kernels import attention_mass

#: Query rows at the end of a prefill chunk from which attention mass is taken.
MASS_ROWS = 32


class Manager:
    """One policy over one store. Holds no state of its own beyond a cache of per-layer budgets."""

    def __init__(self, policy: Policy, store: Store) -> None:
        self.policy, self.store = policy, store
        self._budgets: dict[int, list[int]] = {}

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
        same = len(set(scales)) == 1 and len(set(softcaps)) == 1
        if same and not any(store.n_history):
            n = max(store.n_fp)
            lengths, k = store.n_fp, store.k[:, :, :n]
            sink = torch.stack([s for s in sinks if s is not None]) if sinks[0] is not None else None
            visible = self._visible(lengths, rows)
            mass = attention_mass(
                torch.cat(queries), k, scale=scales[0], softcap=softcaps[0], sinks=sink, visible=visible
            )
            self._fold(slice(None), mass, n, rows)
            return
        for lane, q in enumerate(queries):
            n = store.lengths[lane]
            mass = attention_mass(
                q,
                store.fp(lane)[0],
                history=store.history(lane),
                scale=scales[lane],
                softcap=softcaps[lane],
                sinks=sinks[lane],
                visible=self._visible([n], rows),
            )
            self._fold(slice(lane, lane + 1), mass, n, rows)

    def _visible(self, lengths: list[int], rows: int) -> Tensor | None:
        """``[G or 1, 1, rows, m]``: row r of the newest rows sees all slots but the ``rows - 1 - r`` after its own.

        Over the last m slots alone; the slots before them are seen by every row of every lane.
        """
        n, fewest = max(lengths), min(lengths)
        if rows == 1 and fewest == n:
            return None
        device = self.store.device
        ends = lengths[:1] if fewest == n else lengths
        last = torch.tensor(ends, device=device).view(-1, 1, 1, 1) - rows + 1
        last = last + torch.arange(rows, device=device).view(1, 1, rows, 1)
        return torch.arange(fewest - rows + 1, n, device=device) < last

    def _fold(self, lanes: slice, mass: Tensor, n: int, rows: int) -> None:
        column = self.store.meta[lanes, :, :n, MASS]
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
        return nominal, self.store.evict(self._scores(self.store.lengths, end), targets)

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

    def _scores(self, lengths: list[int], end: int) -> Tensor:
        n = max(lengths)
        meta = self.store.meta[:, :, :n]
        if self.policy.scope == "layer":
            mass = meta[..., MASS].mean(1, keepdim=True) if self.needs_mass else meta[:, :1, :, MASS]
            position, hold = meta[:, :1, :, POS], meta[:, :1, :, HOLD]
        else:
            mass, position, hold = meta[..., MASS], meta[..., POS], meta[..., HOLD]
        free = (hold == 0) & (position < end - self.policy.protect)
        if min(lengths) != n:
            length = torch.tensor(lengths, device=free.device).view(-1, 1, 1)
            free = free & (torch.arange(n, device=free.device) < length)
        score = self.policy.ranker.score(mass, position, free, end)
        return torch.where(free, score, float("inf"))
