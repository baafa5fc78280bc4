"""Rows of attention against plain float64, with visibility that differs by KV head, sinks and an INT8 history."""

from __future__ import annotations

import pytest
import torch

from confkv_kernels import History, attention_mass, attention_probabilities, calibrate, dequantise, quantise

B, HEADS, GROUPS, D, PAST, N, ROWS = 2, 2, 3, 8, 5, 11, 4


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("coded", [False, True])
def test_probabilities_equal_float64(coded: bool, learned: bool, softcap: float | None) -> None:
    g = torch.Generator().manual_seed(3)
    q = torch.randn(B, HEADS * GROUPS, ROWS, D, generator=g) * 2
    old, k = torch.randn(B, HEADS, PAST, D, generator=g), torch.randn(B, HEADS, N, D, generator=g)
    sinks = torch.randn(B, HEADS * GROUPS, generator=g) if learned else None
    history, keys = None, k
    if coded:
        scale = calibrate(old.reshape(B * HEADS, PAST, D)).reshape(B, HEADS, 1, D)
        codes, gain = quantise(old, scale)
        history = History(codes, codes, gain, gain, scale, scale)
        keys = torch.cat([dequantise(codes, gain, scale, torch.float32), k], 2)
    visible = torch.rand(B, HEADS, ROWS, keys.shape[2], generator=g) < 0.6
    visible[..., -1] = True
    got = attention_probabilities(q, k, scale=0.4, visible=visible, history=history, sinks=sinks, softcap=softcap)
    assert got.shape == (B, HEADS * GROUPS, ROWS, keys.shape[2]) and got.dtype == torch.float32
    for b in range(B):
        for head in range(HEADS * GROUPS):
            for row in range(ROWS):
                s = keys[b, head // GROUPS].double() @ q[b, head, row].double() * 0.4
                s = softcap * torch.tanh(s / softcap) if softcap is not None else s
                e = s.exp() * visible[b, head // GROUPS, row]
                total = e.sum() + (sinks[b, head].double().exp() if sinks is not None else 0.0)
                torch.testing.assert_close(got[b, head, row].double(), e / total, atol=1e-5, rtol=1e-4)
    mass = attention_mass(q, k, scale=0.4, visible=visible, history=history, sinks=sinks, softcap=softcap)
    torch.testing.assert_close(mass, got.unflatten(1, (HEADS, GROUPS)).mean((2, 3)), atol=1e-6, rtol=1e-5)
