"""A tiny random model with a tokenizer, as a folder, and text for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from envs.chromium import find_chromium
from envs.errors import EnvError


@pytest.fixture(scope="session")
def browser() -> str:
    """The Chromium of this machine; the test is skipped where there is none."""
    try:
        return find_chromium()
    except EnvError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bench_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers with sharp random attention and a byte-level tokenizer: one token a byte."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("bench-model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<|end|>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=fast.eos_token_id,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                scale = 1.5 if "embed" in name else (3.0 if "lm_head" in name else 1.2) / parameter.shape[-1] ** 0.5
                parameter.normal_(0.0, scale)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bench_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of random words, 20 kB."""
    rng = random.Random(5)
    words = ["river", "stone", "old", "seven", "under", "walks", "bread", "and", "the", "a", "light", "never", "north"]
    text = ""
    while len(text) < 20_000:
        text += " ".join(rng.choice(words) for _ in range(rng.randrange(4, 12))).capitalize() + ". "
    path = tmp_path_factory.mktemp("bench-text") / "words.txt"
    path.write_text(text)
    return path


@pytest.fixture(scope="session")
def loaded(bench_model: Path) -> Any:
    """The tiny model in float32, as the benches use it."""
    from tasks.bench.model import load

    return load(str(bench_model), dtype="fp32")
