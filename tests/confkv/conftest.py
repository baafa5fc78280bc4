"""Tiny random models of every supported family, and a way to see the logits of every forward pass."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

torch.set_num_threads(1)

VOCAB = 61
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 80,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_QWEN = {k: v for k, v in _COMMON.items() if k != "head_dim"}

FAMILIES: dict[str, Callable[..., Any]] = {
    "llama": lambda **o: hf.LlamaForCausalLM(hf.LlamaConfig(**{**_COMMON, **o})),
    "qwen2": lambda **o: hf.Qwen2ForCausalLM(hf.Qwen2Config(**{**_QWEN, **o})),
    "qwen3": lambda **o: hf.Qwen3ForCausalLM(hf.Qwen3Config(**{**_COMMON, **o})),
    "mistral": lambda **o: hf.MistralForCausalLM(hf.MistralConfig(**{**_COMMON, "sliding_window": None, **o})),
    "mistral-sliding": lambda **o: hf.MistralForCausalLM(hf.MistralConfig(**{**_COMMON, "sliding_window": 9, **o})),
    "gemma3": lambda **o: hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(
            **{
                **_COMMON,
                "sliding_window": 9,
                "layer_types": [_SLIDING, _FULL],
                "query_pre_attn_scalar": 8,
                **o,
            }
        )
    ),
    "gpt-oss": lambda **o: hf.GptOssForCausalLM(
        hf.GptOssConfig(
            **{
                **_COMMON,
                "sliding_window": 9,
                "num_hidden_layers": 3,
                "layer_types": [_SLIDING, _FULL, _FULL],
                "num_local_experts": 3,
                "num_experts_per_tok": 2,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
                **o,
            }
        )
    ),
    "gpt2": lambda **o: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCAB,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=o.pop("max_position_embeddings", 80),
            bos_token_id=1,
            eos_token_id=2,
            tie_word_embeddings=False,
            **o,
        )
    ),
}


def build(family: str, **overrides: Any) -> Any:
    """A tiny random model whose attention is far from uniform and whose confidence varies."""
    torch.manual_seed(7)
    model = FAMILIES[family](**overrides).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                fan_in = parameter.shape[-1]
                std = 1.5 if "embed" in name or "wte" in name else 1.2 / fan_in**0.5
                std = 3.0 / fan_in**0.5 if "lm_head" in name else std
                parameter.normal_(0.0, std)
            elif "sinks" in name:
                parameter.normal_(0.0, 1.0)
    return model


class Recorder:
    """Keeps the logits of every forward pass of an engine."""

    def __init__(self, engine: Any) -> None:
        self.logits: list[Tensor] = []
        forward = engine.forward

        def spy(*args: Any, **kwargs: Any) -> Tensor:
            out: Tensor = forward(*args, **kwargs)
            self.logits.append(out.clone())
            return out

        engine.forward = spy


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Any]:
    """``tiny(family, **config overrides)``: a fresh tiny model, equal weights at every call."""
    cache: dict[str, Any] = {}

    def get(family: str, **overrides: Any) -> Any:
        key = repr((family, sorted(overrides.items())))
        if key not in cache:
            cache[key] = build(family, **overrides)
        return copy.deepcopy(cache[key])

    return get


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture
def ids() -> Callable[..., list[int]]:
    """``ids(count, seed)``: random token ids that are not special."""

    def make(count: int, seed: int = 0) -> list[int]:
        generator = torch.Generator().manual_seed(1000 + seed)
        return torch.randint(3, VOCAB, (count,), generator=generator).tolist()

    return make
