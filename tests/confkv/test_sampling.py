"""Sampling: greedy and at a temperature, with and without a filter on what may come next."""

from __future__ import annotations

import torch

from confkv.sampling import sample

LOGITS = torch.tensor([0.0, 3.0, 1.0, 2.0])


def draws(temperature: float, allow: object = None, count: int = 4000) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    drawn = [sample(LOGITS, temperature, rng, allow) for _ in range(count)]  # type: ignore[arg-type]
    return torch.bincount(torch.tensor(drawn), minlength=4) / count


def test_greedy_takes_the_best_allowed() -> None:
    rng = torch.Generator()
    assert sample(LOGITS, 0.0, rng) == 1
    assert sample(LOGITS, 0.0, rng, lambda token: token != 1) == 3
    assert sample(LOGITS, 0.0, rng, lambda token: token == 0) == 0


def test_a_filter_that_allows_nothing_is_not_followed() -> None:
    rng = torch.Generator().manual_seed(0)
    assert sample(LOGITS, 0.0, rng, lambda token: False) == 1
    assert 0 <= sample(LOGITS, 1.0, rng, lambda token: False) < 4


def test_the_rejected_share_goes_to_the_others_in_proportion() -> None:
    assert torch.allclose(draws(1.0), torch.softmax(LOGITS, -1), atol=0.03)
    expected = torch.softmax(torch.tensor([0.0, -torch.inf, 1.0, 2.0]), -1)
    assert torch.allclose(draws(1.0, lambda token: token != 1), expected, atol=0.03)
    assert draws(1.0, lambda token: token != 1)[1] == 0
