"""INT8 with one scale per head and channel, and one growth factor per token.

``x[t, d] ~= code[t, d] * scale[d] * gain[t]``. The channel scales are calibrated once; a later token that is larger
than anything seen gets a larger gain of its own. So the range grows without touching the codes that are stored, which
a growing per-channel maximum would have to round a second time.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MAX = 127.0
_TINY = 1e-12


def calibrate(x: Tensor) -> Tensor:
    """Channel scales: the root mean square of each channel.

    Args:
        x: ``[..., T, D]`` keys or values, T >= 1.

    Returns:
        ``[..., 1, D]`` float32, > 0.
    """
    rms = x.float().square().mean(-2, keepdim=True).sqrt()
    # A dead channel must not get a zero scale: one large value there would need an infinite gain.
    floor = rms.mean(-1, keepdim=True) * 1e-3
    return torch.maximum(rms, floor).clamp_min(_TINY)


def quantise(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and gains of ``x`` under channel scales.

    Args:
        x: ``[..., T, D]``, any floating dtype.
        scale: ``[..., 1, D]`` float32 from :func:`calibrate`.

    Returns:
        codes ``[..., T, D]`` int8 in -127..127; gain ``[..., T]`` float32, > 0.
    """
    y = x.float() / scale
    gain = (y.abs().amax(-1) / _MAX).clamp_min(_TINY)
    codes = torch.round(y / gain.unsqueeze(-1)).clamp_(-_MAX, _MAX).to(torch.int8)
    return codes, gain


def dequantise(codes: Tensor, gain: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Inverse of :func:`quantise`: ``[..., T, D]`` in ``dtype``."""
    return (codes.float() * gain.unsqueeze(-1) * scale).to(dtype)
