"""The transcript feeds exactly what a chat template would have written, and never the same text twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.transcript import Transcript, TranscriptError

sys.path.insert(0, str(Path(__file__).parent))
from chat_templates import (
    CHATML,
    FAMILIES,
    MISTRAL,
    Family,
    blank_prefix_tokenizer,
    byte_tokenizer,
    family_tokenizer,
)

OPTIONS = {"enable_thinking": False, "reasoning_effort": "low"}
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def opening(family: Family) -> list[dict[str, str]]:
    user = "Goal: buy\n\nPage:\nhello"
    if family.system_role:
        return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": user}]
    return [{"role": "user", "content": f"Be brief.\n\n{user}"}]


@each_family
def test_the_start_is_what_the_template_renders(family: Family) -> None:
    tokenizer = family_tokenizer(family)
    pieces = Transcript(tokenizer).start("Be brief.", "Goal: buy", "Page:\nhello")
    text = tokenizer.apply_chat_template(opening(family), tokenize=False, add_generation_prompt=True, **OPTIONS)
    assert [piece.segment for piece in pieces] == ["system", "goal", "observation"]
    assert "".join(piece.text for piece in pieces) == text
    ids = [token for piece in pieces for token in piece.ids]
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    assert all(tokenizer.decode(piece.ids) == piece.text for piece in pieces)
    assert pieces[0].text.endswith(("Be brief.", "Be brief.\n\n"))
    assert pieces[1].text.endswith("Goal: buy\n\n")


@each_family
def test_a_turn_after_a_closed_reply_does_not_close_it_again(family: Family) -> None:
    tokenizer = family_tokenizer(family)
    stop = tokenizer.convert_tokens_to_ids(family.eos)
    (piece,) = Transcript(tokenizer).turn("Page:\nnext", stop)
    assert piece.segment == "observation"
    assert piece.text == family.between + "Page:\nnext" + family.tail
    assert piece.ids == tokenizer.encode(piece.text, add_special_tokens=False)


@each_family
@pytest.mark.parametrize("last", [65, None])
def test_a_cut_or_missing_reply_is_closed_first(family: Family, last: int | None) -> None:
    (piece,) = Transcript(family_tokenizer(family)).turn("next", last)
    assert piece.text == family.close + family.between + "next" + family.tail


@pytest.mark.parametrize("family", FAMILIES[:2] + FAMILIES[3:4], ids=lambda family: family.name)
def test_three_turns_together_are_the_whole_conversation(family: Family) -> None:
    """Where a template does not rewrite the past, fed and sampled text together are its own rendering."""
    tokenizer = family_tokenizer(family)
    transcript = Transcript(tokenizer)
    stop = tokenizer.convert_tokens_to_ids(family.eos)
    fed = "".join(piece.text for piece in transcript.start("Be brief.", "Goal: buy", "Page:\nhello"))
    messages = opening(family)
    for n in range(3):
        fed += f"click({n})" + family.eos + transcript.turn(f"page {n}", stop)[0].text
        messages += [
            {"role": "assistant", "content": f"click({n})"},
            {"role": "user", "content": f"page {n}"},
        ]
    assert fed == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def test_templates_that_drop_old_thoughts_leave_a_session_as_it_was() -> None:
    family = next(f for f in FAMILIES if f.name == "qwen3")
    tokenizer = family_tokenizer(family)
    thinking = Transcript(tokenizer, thinking=True)
    assert thinking.start("s", "g", "o")[-1].text.endswith("<|im_start|>assistant\n")
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert thinking.turn("p", stop)[0].text == "\n<|im_start|>user\np<|im_end|>\n<|im_start|>assistant\n"


def test_harmony_channels_become_a_thought_and_a_reply() -> None:
    family = next(f for f in FAMILIES if f.name == "harmony")
    tokenizer = family_tokenizer(family)
    transcript = Transcript(tokenizer)
    raw = (
        "<|channel|>analysis<|message|>The button is e5.<|end|><|start|>assistant"
        '<|channel|>final<|message|>click("e5")<|return|>'
    )
    ids = tokenizer.encode(raw, add_special_tokens=False)
    assert transcript.reply_text(ids) == '<think>The button is e5.</think>click("e5")'
    cut = tokenizer.encode("<|channel|>analysis<|message|>The but", add_special_tokens=False)
    assert transcript.reply_text(cut) == "<think>The but</think>"
    end, back = tokenizer.convert_tokens_to_ids(["<|end|>", "<|return|>"])
    assert transcript.turn("p", end)[0].text == transcript.turn("p", back)[0].text
    assert back in transcript.stop_ids and end not in transcript.stop_ids


def test_another_stop_token_than_the_templates_still_closes_the_reply() -> None:
    tokenizer = family_tokenizer(FAMILIES[0])
    transcript = Transcript(tokenizer)
    end_of_text, im_end = tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    assert transcript.stop_ids == sorted([end_of_text, im_end])
    assert transcript.turn("p", end_of_text)[0].text.startswith("<|im_end|>\n<|im_start|>user")


def test_the_template_knows_a_stop_token_that_the_tokenizer_does_not() -> None:
    tokenizer = byte_tokenizer(("<bos>", "<im_fin>"), "<bos>", CHATML.replace("<|im_end|>", "<im_fin>"))
    assert tokenizer.convert_tokens_to_ids("<im_fin>") in Transcript(tokenizer).stop_ids


@each_family
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_page_text_never_becomes_a_special_token(family: Family, data: st.DataObject) -> None:
    tokenizer = family_tokenizer(family)
    words = st.sampled_from([*family.specials, "hi", " ", "\n", "<", "|>", "é😀"])
    page = "x" + "".join(data.draw(st.lists(words, max_size=8))) + "x"
    (piece,) = Transcript(tokenizer).turn(page, None)
    special = set(tokenizer.all_special_ids) | set(tokenizer.convert_tokens_to_ids(list(family.specials)))
    plain = Transcript(tokenizer).turn("xx", None)[0].ids
    assert [t for t in piece.ids if t in special] == [t for t in plain if t in special]
    assert tokenizer.decode(piece.ids) == piece.text


def test_no_blank_is_added_in_front_of_later_pieces() -> None:
    tokenizer = blank_prefix_tokenizer(MISTRAL)
    pieces = Transcript(tokenizer).start("Be brief.", "Goal: buy", "Page: hello")
    ids = [token for piece in pieces for token in piece.ids]
    text = "".join(piece.text for piece in pieces)
    assert tokenizer.convert_ids_to_tokens(pieces[2].ids)[:4] == list("Page")
    assert ids == tokenizer.encode(text, add_special_tokens=False)


def test_a_model_without_a_template_gets_plain_text() -> None:
    tokenizer = byte_tokenizer(("<|endoftext|>",), "<|endoftext|>", None)
    transcript = Transcript(tokenizer)
    start = "".join(piece.text for piece in transcript.start("Be brief.", "Goal: buy", "Page"))
    assert start == "Be brief.\n\n### User:\nGoal: buy\n\nPage\n\n### Assistant:\n"
    stop = tokenizer.eos_token_id
    assert transcript.turn("next", stop)[0].text == "\n\n### User:\nnext\n\n### Assistant:\n"


@pytest.mark.parametrize(
    "template", ["{{ 'nothing of it' }}", "{{ messages[0].content }}", "{{ raise_exception('no') }}"]
)
def test_a_template_that_cannot_carry_a_conversation_is_one_clear_line(template: str) -> None:
    with pytest.raises(TranscriptError, match="instruction-tuned model") as caught:
        Transcript(byte_tokenizer(("<s>",), "<s>", template))
    assert "\n" not in str(caught.value)
    assert caught.value.user_facing
