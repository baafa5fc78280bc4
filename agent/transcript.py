"""Append-only chat rendering for any chat template: each turn yields only what the session does not hold yet.

The text between a reply and the next one (close of the reply, header of the user turn, generation prompt) is
found by rendering the template with marker contents and cutting at the markers. Nothing already fed is
rendered again, so templates that rewrite the past (dropping old think blocks, moving the system text) cannot
break a running session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jinja2

Segment = Literal["system", "goal", "observation", "text"]

_SYSTEM, _USER, _REPLY = "zqSystemMarkqz", "zqUserMark{}qz", "zqReplyMark{}qz"
_PLAIN_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }}\n\n"
    "{% elif m['role'] == 'user' %}### User:\n{{ m['content'] }}\n\n### Assistant:\n"
    "{% else %}{{ m['content'] }}\n\n{% endif %}{% endfor %}"
)
# Tokens that end a reply in the known families, used where the vocabulary has them.
_ENDERS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<eos>",
    "</s>", "<|return|>", "<|call|>", "<|EOT|>", "<|end▁of▁sentence|>",
)  # fmt: skip
_HARMONY = re.compile(r"<\|channel\|>(\w+)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>(.*?)(?=<\|\w+\|>|\Z)", re.DOTALL)


class TranscriptError(ValueError):
    """The model's chat template cannot carry a conversation; ``str(error)`` is one line."""

    user_facing = True


class Piece(NamedTuple):
    """Token ids to feed as one segment, and the text they stand for."""

    ids: list[int]
    segment: Segment
    text: str


class Span(NamedTuple):
    """A run of text; markup may hold special tokens, content (pages, goals) never becomes one."""

    text: str
    markup: bool


