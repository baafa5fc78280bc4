"""Single rows of a :class:`Store`: finding the worst, reading, overwriting and opening slots in its two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from confkv_kernels import dequantise, quantise

if TYPE_CHECKING:
    from confkv.store import Store


def read_rows(store: Store, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of some slots of every lane and head.

    Args:
        slots: ``[G, H, m]`` int64, below the length of each lane.

    Returns:
        two of ``[G, H, m, D]`` in the store's dtype.
    """
    if len(store.parts) > 1:
        each = [read_rows(part, own) for part, own in zip(store.parts, slots.split(1), strict=True)]
        return torch.cat([k for k, _ in each]), torch.cat([v for _, v in each])
    store = store.parts[0]
    h = store.codes
    old = torch.tensor(store.n_history, device=store.device).view(-1, 1, 1)
    plain = (slots - old).clamp_(min=0).unsqueeze(-1).expand(-1, -1, -1, store.dim)
    k, v = store.k.gather(2, plain), store.v.gather(2, plain)
    if h is None or not bool((slots < old).any()):
        return k, v
    coded = (slots < old).unsqueeze(-1)
    row = slots.clamp(max=h.length - 1)
    wide = row.unsqueeze(-1).expand_as(k)
    for out, codes, gain, scale in ((k, h.k, h.k_gain, h.k_scale), (v, h.v, h.v_gain, h.v_scale)):
        values = dequantise(codes.gather(2, wide), gain.gather(2, row), scale, store.dtype)
        out.copy_(torch.where(coded, values, out))
    return k, v


def write_rows(store: Store, lane: Tensor, head: Tensor, slot: Tensor, k: Tensor, v: Tensor) -> None:
    """Overwrite keys and values ``[N, D]`` at ``N`` (lane, head, slot); those in the history are coded."""
    if len(store.parts) > 1:
        for own, part in enumerate(store.parts):
            mine = lane == own
            write_rows(part, torch.zeros_like(lane[mine]), head[mine], slot[mine], k[mine], v[mine])
        return
    store = store.parts[0]
    h = store.codes
    if h is None or not any(store.n_history):
        store.k[lane, head, slot], store.v[lane, head, slot] = k, v
        return
    old = torch.tensor(store.n_history, device=store.device)[lane]
    coded = slot < old
    for buffer, new in ((store.k, k), (store.v, v)):
        buffer[lane[~coded], head[~coded], (slot - old)[~coded]] = new[~coded]
    lane, head, slot = lane[coded], head[coded], slot[coded]
    for codes, gain, scale, new in ((h.k, h.k_gain, h.k_scale, k), (h.v, h.v_gain, h.v_scale, v)):
        values, factor = quantise(new[coded].unsqueeze(-2), scale[lane, head])
        codes[lane, head, slot], gain[lane, head, slot] = values[:, 0], factor[:, 0]


def open_slots(store: Store, counts: list[int]) -> Tensor:
    """Make every lane longer by ``counts[g]`` slots, whose contents are the caller's to write before anything reads.

    With an INT8 history they open behind the sinks, where the window is oldest: what is newest must leave it last.

    Returns:
        bool ``[G, n]`` over the slots of the longest lane, True where a slot is new.
    """
    store.reserve(max(counts))
    new = torch.zeros(store.lanes, max(n + c for n, c in zip(store.lengths, counts, strict=True)), dtype=torch.bool)
    owners = [(part, own) for part in store.parts for own in range(part.lanes)]
    for lane, (count, (part, own)) in enumerate(zip(counts, owners, strict=True)):
        n, past = part.n_fp[own], part.n_history[own]
        at = min(store.sinks, n) if store.int8 else n
        if count and at < n:
            for buffer, first in ((part.k, 0), (part.v, 0), (part.meta, past)):
                rows = buffer[own, :, first + at : first + n].clone()
                buffer[own, :, first + at + count : first + n + count] = rows
        new[lane, past + at : past + at + count] = True
        part.n_fp[own] = n + count
    return new.to(store.device)


def resized(old: Tensor, length: int, capacity: int) -> Tensor:
    """A copy of a buffer ``[G, H, n, ...]`` with ``capacity`` slots, of which the first ``length`` are filled."""
    shape = list(old.shape)
    shape[2] = capacity
    new = torch.empty(shape, dtype=old.dtype, device=old.device)
    new[:, :, :length] = old[:, :, :length]
    return new


def value_norms(v: Tensor) -> Tensor:
    """L1 norms of values ``[..., D]``, summed in float32: ``[...]``."""
    return torch.linalg.vector_norm(v, 1, dim=-1, dtype=torch.float32)


def note_norms(store: Store, steps: int) -> None:
    """Write the norms of the newest ``steps`` values of every lane, which are not in the history yet."""
    n_fp, lengths = store.n_fp, store.lengths
    if not store.by_lane and len(set(n_fp)) == len(set(lengths)) == 1:
        new = store.v[:, :, n_fp[0] - steps : n_fp[0]]
        store.meta[:, :, lengths[0] - steps : lengths[0], store.norms] = value_norms(new)
        return
    for lane, n in enumerate(lengths):
        store.meta[lane, :, n - steps : n, store.norms] = value_norms(store.fp(lane)[1][0, :, -steps:])


def used(lengths: list[int], n: int, device: torch.device) -> Tensor:
    """bool ``[G, 1, n]`` over slots, True where a lane of that length holds one."""
    return torch.arange(n, device=device) < torch.tensor(lengths, device=device).view(-1, 1, 1)


def worst(score: Tensor, lengths: list[int]) -> Tensor:
    """Slot with the lowest score of each lane and head, ``[G, h]``; the first of equals."""
    n = score.shape[-1]
    if min(lengths) != n:
        score = score.masked_fill(~used(lengths, n, score.device), float("inf"))
    return score.argmin(-1)
