"""Incremental text equals the text decoded at once, whatever characters the tokens split."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from confkv.detokenise import Detokeniser
from confkv.engine import Engine

CORPUS = ["the cat sat on the mat", "click the button 'Buy now'", "naïve café, déjà vu", "the price is 12 €"]


def _byte_level() -> Any:
    """A byte-level BPE as GPT-2, Llama 3 and Qwen have it: one character may take several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def _metaspace() -> Any:
    """A SentencePiece-like vocabulary with byte fallback, whose decoder drops the first space."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁the", "▁cat", "c", "a", "t", "s"]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


TOKENIZERS = {"byte-level": _byte_level(), "metaspace": _metaspace()}
TEXTS = [
    "the cat sat on the mat",
    "naïve café",
    "日本語のページ",
    "👩‍👩‍👧‍👦 family",
    "a🙂b🙂c",
    "नमस्ते दुनिया",
    "  two  spaces \n\n\tand tabs\n",
    "€",
    "é" * 40,
]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text(text: str) -> None:
    tokenizer = TOKENIZERS["byte-level"]
    tokens = tokenizer.encode(text, add_special_tokens=False)
    detokeniser = Detokeniser(tokenizer)
    pieces = [detokeniser.push(token) for token in tokens]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_a_character_is_given_out_with_its_last_byte() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    tokens = tokenizer.encode("🙂", add_special_tokens=False)
    assert len(tokens) == 4
    detokeniser = Detokeniser(tokenizer)
    assert [detokeniser.push(token) for token in tokens] == ["", "", "", "🙂"]


def test_leading_spaces_survive_a_decoder_that_strips_them() -> None:
    tokenizer = TOKENIZERS["metaspace"]
    tokens = tokenizer.convert_tokens_to_ids(["▁the", "▁cat", "s", "▁", "▁the", "<0xE2>", "<0x82>", "<0xAC>", "▁cat"])
    detokeniser = Detokeniser(tokenizer)
    pieces = [detokeniser.push(token) for token in tokens]
    assert "".join(pieces) == tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
    assert pieces[1] == " cat" and pieces[-1] == " cat"


@given(text=st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_text(text: str) -> None:
    tokenizer = TOKENIZERS["byte-level"]
    tokens = tokenizer.encode(text, add_special_tokens=False)
    detokeniser = Detokeniser(tokenizer)
    assert "".join(detokeniser.push(token) for token in tokens) == tokenizer.decode(tokens)


def test_bytes_that_never_become_a_character_are_given_out_in_the_end() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    euro = tokenizer.encode("🙂", add_special_tokens=False)[:1]
    word = tokenizer.encode("ok", add_special_tokens=False)
    detokeniser = Detokeniser(tokenizer)
    text = "".join(detokeniser.push(token) for token in [*euro * 20, *word])
    assert text.endswith("ok") and text.count("\ufffd") == 20


def test_no_tokenizer_gives_no_text() -> None:
    assert Detokeniser(None).push(3) == ""


def test_generate_yields_pieces_and_an_empty_stop(tiny: Any) -> None:
    tokenizer = TOKENIZERS["byte-level"]
    model = tiny("llama", vocab_size=len(tokenizer), max_position_embeddings=400)
    session = Engine(model, tokenizer, "full").session()
    session.extend(tokenizer.encode("click the 🙂"), "observation")
    tokens = list(session.generate(40, temperature=1.0, seed=2, stop_ids=[]))
    whole = tokenizer.decode([t.id for t in tokens], clean_up_tokenization_spaces=False)
    joined = "".join(t.text for t in tokens)
    assert whole.startswith(joined) and whole[len(joined) :].strip("\ufffd") == ""
    session = Engine(tiny("llama", vocab_size=len(tokenizer)), tokenizer, "full").session()
    session.extend([5, 6, 7])
    first = next(iter(session.fork().generate(1, stop_ids=[]))).id
    reply = list(session.generate(5, stop_ids=[first]))
    assert [(t.id, t.text) for t in reply] == [(first, "")]
