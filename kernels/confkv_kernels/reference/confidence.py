"""Confidence of a next-token distribution (CONF-KV, arXiv 2605.24786, section 3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Weights of the three terms: normalised entropy, top-2 margin, top-1 probability.
ENTROPY_WEIGHT, MARGIN_WEIGHT, TOP_WEIGHT = 0.4, 0.3, 0.3
#: exp of it is 0 in fp32, and 0 times it is 0.
_FLOOR = -1e4


def confidence(logits: Tensor) -> Tensor:
    """Scalar confidence in [0, 1] of each row of raw logits.

    ``c = 0.4 (1 - H / log V) + 0.3 sigmoid(log p1 - log p2) + 0.3 p1``, computed in fp32 from the logits before any
    temperature, mask or grammar.

    Args:
        logits: ``[..., V]``, any floating dtype, V >= 2.

    Returns:
        ``[...]`` float32.
    """
    x = logits.float()
    top, index = x.max(-1, keepdim=True)
    # Top-2 as two maxima: a selection over a 150k vocabulary costs several times as much.
    second = x.scatter(-1, index, float("-inf")).amax(-1) - top[..., 0]
    # Relative to the largest logit: otherwise the entropy of large logits is a difference of large numbers.
    # The clamp keeps a token ruled out by the model itself (-inf) from turning 0 * -inf into NaN.
    x = (x - top).clamp_(min=_FLOOR)
    e = torch.exp(x)
    z = e.sum(-1)
    # H = log Z - sum p x: one exp over the vocabulary instead of two.
    entropy = torch.log(z) - torch.linalg.vecdot(e, x) / z
    normalised = (entropy / math.log(x.shape[-1])).clamp(0.0, 1.0)
    return ENTROPY_WEIGHT * (1.0 - normalised) + MARGIN_WEIGHT * torch.sigmoid(-second) + TOP_WEIGHT / z
