"""The INT8 history of a :class:`Store`: moving positions into it, dropping them from it, turning its keys.

Each function works on the store's buffers in place. The history of a lane comes first in its slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from confkv.rope import rotate
from confkv_kernels import History, calibrate, dequantise, quantise, take_rows

if TYPE_CHECKING:
    from confkv.store import Store

SLACK = 64


def roomy(need: int) -> int:
    """Capacity for ``need`` slots of a part that grows token by token: an eighth more, so that copies stay few."""
    return need + max(SLACK, need // 8)


def too_roomy(need: int, capacity: int) -> bool:
    """Whether a part is so much larger than :func:`roomy` that giving back is worth a copy."""
    return capacity > roomy(need) + SLACK // 2


def move_to_history(store: Store, lane: int, count: int) -> None:
    """Move the oldest ``count`` positions of a lane's window to its history."""
    n, old = store.n_fp[lane], store.n_history[lane]
    h = _codes_with_room(store, old + count)
    s = store.sinks
    for name in ("k", "v"):
        buffer = getattr(store, name)
        codes, gain, scale = getattr(h, name), getattr(h, f"{name}_gain"), getattr(h, f"{name}_scale")
        if not old:
            scale[lane] = calibrate(buffer[lane, :, s:n])
        codes[lane, :, old : old + count], gain[lane, :, old : old + count] = quantise(
            buffer[lane, :, s : s + count], scale[lane]
        )
        buffer[lane, :, s : n - count] = buffer[lane, :, s + count : n].clone()
    if store.evicts:
        # Slot order is history, sinks, window: the sinks step behind the slots that moved.
        meta = store.meta[lane]
        sinks = meta[:, old : old + s].clone()
        meta[:, old : old + count] = meta[:, old + s : old + s + count].clone()
        meta[:, old + count : old + count + s] = sinks
    store.n_fp[lane], store.n_history[lane] = n - count, old + count


def _codes_with_room(store: Store, need: int) -> History:
    h = store.codes
    if h is None:
        shape = (store.lanes, store.heads, 0)
        code = torch.empty(*shape, store.dim, dtype=torch.int8, device=store.device)
        gain = torch.empty(*shape, device=store.device)
        scale = torch.ones(store.lanes, store.heads, 1, store.dim, device=store.device)
        h = History(code, code.clone(), gain, gain.clone(), scale, scale.clone())
    used, capacity = max(store.n_history), h.k.shape[2]
    if need > capacity:
        room = roomy(need)
        k, v, k_gain, v_gain = (store.resized(x, used, room) for x in (h.k, h.v, h.k_gain, h.v_gain))
        h = History(k, v, k_gain, v_gain, h.k_scale, h.v_scale)
    store.codes = h
    return h


def trim_history(store: Store) -> None:
    """Give back what is far too large."""
    h, used = store.codes, max(store.n_history, default=0)
    if h is not None and too_roomy(used, h.k.shape[2]):
        room = roomy(used)
        k, v, k_gain, v_gain = (store.resized(x, used, room) for x in (h.k, h.v, h.k_gain, h.v_gain))
        store.codes = History(k, v, k_gain, v_gain, h.k_scale, h.v_scale)


def drop_one_mixed(store: Store, slot: Tensor, drops: list[int]) -> None:
    """One slot leaves every head of each lane that drops one, for all lanes at once.

    In the history the last slot takes the place of the one that leaves; the window stays in position order, since it is
    its oldest that enter the history. Where some heads of a lane lose a coded slot and some a plain one, the history
    becomes shorter for all of them, and the last coded slot of the others moves to the head of the window.

    Args:
        slot: ``[G, h]`` int64, the slot that leaves; h = 1 where all heads of a lane lose the same.
        drops: 1 where the lane drops one, else 0.
    """
    device, sinks = store.device, store.sinks
    drop = torch.tensor(drops, device=device).view(-1, 1) > 0
    old = torch.tensor(store.n_history, device=device).view(-1, 1)
    length = torch.tensor(store.lengths, device=device).view(-1, 1)
    coded = drop & (slot < old)
    shrinks = coded.any(1, keepdim=True)
    plain = drop & ~coded
    moves = plain & shrinks
    cut = slot - old
    into = cut.clamp(max=sinks)
    some_coded, some_plain, some_move = bool(coded.any()), bool(plain.any()), bool(moves.any())
    h = store.codes
    if some_coded and h is not None:
        everywhere = coded.expand(-1, store.heads)
        lane, head = everywhere.nonzero(as_tuple=True)
        to, last = slot.expand(-1, store.heads)[everywhere], old[lane, 0] - 1
        for rows in (h.k, h.v, h.k_gain, h.v_gain, store.meta):
            rows[lane, head, to] = rows[lane, head, last]
    if some_plain:
        column = torch.arange(max(store.n_fp), device=device)
        index = column + ((plain & ~moves).unsqueeze(-1) & (column >= cut.unsqueeze(-1))).long()
        index -= (moves.unsqueeze(-1) & (column > sinks) & (column <= cut.unsqueeze(-1))).long()
        index.clamp_(max=column.shape[0] - 1)
        take_rows(store.k, index, column.shape[0])
        take_rows(store.v, index, column.shape[0])
    if some_move and h is not None:  # never where h = 1
        lane, head = moves.nonzero(as_tuple=True)
        last = old[lane, 0] - 1
        for buffer, codes, gain, scale in ((store.k, h.k, h.k_gain, h.k_scale), (store.v, h.v, h.v_gain, h.v_scale)):
            row = dequantise(codes[lane, head, last], gain[lane, head, last], scale[lane, head, 0], store.dtype)
            buffer[lane, head, into[lane, head]] = row
    # Metadata is in slot order over both parts: everything behind the slot that is free now moves up.
    gone = torch.where(shrinks, old - 1, torch.where(plain, slot, length))
    first, end = int(gone.min()), int(length.max())
    column = torch.arange(first, end - 1, device=device)
    index = column + (column >= gone.unsqueeze(-1)).long()
    if some_move:
        window = column - (old.unsqueeze(-1) - 1)
        index -= (moves.unsqueeze(-1) & (window > sinks) & (window <= cut.unsqueeze(-1))).long()
        index = torch.where(moves.unsqueeze(-1) & (window == into.unsqueeze(-1)), old.unsqueeze(-1) - 1, index)
    tail = store.meta[:, :, first:end]
    rows_of = (index - first).unsqueeze(-1).expand(-1, store.heads, -1, tail.shape[-1])
    store.meta[:, :, first : end - 1] = tail.gather(2, rows_of)
    shrunk = [int(x) for x in shrinks[:, 0]]
    store.n_history = [nh - x for nh, x in zip(store.n_history, shrunk, strict=True)]
    store.n_fp = [nf - d + x for nf, d, x in zip(store.n_fp, drops, shrunk, strict=True)]


