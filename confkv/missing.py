"""How much of what a layer's queries ask for is not held: a cheap test before an exchange of pages."""

from __future__ import annotations

import torch
from torch import Tensor

from confkv.archive import Archive
from confkv.store import ORIGIN, Store


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
