"""Confidence of the model in its next token, the signal that drives the budget."""

from __future__ import annotations

from torch import Tensor

from confkv_kernels import confidence as _confidence

__all__ = ["confidence"]


def confidence(logits: Tensor) -> float:
    """Confidence in [0, 1] of one next-token distribution (CONF-KV, section 3).

    Args:
        logits: ``[V]`` raw logits, before temperature, masks or grammars.
    """
    return float(_confidence(logits))
