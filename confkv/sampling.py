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
    greedy = temperature <= 0
    p = logits if greedy else torch.softmax(logits.float().cpu() / temperature, -1)
    first = int(p.argmax()) if greedy else int(torch.multinomial(p, 1, generator=rng))
    if allow is None or allow(first):
        return first
    # A draw without replacement, of which the first one allowed is taken, is a draw from those allowed.
    order = p.argsort(descending=True) if greedy else torch.multinomial(p, int((p > 0).sum()), generator=rng)
    return next((token for token in order.tolist() if allow(token)), first)
