"""Confidence of a next-token distribution (CONF-KV, arXiv 2605.24786, section 3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Weights of the three terms: normalised entropy, top-2 margin, top-1 probability.
ENTROPY_WEIGHT, MARGIN_WEIGHT, TOP_WEIGHT = 0.4, 0.3, 0.3


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
    top2 = torch.topk(x, 2, dim=-1).values
    # Relative to the largest logit: otherwise the entropy of large logits is a difference of large numbers.
    x, top2 = x - top2[..., :1], top2 - top2[..., :1]
    log_z = torch.logsumexp(x, -1, keepdim=True)
    # H = log Z - sum p x, which needs one exp over the vocabulary instead of two.
    p = torch.exp(x - log_z)
    # A token ruled out by the model itself (-inf) has p = 0 and adds nothing; 0 * -inf would be NaN.
    entropy = log_z.squeeze(-1) - (p * x.clamp_min(torch.finfo(torch.float32).min)).sum(-1)
    p1 = torch.exp(top2[..., 0] - log_z.squeeze(-1))
    margin = torch.sigmoid(top2[..., 0] - top2[..., 1])
    normalised = (entropy / math.log(x.shape[-1])).clamp(0.0, 1.0)
    return ENTROPY_WEIGHT * (1.0 - normalised) + MARGIN_WEIGHT * margin + TOP_WEIGHT * p1
