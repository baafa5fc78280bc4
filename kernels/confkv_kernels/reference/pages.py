"""How much attention pages of keys would receive, told from the centre of each page alone."""

from __future__ import annotations

import torch
from torch import Tensor

#: Numbers of centres taken at once on a CPU: widened to fp32 they should stay in the second-level cache.
_BLOCK = 1 << 18


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
    heads, pages = centre.shape[1:3]
    rows = q.float().reshape(b, heads, (hq // heads) * w, d) * scale.view(b, 1, 1, 1)
    out = torch.empty(b, heads, pages, device=q.device)
    size = max(1, _BLOCK // max(heads * pages * d, 1)) if q.device.type == "cpu" else b
    for first in range(0, b, size):
        part = slice(first, first + size)
        s = torch.matmul(rows[part], centre[part].float().transpose(-1, -2))
        if softcap is not None:
            s = s.div_(softcap).tanh_().mul_(softcap)
        out[part] = torch.softmax(s, -1).mean(-2)
    return out
