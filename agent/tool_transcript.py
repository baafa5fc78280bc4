"""Append-only rendering of a conversation with tools: the template's own form where it has one, else JSON as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from agent.transcript import Piece, Segment, Span, Transcript

_RESULT = "zqResultMark{}qz"
_REPLY, _USER = "zqToolReplyMarkqz", "zqToolUserMarkqz"
_HOW = """\
You may call tools. Each line below is the schema of one:
{tools}

To call tools, write one or more calls, each as
<tool_call>{{"name": ..., "arguments": {{...}}}}</tool_call>
and nothing after them. What they give comes in the next message. A reply without a call goes to the user."""


class ToolTranscript(Transcript):
    """A transcript whose first prompt shows tools and whose turns may be results of calls.

    Args:
        tokenizer: a transformers tokenizer. ``tools=`` is given to its chat template; one that does not show them gets
            the schemas as JSON at the end of the system text.
        tools: function schemas in OpenAI's form.
        pin_tools: the schemas are of the system segment and stay in the cache; else they are ``text`` and compete with
            the rest.

    Attributes:
        native: whether the template shows tools itself.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Mapping[str, Any]], *, pin_tools: bool = True) -> None:
        self._tools, self._pin = [dict(tool) for tool in tools], pin_tools
        self.native = bool(getattr(tokenizer, "chat_template", None)) and self._shows_tools(tokenizer)
        super().__init__(tokenizer)
        self._glue = self._render_results() if self.native else None

    def _shows_tools(self, tokenizer: Any) -> bool:
        """Whether the template writes the tools' names, once each at least."""
        asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        try:
            text = str(tokenizer.apply_chat_template(asked, tokenize=False, tools=self._tools))
        except (jinja2.TemplateError, TypeError):
            return False
        return bool(self._tools) and all(str(tool["function"]["name"]) in text for tool in self._tools)

    def _render(self, messages: list[dict[str, str]], prompt: bool = True) -> str:
        if self.native:
            self._options["tools"] = self._tools
        return super()._render(messages, prompt)

    def open(self, system: str, message: str) -> list[Piece]:
        """The whole first prompt: the system text, the tools, and the user's first message as the goal."""
        before, middle, tail = self._opening
        docs: list[Span] = []
        if not self.native:
            written = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in self._tools)
            docs = [Span("\n\n" + _HOW.format(tools=written), False)]
        shown: Segment = "system" if self._pin else "text"
        return [
            self._piece("system", Span(before, True), Span(system.strip(), False)),
            self._piece(shown, *docs, Span(middle, True)),
            self._piece("goal", Span(message.strip(), False), Span(tail, True)),
        ]

    def results(self, contents: Sequence[str], last_token: int | None) -> list[Piece]:
        """What to feed after a reply that called tools: what each call gave, in order. For ``last_token`` see
        :meth:`Transcript.turn`."""
        if self._glue is None:
            return self.turn("\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in contents), last_token)
        close, between, join, tail = self._glue
        spans = [Span(("" if last_token in self._closers else close) + between, True)]
        quoted = between.endswith('"') and join.startswith('"')  # the template writes contents as JSON strings
        for index, text in enumerate(contents):
            spans += [Span(join, True)] if index else []
            spans.append(Span(json.dumps(text, ensure_ascii=False)[1:-1] if quoted else text, False))
        return [self._piece("observation", *spans, Span(tail, True))]

    def _render_results(self) -> tuple[str, str, str, str] | None:
        """(close of a reply, from there to the first result, between two results, from the last to the next reply).

        None where the template has no place for results after a reply: they are then told as the user's message.
        """
        first, second = _RESULT.format(0), _RESULT.format(1)
        messages = [{"role": "user", "content": _USER}, {"role": "assistant", "content": _REPLY}]
        name = str(self._tools[0]["function"]["name"])
        messages += [{"role": "tool", "content": mark, "name": name} for mark in (first, second)]
        try:
            text = self._render(messages)
        except (jinja2.TemplateError, TypeError):
            return None
        marks = (_REPLY, first, second)
        if any(text.count(mark) != 1 for mark in marks):
            return None
        at, one, two = (text.index(mark) for mark in marks)
        if not at < one < two:
            return None
        glue = text[at + len(_REPLY) : one]
        close = self._leading_special(glue)
        return close, glue[len(close) :], text[one + len(first) : two], text[two + len(second) :]