class Transcript:
    """Renders a conversation piece by piece for one session.

    Args:
        tokenizer: a transformers tokenizer; one without a chat template gets a plain-text form.
        thinking: let templates with a thinking switch (Qwen3, gpt-oss) think at length.

    Raises:
        TranscriptError: the chat template does not show the contents of messages.
    """

    def __init__(self, tokenizer: Any, *, thinking: bool = False) -> None:
        self._tokenizer = tokenizer
        self._options: dict[str, Any] = {} if thinking else {"enable_thinking": False, "reasoning_effort": "low"}
        if not getattr(tokenizer, "chat_template", None):
            self._options["chat_template"] = _PLAIN_TEMPLATE
        added = tokenizer.added_tokens_decoder
        self._special = {token.content: token_id for token_id, token in added.items() if token.special}
        long = sorted((text for text in self._special if len(text) > 1), key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, long)) or r"(?!)")
        first = tokenizer.convert_ids_to_tokens(tokenizer.encode("a", add_special_tokens=False))[:1]
        # sentencepiece puts a blank before every text it is given
        self._adds_space = bool(first) and str(first[0]).startswith("▁")
        self._opening = self._render_opening()
        self._close, self._between, self._tail = self._render_between()
        last = self._leading_special(self._after_last_reply())
        closers = {self._special[text.strip()] for text in (self._close, last) if text}
        self._closers = frozenset(closers)
        stops = {self._special[text] for text in (*_ENDERS, last.strip()) if text in self._special}
        if tokenizer.eos_token_id is not None:
            stops.add(int(tokenizer.eos_token_id))
        self.stop_ids: list[int] = sorted(stops)
        """Tokens that end a reply: the tokenizer's, the template's and those of the known families it has."""

    def start(self, system: str, goal: str, observation: str) -> list[Piece]:
        """The whole first prompt as the segments system, goal and observation (to where the reply begins)."""
        before, middle, tail = self._opening
        kept = len(middle) - len(middle.lstrip("\n"))
        lead, header = middle[:kept], middle[kept:]
        return [
            self._piece("system", Span(before, True), Span(system.strip(), False), Span(lead, True)),
            self._piece("goal", Span(header, True), Span(goal.strip() + "\n\n", False)),
            self._piece("observation", Span(observation.strip(), False), Span(tail, True)),
        ]

    def turn(self, observation: str, last_token: int | None) -> list[Piece]:
        """What to feed after a reply.

        Args:
            observation: the next user message.
            last_token: the last token sampled, which the session already holds; None if it has none.
                When it closed the reply it is not repeated; otherwise the reply was cut and is closed here.
        """
        close = "" if last_token in self._closers else self._close
        glue = Span(close + self._between, True)
        return [self._piece("observation", glue, Span(observation.strip(), False), Span(self._tail, True))]

    def reply_text(self, ids: Sequence[int]) -> str:
        """Sampled tokens as text without special tokens; channels but the final one become a think block."""
        raw = str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
        if "<|channel|>" in raw and "<|message|>" in raw:
            parts = _HARMONY.findall(raw)
            thought = "\n".join(text.strip() for channel, text in parts if channel != "final")
            final = "".join(text for channel, text in parts if channel == "final")
            return (f"<think>{thought}</think>" if thought else "") + final
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _render(self, messages: list[dict[str, str]], prompt: bool = True) -> str:
        return str(
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **self._options)
        )

    def _render_opening(self) -> tuple[str, str, str]:
        """(before the system text, up to the user's, after); folded if there is no system role."""
        user = _USER.format(0)
        with_system = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": user}]
        folded = [{"role": "user", "content": f"{_SYSTEM}\n\n{user}"}]
        for messages in (with_system, folded):
            try:
                text = self._render(messages)
            except jinja2.TemplateError:
                continue
            at, end = text.find(_SYSTEM), text.find(user)
            if 0 <= at < end and text.count(_SYSTEM) == text.count(user) == 1:
                return text[:at], text[at + len(_SYSTEM) : end], text[end + len(user) :]
        raise TranscriptError(
            "the tokenizer's chat template does not render a user message; use an instruction-tuned model"
        )

    def _render_between(self) -> tuple[str, str, str]:
        """(close of a reply, from there to the next user text, from there to where the next reply begins)."""
        messages: list[dict[str, str]] = []
        for n in range(3):
            messages.append({"role": "user", "content": _USER.format(n)})
            messages.append({"role": "assistant", "content": _REPLY.format(n)})
        text = self._render(messages[:-1])
        reply, user = _REPLY.format(1), _USER.format(2)
        at, end = text.find(reply), text.find(user)
        if not 0 <= at < end:
            raise TranscriptError(
                "the tokenizer's chat template does not render several turns; use an instruction-tuned model"
            )
        glue = text[at + len(reply) : end]
        close = self._leading_special(glue)
        return close, glue[len(close) :], text[end + len(user) :]

    def _leading_special(self, text: str) -> str:
        """The special token that opens ``text``, with the blanks before it; "" if there is none."""
        match = self._special_pattern.match(text, len(text) - len(text.lstrip()))
        return text[: match.end()] if match else ""

    def _after_last_reply(self) -> str:
        """What the template writes after the last reply of all (gpt-oss: another token than between)."""
        reply = _REPLY.format(0)
        messages = [{"role": "user", "content": _USER.format(0)}, {"role": "assistant", "content": reply}]
        return self._render(messages, prompt=False).partition(reply)[2]

    def _piece(self, segment: Segment, *spans: Span) -> Piece:
        text = "".join(span.text for span in spans)
        return Piece(self._encode(spans), segment, text)

    def _encode(self, spans: Sequence[Span]) -> list[int]:
        """Ids of the spans' text; a special token written in content is cut in two and stays plain text."""
        text = "".join(span.text for span in spans)
        markup: list[tuple[int, int]] = []
        at = 0
        for span in spans:
            if span.markup:
                markup.append((at, at + len(span.text)))
            at += len(span.text)
        cuts, position = [0], 0
        while match := self._special_pattern.search(text, position):
            if any(start <= match.start() and match.end() <= end for start, end in markup):
                position = match.end()
            else:
                position = match.start() + 1
                cuts.append(position)
        cuts.append(len(text))
        ids: list[int] = []
        for start, end in pairwise(cuts):
            ids += self._tokenize(text[start:end])
        return ids

    def _tokenize(self, text: str) -> list[int]:
        if not text:
            return []
        if self._adds_space and not self._special_pattern.match(text):
            anchor = list(self._tokenizer.encode("\n", add_special_tokens=False))
            whole = list(self._tokenizer.encode("\n" + text, add_special_tokens=False))
            if whole[: len(anchor)] == anchor:
                return whole[len(anchor) :]
        return list(self._tokenizer.encode(text, add_special_tokens=False))
