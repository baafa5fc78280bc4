"""RoPE of a loaded model: the inverse frequencies of each layer, and moving keys to new positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def inverse_frequencies(model: nn.Module, layer_types: list[str]) -> list[Tensor | None]:
    """Inverse frequencies ``[r / 2]`` of each layer; None where the model has no rotary embedding.

    Models whose layer types differ in RoPE (Gemma 3) keep one buffer per type, named ``{type}_inv_freq``.
    """
    rotary: Any = next((m for name, m in model.named_modules() if name.endswith("rotary_emb")), None)
    if rotary is None:
        return [None] * len(layer_types)
    return [getattr(rotary, f"{kind}_inv_freq", getattr(rotary, "inv_freq", None)) for kind in layer_types]


def rotate(keys: Tensor, delta: Tensor, inv_freq: Tensor) -> Tensor:
    """Rotate RoPE'd keys by ``delta`` positions (half-split layout; a scaled RoPE keeps its scale).

    Args:
        keys: ``[..., n, D]``.
        delta: ``[..., n]`` positions to move by.
        inv_freq: ``[r / 2]``; the first r of D dimensions are rotary.
    """
    half = inv_freq.shape[0]
    angle = delta.double().unsqueeze(-1) * inv_freq.double()
    cos, sin = angle.cos().float(), angle.sin().float()
    x1, x2 = keys[..., :half].float(), keys[..., half : 2 * half].float()
    turned = [x1 * cos - x2 * sin, x2 * cos + x1 * sin]
    return torch.cat([*(t.to(keys.dtype) for t in turned), keys[..., 2 * half :]], -1)
