"""Which slots survive an eviction, and moving them together."""

from __future__ import annotations

import torch
from torch import Tensor


def keep_indices(score: Tensor, lengths: list[int], targets: list[int]) -> Tensor:
    """Slots to keep, ascending: in every lane the ``targets`` best of its first ``lengths`` slots.

    Equal scores are decided in favour of the later slot. A lane that keeps fewer slots than the widest one is padded
    with slot indices that its own (shorter) length makes unreachable.

    Args:
        score: ``[G, h, n]`` float32; ``+inf`` can never be evicted.
        lengths: valid slots per lane, G numbers <= n.
        targets: slots to keep per lane, ``targets[g] <= lengths[g]``.

    Returns:
        ``[G, h, max(targets)]`` int64.
    """
    lanes, _, n = score.shape
    widest = max(targets)
    slots = torch.arange(n, device=score.device)
    length = torch.tensor(lengths, device=score.device).view(lanes, 1, 1)
    target = torch.tensor(targets, device=score.device).view(lanes, 1, 1)
    valid = slots < length
    ranked = torch.where(valid, score, torch.full_like(score, float("-inf")))
    # Stable descending order of the reversed slots: later slots win ties.
    order = n - 1 - torch.sort(ranked.flip(-1), dim=-1, descending=True, stable=True).indices
    rank = torch.empty_like(order).scatter_(-1, order, slots.expand_as(order).contiguous())
    keep = (rank < target) & valid
    # Kept slots first, in slot order, then the rest.
    key = torch.where(keep, slots, slots + n)
    return torch.sort(key, dim=-1).indices[..., :widest].contiguous()


def take_rows(buffer: Tensor, index: Tensor, length: int) -> None:
    """Move the rows ``index`` of every lane to the front of ``buffer``, in place.

    Args:
        buffer: ``[G, H, cap, D]`` contiguous.
        index: ``[G, H or 1, m]`` int64 slots below ``cap``.
        length: m.
    """
    lanes, heads, cap, dim = buffer.shape
    base = torch.arange(lanes * heads, device=buffer.device).view(lanes, heads, 1) * cap
    flat = (base + index).reshape(-1)
    rows = buffer.view(lanes * heads * cap, dim).index_select(0, flat)
    buffer[:, :, :length] = rows.view(lanes, heads, length, dim)
