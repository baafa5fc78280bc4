"""Choosing the next token from the logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def sample(logits: Tensor, temperature: float, rng: torch.Generator, allow: Callable[[int], bool] | None = None) -> int:
    """The next token.

    Args:
        logits: ``[vocabulary]``, raw.
        temperature: 0 is greedy.
        rng: a CPU generator.
        allow: which tokens may be chosen; the others' probability goes to these in proportion. Where it allows none,
            it is not followed: a reply that breaks a grammar can be read and answered, a hung one cannot.
    """
    if temperature <= 0:
        best = int(logits.argmax())
        if allow is None or allow(best):
            return best
        return next((token for token in logits.argsort(descending=True).tolist() if allow(token)), best)
    p = torch.softmax(logits.float().cpu() / temperature, -1)
    first = token = int(torch.multinomial(p, 1, generator=rng))
    while allow is not None and not allow(token):
        p[token] = 0.0
        if not bool(p.sum() > 0):
            return first
        token = int(torch.multinomial(p, 1, generator=rng))
    return token
