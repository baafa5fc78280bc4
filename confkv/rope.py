"""RoPE of a loaded model: the inverse frequencies of each layer, and moving keys to new positions."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from confkv.errors import ModelError

#: RoPE whose frequencies depend on nothing but the configuration, so that a key can be moved.
_FIXED = {"default", "linear", "llama3", "yarn", "proportional"}


def inverse_frequencies(model: nn.Module, layer_types: list[str]) -> list[Tensor | None]:
    """Inverse frequencies ``[r / 2]`` of each layer; None where the model has no rotary embedding.

    Models whose layer types differ in RoPE (Gemma 3) keep one buffer per type, named ``{type}_inv_freq``.
    """
    rotary: Any = next((m for name, m in model.named_modules() if name.endswith("rotary_emb")), None)
    if rotary is None:
        return [None] * len(layer_types)
    return [getattr(rotary, f"{kind}_inv_freq", getattr(rotary, "inv_freq", None)) for kind in layer_types]


def require_movable(model: nn.Module, policy: str) -> None:
    """Check that keys can be given another position by :func:`rotate`.

    Raises:
        ModelError: no RoPE, one whose frequencies follow the length, several position axes, or interleaved pairs.
    """
    config: Any = model.config.get_text_config()  # type: ignore[operator, union-attr]
    name = type(model).__name__
    advice = "use policy streaming, which leaves keys where they are"
    if not any(path.endswith("rotary_emb") for path, _ in model.named_modules()):
        raise ModelError(f"policy {policy} moves keys by RoPE, which {name} does not have; {advice}")
    given = getattr(config, "rope_parameters", None) or {}
    for rope in given.values() if all(isinstance(x, dict) for x in given.values()) else [given]:
        kind = rope.get("rope_type", "default")
        if kind not in _FIXED or "mrope_section" in rope:
            kind = "M-RoPE" if "mrope_section" in rope else kind
            raise ModelError(f"policy {policy} cannot move keys under the '{kind}' RoPE of {name}; {advice}")
    halves = getattr(sys.modules[type(model).__module__], "rotate_half", None)
    if halves is not None and halves(torch.arange(4.0)).tolist() != [-2.0, -3.0, 0.0, 1.0]:
        raise ModelError(f"policy {policy} cannot move keys under the interleaved RoPE of {name}; {advice}")


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
