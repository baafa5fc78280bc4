"""What rankers see beyond the mean attention mass: a window of queries, rows of attention, norms of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from confkv.rope import rotate
from confkv.rows import used
from confkv.store import MASS, POS, Store
from confkv_kernels import attention_mass, attention_probabilities

if TYPE_CHECKING:
    from confkv.manager import Manager

#: Query rows, and numbers in all, that are attended with at once.
_ROWS, _BLOCK = 64, 1 << 22


class QueryWindow:
    """The newest ``size`` queries of every lane, after RoPE, and what the model attends with.

    Attributes:
        q: ``[G, Hq, m, D]`` in the model's dtype, oldest first, m <= size; None before the first.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.q: Tensor | None = None
        self.scales: list[float] = []
        self.softcaps: list[float | None] = []
        self.sinks: list[Tensor | None] = []

    def push(
        self, queries: list[Tensor], scales: list[float], softcaps: list[float | None], sinks: list[Tensor | None]
    ) -> None:
        """Add the newest queries; arguments as in :meth:`Manager.record`."""
        new = torch.cat([q[:, :, -self.size :] for q in queries])
        whole = new if self.q is None else torch.cat([self.q, new], 2)
        self.q = whole[:, :, -self.size :].contiguous()
        self.scales, self.softcaps, self.sinks = list(scales), list(softcaps), list(sinks)

    def turn(self, delta: float, inv_freq: list[Tensor | None]) -> None:
        """Rotate the queries by ``delta`` positions: a re-basing moves all of the newest positions alike."""
        if self.q is None:
            return
        for lane, freq in enumerate(inv_freq):
            if freq is not None:
                moved = torch.full((self.q.shape[2],), delta, device=self.q.device)
                self.q[lane] = rotate(self.q[lane], moved, freq)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 0 if self.q is None else self.q.nbytes

    def state(self) -> dict[str, Tensor]:
        """Everything held, cloned."""
        if self.q is None:
            return {}
        nan = float("nan")
        caps = [nan if cap is None else cap for cap in self.softcaps]
        out = {
            "q": self.q.clone(),
            "scales": torch.tensor(self.scales, dtype=torch.float64),
            "softcaps": torch.tensor(caps, dtype=torch.float64),
        }
        out.update({f"sinks.{i}": sink.detach().clone() for i, sink in enumerate(self.sinks) if sink is not None})
        return out

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Inverse of :meth:`state`; tensors are copied."""
        self.q = state["q"].clone().to(device)
        self.scales = [float(x) for x in state["scales"]]
        self.softcaps = [None if x != x else float(x) for x in state["softcaps"]]
        names = [f"sinks.{i}" for i in range(len(self.scales))]
        self.sinks = [state[name].clone().to(device) if name in state else None for name in names]


@dataclass(frozen=True)
class View:
    """A store at an eviction, as :meth:`Ranker.signal` sees it.

    Attributes:
        end: position of the next token.
    """

    store: Store
    window: QueryWindow | None
    end: int

    @property
    def rows(self) -> int:
        """Queries in the window."""
        return 0 if self.window is None or self.window.q is None else self.window.q.shape[2]

    def columns(self, count: int) -> Tensor:
        """The ranker's own ``count`` columns of metadata, ``[G, H, n, count]`` float32, a view."""
        return self.store.meta[:, :, : max(self.store.lengths), -count:]

    def order(self) -> Tensor:
        """Slots by position, ``[G, H, n]`` int64; slots beyond a lane's length come last."""
        n = max(self.store.lengths)
        unused = ~used(self.store.lengths, n, self.store.device)
        return self.store.meta[:, :, :n, POS].masked_fill(unused, float("inf")).argsort(dim=-1, stable=True)

    def key_norms(self) -> Tensor:
        """L2 norm of every key as it is held, ``[G, H, n]`` float32; 0 beyond a lane's length."""
        store = self.store
        if not store.by_lane and not any(store.n_history) and min(store.n_fp) == max(store.n_fp):
            return store.k[:, :, : store.n_fp[0]].float().norm(dim=-1)
        out = torch.zeros(store.lanes, store.heads, max(store.lengths), device=store.device)
        for lane, n in enumerate(store.lengths):
            out[lane, :, :n] = store.dequantised(lane)[0].float().norm(dim=-1)
        return out

    def mass(self) -> Tensor:
        """Recorded mass, ``[G, H, n]`` float32, a view; meaningless beyond a lane's length."""
        return self.store.meta[:, :, : max(self.store.lengths), MASS]

    def value_norms(self) -> Tensor:
        """L1 norm of every value as it was when its slot was written, ``[G, H, n]`` float32, a view of the metadata of
        a store with ``norms``; meaningless beyond a lane's length.

        Kept and not computed here: at every step that would read all values, and decode those in INT8.
        """
        assert self.store.norms is not None
        return self.store.meta[:, :, : max(self.store.lengths), self.store.norms]

    def window_mass(self) -> Tensor:
        """Attention that each slot receives from the queries of the window, summed over them: ``[G, Hq, n]`` float32.

        Softmax over all slots; a query sees positions up to its own. Slots beyond a lane's length get 0.
        """
        store, window = self.store, self.window
        assert window is not None and window.q is not None
        q, n = window.q, max(store.lengths)
        rows = q.shape[2]
        own = torch.arange(self.end - rows, self.end, device=store.device).view(1, 1, rows, 1)
        out = torch.zeros(store.lanes, q.shape[1], n, device=store.device)
        even = not store.by_lane and all(len(set(x)) == 1 for x in (store.n_history, window.scales, window.softcaps))
        size = max(1, _BLOCK // (q.shape[1] * rows * n)) if even else 1
        for first in range(0, store.lanes, size):
            part = slice(first, first + size)
            length = max(store.lengths[part])
            position = store.meta[part, :, :length, POS].unsqueeze(2)
            visible = (position <= own) & used(store.lengths[part], length, store.device).unsqueeze(1)
            history = store.history(first) if size == 1 else store.all_history()
            past = store.n_history[first]
            learned = [sink for sink in window.sinks[part] if sink is not None]
            out[part, :, :length] = attention_probabilities(
                q[part],
                store.keys(part, length - past),
                history=history.batch(part) if history is not None and size > 1 else history,
                scale=window.scales[first],
                softcap=window.softcaps[first],
                sinks=torch.stack(learned) if learned else None,
                visible=visible,
            ).sum(2)
        return out


def record(
    manager: Manager,
    queries: list[Tensor],
    scales: list[float],
    softcaps: list[float | None],
    sinks: list[Tensor | None],
) -> None:
    """:meth:`Manager.record` for rankers that want single rows, or more of them than a mean is taken of at once.

    In blocks of rows, oldest first; a block sees what a lane held when its last row was fed. Lanes of equal lengths go
    together, as many as fit.
    """
    store, ranker = manager.store, manager.policy.ranker
    rows, n = queries[0].shape[2], max(store.lengths)
    even = all(len(set(x)) == 1 for x in (store.n_history, store.n_fp, scales, softcaps)) and not store.by_lane
    size = max(1, _BLOCK // (queries[0].shape[1] * min(rows, _ROWS) * n)) if even else 1
    for start in range(0, store.lanes, size):
        part = slice(start, start + size)
        q = torch.cat(queries[part])
        past, held = store.n_history[start], store.n_fp[start]
        history = store.history(start) if size == 1 else store.all_history()
        if history is not None and size > 1:
            history = history.batch(part)
        learned = [sink for sink in sinks[part] if sink is not None]
        stacked = torch.stack(learned) if learned else None
        for first in range(0, rows, _ROWS):
            last = min(first + _ROWS, rows)
            n_fp = held - (rows - last)
            block, keys = q[:, :, first:last], store.keys(part, n_fp)
            visible = manager.visible([past], [n_fp], last - first)
            scale, softcap = scales[start], softcaps[start]
            if ranker.columns:
                p = attention_probabilities(
                    block, keys, scale=scale, visible=visible, history=history, sinks=stacked, softcap=softcap
                )
                ranker.fold(p, store.meta[part, :, : past + n_fp, -ranker.columns :])
            else:
                mass = attention_mass(
                    block, keys, scale=scale, visible=visible, history=history, sinks=stacked, softcap=softcap
                )
                manager.fold(part, mass, last - first)
