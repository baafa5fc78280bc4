"""RoPE of a loaded model: the inverse frequencies of each layer, needed to move keys to new positions."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def inverse_frequencies(model: nn.Module, layer_types: list[str]) -> list[Tensor | None]:
    """Inverse frequencies ``[r / 2]`` of each layer; None where the model has no rotary embedding.

    Models whose layer types differ in RoPE (Gemma 3) keep one buffer per type, named ``{type}_inv_freq``.
    """
    rotary: Any = next((m for name, m in model.named_modules() if name.endswith("rotary_emb")), None)
    if rotary is None:
        return [None] * len(layer_types)
    return [getattr(rotary, f"{kind}_inv_freq", getattr(rotary, "inv_freq", None)) for kind in layer_types]
