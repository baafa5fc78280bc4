"""Every kernel's torch reference against a plain float64 computation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from confkv_kernels import (
    History,
    attend,
    attention_mass,
    calibrate,
    confidence,
    dequantise,
    keep_indices,
    quantise,
    take_rows,
)
from confkv_kernels.reference import attention

torch.set_num_threads(1)


# -- confidence -------------------------------------------------------------------------------------------------


def _confidence64(logits: Tensor) -> Tensor:
    out = []
    for row in logits.double().reshape(-1, logits.shape[-1]):
        log_p = torch.log_softmax(row, -1)
        p = log_p.exp()
        entropy = -float(sum(a * b for a, b in zip(p.tolist(), log_p.tolist(), strict=True) if a > 0))
        first, second = sorted(log_p.tolist(), reverse=True)[:2]
        gap = first - second
        margin = 1.0 if gap == math.inf else 1.0 / (1.0 + math.exp(-min(gap, 700.0)))
        out.append(0.4 * (1.0 - entropy / math.log(row.shape[0])) + 0.3 * margin + 0.3 * math.exp(first))
    return torch.tensor(out, dtype=torch.float64).reshape(logits.shape[:-1])


@pytest.mark.parametrize("vocab", [2, 3, 64, 1000])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0, 200.0])
def test_confidence_equals_float64(vocab: int, spread: float) -> None:
    logits = torch.randn(7, vocab, generator=torch.Generator().manual_seed(vocab)) * spread
    got = confidence(logits)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), _confidence64(logits), atol=2e-5, rtol=0)


def test_confidence_at_its_ends() -> None:
    assert float(confidence(torch.zeros(1000))) == pytest.approx(0.3 * 0.5 + 0.3 / 1000, abs=1e-5)
    assert float(confidence(torch.zeros(2))) == pytest.approx(0.15 + 0.15, abs=1e-6)
    sure = torch.full((1000,), -1e4)
    sure[5] = 1e4
    assert float(confidence(sure)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("offset", [-3e4, 3e4, 1e30])
def test_confidence_of_huge_logits(offset: float) -> None:
    logits = torch.tensor([0.0, 1.0, 2.0]) + offset
    got = float(confidence(logits))
    assert math.isfinite(got) and 0.0 <= got <= 1.0
    if abs(offset) < 1e5:
        assert got == pytest.approx(float(_confidence64(logits)), abs=5e-3)


def test_confidence_with_tokens_ruled_out() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1)) * 3
    logits[10:] = float("-inf")
    assert float(confidence(logits)) == pytest.approx(float(_confidence64(logits)), abs=1e-5)
    logits[1:] = float("-inf")
    assert float(confidence(logits)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_confidence_is_computed_in_fp32(dtype: torch.dtype) -> None:
    logits = (torch.randn(4, 500, generator=torch.Generator().manual_seed(2)) * 4).to(dtype)
    torch.testing.assert_close(confidence(logits).double(), _confidence64(logits), atol=2e-5, rtol=0)


def test_confidence_rises_as_the_distribution_sharpens() -> None:
    logits = torch.randn(100, generator=torch.Generator().manual_seed(3))
    values = [float(confidence(logits * t)) for t in (0.1, 0.5, 1.0, 2.0, 5.0, 20.0)]
    assert values == sorted(values)


# -- attention --------------------------------------------------------------------------------------------------


def _history(b: int, h: int, n: int, d: int, seed: int = 5) -> History:
    g = torch.Generator().manual_seed(seed)
    k, v = torch.randn(b, h, n, d, generator=g), torch.randn(b, h, n, d, generator=g)
    k_scale, v_scale = calibrate(k), calibrate(v)
    (kc, kg), (vc, vg) = quantise(k, k_scale), quantise(v, v_scale)
    return History(kc, vc, kg, vg, k_scale, v_scale)


def _probabilities64(
    q: Tensor, k: Tensor, scale: float, mask: Tensor | None, sinks: Tensor | None, softcap: float | None
) -> Tensor:
    """``[B, Hq, S, n]``, head by head."""
    b, hq, steps, _ = q.shape
    groups = hq // k.shape[1]
    out = torch.zeros(b, hq, steps, k.shape[2], dtype=torch.float64)
    for i in range(b):
        for head in range(hq):
            s = q[i, head].double() @ k[i, head // groups].double().T * scale
            if softcap is not None:
                s = softcap * torch.tanh(s / softcap)
            if mask is not None:
                s = torch.where(mask, s, float("-inf"))
            weight = s.exp()
            total = weight.sum(-1, keepdim=True)
            if sinks is not None:
                total = total + math.exp(float(sinks[head]))
            out[i, head] = weight / total
    return out


def _whole(k: Tensor, v: Tensor, history: History | None) -> tuple[Tensor, Tensor]:
    if history is None:
        return k.double(), v.double()
    hk = dequantise(history.k, history.k_gain, history.k_scale, torch.float64)
    hv = dequantise(history.v, history.v_gain, history.v_scale, torch.float64)
    return torch.cat([hk, k.double()], 2), torch.cat([hv, v.double()], 2)


CASES = [
    {"hq": hq, "h": h, "steps": steps, "n": n, "past": past, "sinks": sinks, "softcap": softcap}
    for hq, h in ((4, 4), (6, 2), (3, 1))
    for steps, n in ((1, 1), (1, 9), (5, 5), (4, 11))
    for past in (0, 6)
    for sinks, softcap in ((False, None), (True, None), (False, 5.0), (True, 5.0))
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(x) for x in c.values()))
def test_attend_and_mass_equal_float64(case: dict[str, Any]) -> None:
    g = torch.Generator().manual_seed(11)
    b, d, hq, h, steps, n = 2, 16, case["hq"], case["h"], case["steps"], case["n"]
    q, k = torch.randn(b, hq, steps, d, generator=g) * 2, torch.randn(b, h, n, d, generator=g)
    v = torch.randn(b, h, n, d, generator=g)
    history = _history(b, h, case["past"], d) if case["past"] else None
    sinks = torch.randn(hq, generator=g) if case["sinks"] else None
    whole_k, whole_v = _whole(k, v, history)
    total = whole_k.shape[2]
    mask = None
    if steps > 1:
        mask = torch.arange(total) <= torch.arange(total - steps, total).unsqueeze(1)
    scale = d**-0.5
    p = _probabilities64(q, whole_k, scale, mask, sinks, case["softcap"])
    options: dict[str, Any] = {
        "scale": scale,
        "history": history,
        "sinks": sinks,
        "softcap": case["softcap"],
    }
    out = attend(q, k, v, mask=mask, **options)
    assert out.dtype == q.dtype and out.shape == q.shape
    torch.testing.assert_close(out.double(), p @ whole_v.repeat_interleave(hq // h, 1), atol=2e-5, rtol=2e-5)
    mass = attention_mass(q, k, visible=None if mask is None else mask.view(1, 1, steps, total), **options)
    assert mass.dtype == torch.float32 and mass.shape == (b, h, total)
    torch.testing.assert_close(mass.double(), p.view(b, h, hq // h, steps, total).mean((2, 3)), atol=2e-6, rtol=1e-4)


def test_mask_hides_keys_whatever_they_hold() -> None:
    g = torch.Generator().manual_seed(12)
    q, k, v = (torch.randn(1, 2, 3, 8, generator=g) for _ in range(3))
    mask = torch.tensor([[True, False, False], [True, True, False], [True, False, True]])
    before = attend(q, k, v, scale=0.3, mask=mask)
    k[:, :, 2], v[:, :, 2] = 1e4, -1e4
    after = attend(q, k, v, scale=0.3, mask=mask)
    torch.testing.assert_close(after[:, :, :2], before[:, :, :2])
    assert float((after[:, :, 2] - before[:, :, 2]).abs().max()) > 1


def test_scores_too_large_for_exp_are_stable() -> None:
    q = torch.full((1, 2, 1, 4), 100.0)
    k = torch.stack([torch.full((4,), 100.0), torch.full((4,), 99.0)]).expand(1, 1, 2, 4)
    v = torch.tensor([[1.0] * 4, [0.0] * 4]).expand(1, 1, 2, 4)
    for sinks in (None, torch.tensor([-5.0, 5.0])):
        assert torch.equal(attend(q, k, v, scale=1.0, sinks=sinks), torch.ones(1, 2, 1, 4))
        torch.testing.assert_close(attention_mass(q, k, scale=1.0, sinks=sinks), torch.tensor([[[1.0, 0.0]]]))


def test_mass_sums_to_one_and_to_less_beside_a_sink() -> None:
    g = torch.Generator().manual_seed(13)
    q, k = torch.randn(3, 4, 2, 8, generator=g), torch.randn(3, 2, 7, 8, generator=g)
    torch.testing.assert_close(attention_mass(q, k, scale=0.35).sum(-1), torch.ones(3, 2))
    assert bool((attention_mass(q, k, scale=0.35, sinks=torch.zeros(3, 4)).sum(-1) < 1).all())


def test_mass_with_one_sink_row_per_layer() -> None:
    g = torch.Generator().manual_seed(14)
    q, k, sinks = (
        torch.randn(3, 4, 2, 8, generator=g),
        torch.randn(3, 2, 7, 8, generator=g),
        torch.randn(3, 4, generator=g),
    )
    together = attention_mass(q, k, scale=0.35, sinks=sinks)
    for i in range(3):
        alone = attention_mass(q[i : i + 1], k[i : i + 1], scale=0.35, sinks=sinks[i])
        torch.testing.assert_close(together[i : i + 1], alone)


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("lanes", [1, 3])
def test_mass_in_blocks_equals_mass_at_once(past: int, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(15)
    q, k = torch.randn(3, 4, 2, 8, generator=g), torch.randn(3, 2, 7, 8, generator=g)
    history = _history(3, 2, past, 8) if past else None
    visible = torch.rand(lanes, 1, 2, 3, generator=g) < 0.5
    options: dict[str, Any] = {"scale": 0.35, "visible": visible, "history": history, "softcap": 5.0}
    for sinks in (None, torch.randn(4, generator=g), torch.randn(3, 4, generator=g)):
        at_once = attention_mass(q, k, sinks=sinks, **options)
        for block in (1, 2 * 4 * 2 * (7 + past)):
            monkeypatch.setattr(attention, "_BLOCK", block)
            assert torch.equal(attention_mass(q, k, sinks=sinks, **options), at_once)
        monkeypatch.undo()


def test_mass_mask_over_the_last_keys_equals_one_over_all() -> None:
    g = torch.Generator().manual_seed(16)
    q, k = torch.randn(2, 4, 3, 8, generator=g), torch.randn(2, 2, 9, 8, generator=g)
    mask = (torch.arange(9) <= torch.arange(6, 9).unsqueeze(1)).view(1, 1, 3, 9)
    whole = attention_mass(q, k, scale=0.35, visible=mask)
    assert torch.equal(attention_mass(q, k, scale=0.35, visible=mask[..., 6:]), whole)
    assert bool((whole[..., 8] < whole[..., 6]).any()), "the newest key is seen by one row of three"


@pytest.mark.parametrize("rows", [1, 4])
def test_mass_equals_the_attentions_transformers_returns(rows: int) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation="eager",
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    caught: list[Tensor] = []
    layer = model.model.layers[0].self_attn
    layer.q_proj.register_forward_hook(lambda *x: caught.append(x[2]))
    layer.k_proj.register_forward_hook(lambda *x: caught.append(x[2]))
    tokens = torch.randint(0, 50, (1, 12))
    with torch.no_grad():
        attention = model(tokens, output_attentions=True).attentions[0]
        q, k = caught[0].view(1, 12, 4, 8).transpose(1, 2), caught[1].view(1, 12, 2, 8).transpose(1, 2)
        cos, sin = model.model.rotary_emb(q, torch.arange(12).unsqueeze(0))
        turn = [torch.cat([-x[..., 4:], x[..., :4]], -1) for x in (q, k)]
        q, k = q * cos + turn[0] * sin, k * cos + turn[1] * sin
    visible = (torch.arange(12) <= torch.arange(12 - rows, 12).unsqueeze(1)).view(1, 1, rows, 12)
    mass = attention_mass(q[:, :, -rows:], k, scale=8**-0.5, visible=visible)
    expected = attention[:, :, -rows:].view(1, 2, 2, rows, 12).mean((2, 3))
    torch.testing.assert_close(mass, expected, atol=1e-6, rtol=1e-5)


# -- quantising -------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    tokens=st.integers(1, 40),
    dim=st.sampled_from([8, 64, 80]),
    outlier=st.sampled_from([1.0, 30.0, 1e4]),
)
@settings(max_examples=40, deadline=None)
def test_round_trip_error(seed: int, tokens: int, dim: int, outlier: float) -> None:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2, tokens, dim, generator=g)
    x[..., 0] *= outlier  # keys of real models have outlier channels
    scale = calibrate(x)
    codes, gain = quantise(x, scale)
    assert scale.shape == (2, 1, dim) and gain.shape == (2, tokens)
    assert codes.dtype == torch.int8 and int(codes.abs().max()) <= 127
    assert bool((scale > 0).all()) and bool((gain > 0).all())
    back = dequantise(codes, gain, scale, torch.float32)
    step = gain.unsqueeze(-1) * scale
    assert bool(((back - x).abs() <= 0.5 * step * (1 + 1e-4) + 1e-12).all())


def test_relative_error_of_gaussian_keys() -> None:
    x = torch.randn(4, 500, 64, generator=torch.Generator().manual_seed(1))
    scale = calibrate(x)
    back = dequantise(*quantise(x, scale), scale, torch.float32)
    assert float((back - x).norm() / x.norm()) < 0.01


def test_tokens_are_quantised_independently() -> None:
    x = torch.randn(2, 20, 16, generator=torch.Generator().manual_seed(2))
    scale = calibrate(x[:, :10])
    codes, gain = quantise(x, scale)
    x[:, 10:] *= 1e3
    later, later_gain = quantise(x, scale)
    assert torch.equal(codes[:, :10], later[:, :10]) and torch.equal(gain[:, :10], later_gain[:, :10])
    again, again_gain = quantise(x[:, 10:], scale)
    assert torch.equal(again, later[:, 10:]) and torch.equal(again_gain, later_gain[:, 10:])


def test_zeros_and_dead_channels() -> None:
    zero = torch.zeros(1, 3, 8)
    scale = calibrate(zero)
    assert torch.equal(dequantise(*quantise(zero, scale), scale, torch.float32), zero)
    x = torch.randn(1, 30, 8, generator=torch.Generator().manual_seed(3))
    x[..., 2] = 0.0
    scale = calibrate(x)
    late = x[:, :1].clone()
    late[..., 2] = 0.5  # the channel wakes up after calibration
    back = dequantise(*quantise(late, scale), scale, torch.float32)
    assert bool(torch.isfinite(back).all()) and abs(float(back[0, 0, 2]) - 0.5) < 0.01


# -- selecting --------------------------------------------------------------------------------------------------


def _brute(score: list[float], length: int, target: int) -> list[int]:
    order = sorted(range(length), key=lambda i: (-score[i], -i))
    return sorted(order[:target])


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_keep_indices_equals_brute_force(data: st.DataObject) -> None:
    lanes, heads = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    n = data.draw(st.integers(1, 12))
    lengths = data.draw(st.lists(st.integers(1, n), min_size=lanes, max_size=lanes))
    lengths[0] = n
    if data.draw(st.booleans()):  # the steady state of decoding: one slot leaves every lane
        lengths, targets = [n] * lanes, [n - 1] * lanes
    else:
        targets = [data.draw(st.integers(1, length)) for length in lengths]
    # Few distinct values, so that ties are common; inf marks what must stay.
    values = st.sampled_from([0.0, 0.5, 1.0, float("inf")])
    score = torch.tensor(
        [[data.draw(st.lists(values, min_size=n, max_size=n)) for _ in range(heads)] for _ in range(lanes)]
    )
    if max(targets) == 0:
        return
    index = keep_indices(score, lengths, targets)
    assert index.dtype == torch.int64 and index.shape == (lanes, heads, max(targets))
    for lane in range(lanes):
        for head in range(heads):
            got = index[lane, head, : targets[lane]].tolist()
            assert got == _brute(score[lane, head].tolist(), lengths[lane], targets[lane])


@pytest.mark.parametrize("heads", [1, 2])
def test_take_rows_moves_rows_to_the_front(heads: int) -> None:
    g = torch.Generator().manual_seed(4)
    buffer = torch.randn(3, 2, 10, 4, generator=g)
    before = buffer.clone()
    index = torch.stack([torch.randperm(10, generator=g)[:6].sort().values for _ in range(3 * heads)])
    index = index.view(3, heads, 6)
    take_rows(buffer, index, 6)
    for lane in range(3):
        for head in range(2):
            rows = index[lane, head if heads == 2 else 0]
            assert torch.equal(buffer[lane, head, :6], before[lane, head, rows])