def compact_mixed(store: Store, index: Tensor, targets: list[int]) -> Tensor:
    """Compaction with an INT8 part. ``index`` runs over history slots first, then full-precision slots.

    Heads of one lane may lose different numbers of history slots; the lane's history shrinks to the shortest and
    the newest survivors of the other heads move to the full-precision part (their values are unchanged).

    Returns:
        ``index``, per head and in the new slot order.
    """
    assert store.codes is not None
    h = store.codes
    index = index.expand(-1, store.heads, -1).contiguous()
    old = torch.tensor(store.n_history, device=store.device).view(-1, 1, 1)
    target = torch.tensor(targets, device=store.device).view(-1, 1, 1)
    valid = torch.arange(index.shape[-1], device=store.device) < target
    from_history = (index < old) & valid
    counts = from_history.sum(-1, keepdim=True)
    fewest = counts.amin(1, keepdim=True)
    if bool((counts != fewest).any()):
        # Slot order stays history, sinks, window: the sinks step before the survivors that move.
        slots = torch.arange(index.shape[-1], device=store.device)
        sink = valid & (index >= old) & (index < old + store.sinks)
        moves = from_history & (slots >= fewest)
        key = torch.where(moves, 1, torch.where(valid & ~from_history & ~sink, 2, torch.where(valid, 0, 3)))
        order = torch.sort(key, dim=-1, stable=True).indices
        index, from_history = index.gather(-1, order), from_history.gather(-1, order)
    new_history = [int(x) for x in fewest.flatten()]
    h_index = torch.where(from_history, index, 0)
    fp_index = (index - old).clamp_(0, store.k.shape[2] - 1)
    for name in ("k", "v"):
        codes, gain = getattr(h, name), getattr(h, f"{name}_gain")
        scale, buffer = getattr(h, f"{name}_scale"), getattr(store, name)
        rows = h_index.unsqueeze(-1)
        picked = torch.gather(codes, 2, rows.expand(-1, -1, -1, store.dim))
        picked_gain = torch.gather(gain, 2, h_index)
        plain = torch.gather(buffer, 2, fp_index.unsqueeze(-1).expand(-1, -1, -1, store.dim))
        moved = dequantise(picked, picked_gain, scale, store.dtype)
        full = torch.where(from_history.unsqueeze(-1), moved, plain)
        for lane, n in enumerate(new_history):
            codes[lane, :, :n] = picked[lane, :, :n]
            gain[lane, :, :n] = picked_gain[lane, :, :n]
            buffer[lane, :, : targets[lane] - n] = full[lane, :, n : targets[lane]]
    store.n_history = new_history
    store.n_fp = [t - n for t, n in zip(targets, new_history, strict=True)]
    return index


def turn_history(store: Store, lane: int, delta: Tensor, inv_freq: Tensor) -> None:
    """Rotate the history's keys of a lane by ``delta`` ``[H, n]`` positions; they are coded anew."""
    h, n = store.codes, store.n_history[lane]
    if h is None or not n:
        return
    keys = dequantise(h.k[lane, :, :n], h.k_gain[lane, :, :n], h.k_scale[lane], torch.float32)
    keys = rotate(keys, delta, inv_freq)
    h.k_scale[lane] = calibrate(keys)
    h.k[lane, :, :n], h.k_gain[lane, :, :n] = quantise(keys, h.k_scale[lane])
