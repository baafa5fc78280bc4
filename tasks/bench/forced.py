"""Teacher-forced decoding with whole distributions: how a policy's next tokens compare with full KV's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def distributions(session: Any, ids: list[int]) -> Tensor:
    """Feed ``ids`` one decode step each; log-probabilities before each, float32 ``[len(ids), V]`` on the CPU.

    Raises:
        ConfkvError: the session was not fed yet, or a sampled token waits.
    """
    rows: list[Tensor] = []
    for token in ids:
        if session.logits is not None:
            rows.append(session.logits.float().log_softmax(-1).cpu())
        session.score([token])
    return torch.stack(rows)


def divergence(full: Tensor, other: Tensor) -> Tensor:
    """KL divergence of ``other`` from ``full``, nats, ``[n]``; both are log-probabilities ``[n, V]``."""
    return (full.exp() * (full - other)).sum(-1).clamp_min(0.0)


@dataclass(frozen=True)
class Agreement:
    """Per gold token: whether the likeliest token is full KV's, KL from full KV's distribution, log p of the gold token
    (both in nats), and its rank (1: the likeliest)."""

    same: list[bool]
    kl: list[float]
    logp: list[float]
    rank: list[int]


def agreement(full: Tensor, own: Tensor, ids: list[int]) -> Agreement:
    """Compare log-probabilities ``[n, V]`` of a policy with those of full KV at the gold tokens ``ids``."""
    gold = own.gather(1, torch.tensor(ids).unsqueeze(1))
    return Agreement(
        (full.argmax(-1) == own.argmax(-1)).tolist(),
        divergence(full, own).tolist(),
        gold.squeeze(1).tolist(),
        ((own > gold).sum(-1) + 1).tolist(),
    )
