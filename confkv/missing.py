"""How much of what a layer's queries ask for is not held: a cheap test before an exchange of pages."""

from __future__ import annotations

import torch
from torch import Tensor

from confkv.archive import Archive
from confkv.store import ORIGIN, Store

#: Values of a lane among which the newest is ranked: long enough for a tenth, short enough to follow a growing archive.
MEMORY = 64


def missing(store: Store, archive: Archive, lane: int, q: Tensor, scale: float, softcap: float | None = None) -> float:
    """Share of attention that the queries would give to absent positions, 0 to 1, the mean over heads and rows.

    ``sigmoid(L_a - L_h)`` with ``L_h = logsumexp over held slots of q.k`` and ``L_a = logsumexp over pages of
    (q.c + log m)``, where c is the centre of a page and m how many of its positions are not held. By Jensen's
    inequality it is too low where the keys of a page differ. The signal is confkv's own.

    Args:
        store: its keys of the lane must be in full precision, without an INT8 history.
        q: ``[1, Hq, S, D]`` after RoPE.
        scale: of the logits. softcap: bound of the logits by ``softcap * tanh(x / softcap)``.
    """
    n, pages = store.lengths[lane], archive.pages
    k, origin = store.k[lane, :, :n].float(), store.meta[lane, :, :n, ORIGIN].long().cpu()
    heads, _, dim = k.shape
    rows = q.reshape(heads, -1, dim).float() * scale
    centre = archive.centre[lane, :, :pages]
    held = rows @ k.transpose(-1, -2)
    absent = rows.to(centre.device) @ centre.float().transpose(-1, -2)
    if softcap is not None:
        held, absent = (softcap * torch.tanh(x / softcap) for x in (held, absent))
    inside = (origin >= archive.first) & (origin < archive.end)
    page = torch.where(inside, torch.div(archive.rows_of(origin), archive.page, rounding_mode="floor"), pages)
    count = torch.full((heads, pages + 1), archive.page).scatter_add_(1, page, torch.full_like(page, -1))[:, :pages]
    absent = absent + count.clamp_(min=0).float().log().unsqueeze(1).to(absent.device)
    return float(torch.sigmoid(absent.logsumexp(-1).to(held.device) - held.logsumexp(-1)).mean())


class Gates:
    """One gate a lane, which opens for about a given share of the values that it is shown, whatever their size.

    It opens where a value exceeds the ``1 - rate`` quantile of the lane's last :data:`MEMORY` values.
    """

    def __init__(self, lanes: int) -> None:
        self.values: list[list[float]] = [[] for _ in range(lanes)]

    def opens(self, lane: int, value: float, rate: float) -> bool:
        """Whether the gate opens for ``value``, which is remembered. ``rate`` 0: never, 1: always."""
        past = self.values[lane]
        rank = sum(x < value for x in past) + 0.5 * sum(x == value for x in past)
        opened = rate >= 1.0 or (rate > 0.0 and rank >= (1.0 - rate) * len(past))
        past.append(value)
        del past[:-MEMORY]
        return opened

    def state(self) -> Tensor:
        """``[lanes, values]`` float64, oldest first; NaN before a lane's first where another has more."""
        most = max(map(len, self.values), default=0)
        rows = [[float("nan")] * (most - len(x)) + x for x in self.values]
        return torch.tensor(rows, dtype=torch.float64).view(len(rows), most)

    def load_state(self, state: Tensor) -> None:
        """Inverse of :meth:`state`."""
        self.values = [[x for x in row if x == x] for row in state.tolist()]
