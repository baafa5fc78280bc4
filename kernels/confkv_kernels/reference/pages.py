"""How much attention pages of keys would receive, told from the centre of each page alone."""

from __future__ import annotations

import torch
from torch import Tensor


def page_scores(q: Tensor, centre: Tensor, *, scale: Tensor, softcap: float | None = None) -> Tensor:
    """Share of attention of each page, by the scores of its centre.

    ``mean over rows and grouped query heads of softmax over pages (scale * q . centre)``. The softmax makes heads
    comparable before they vote: raw scores of one head can outweigh those of all others.

    Args:
        q: ``[B, Hq, w, D]``, the newest w query rows.
        centre: ``[B, H, P, D]``, mean key of each page, any floating dtype, with Hq a multiple of H.
        scale: ``[B]`` float32 factor of the scores.
        softcap: tanh cap on the scores (Gemma 2).

    Returns:
        ``[B, H, P]`` float32; sums to 1 over pages.
    """
    b, hq, w, d = q.shape
    heads = centre.shape[1]
    rows = q.float().reshape(b, heads, (hq // heads) * w, d) * scale.view(b, 1, 1, 1)
    s = torch.matmul(rows, centre.float().transpose(-1, -2))
    if softcap is not None:
        s = s.div_(softcap).tanh_().mul_(softcap)
    return torch.softmax(s, -1).mean(-2)
