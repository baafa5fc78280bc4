"""Calls of tools as models write them, and replies that are none."""

from __future__ import annotations

import json

import pytest

from agent.actions import MAX_ACTIONS
from agent.tool_calls import MAX_READ, parse_tool_calls

CALL = {"name": "cd", "args": {"folder": "document"}}
WRITTEN = '{"name": "cd", "arguments": {"folder": "document"}}'


@pytest.mark.parametrize(
    "reply",
    [
        f"<tool_call>\n{WRITTEN}\n</tool_call>",
        f"<tool_call>{WRITTEN}",
        f"I go there.\n<tool_call>\n{WRITTEN}\n</tool_call>",
        f"[TOOL_CALLS] [{WRITTEN}]",
        WRITTEN,
        f"[{WRITTEN}]",
        WRITTEN.replace("arguments", "parameters"),
        f"Here:\n```json\n{WRITTEN}\n```",
        f'{{"type": "function", "function": {WRITTEN}}}',
        '{"name": "cd", "arguments": "{\\"folder\\": \\"document\\"}"}',
        f"<think>Where is it?</think>\n<tool_call>\n{WRITTEN}\n</tool_call>",
    ],
)
def test_every_known_form_is_read(reply):
    parsed = parse_tool_calls(reply)
    assert (parsed.actions, parsed.error) == ([CALL], None)


def test_parallel_calls_keep_their_order_and_what_is_said_is_the_thought():
    second = '{"name": "ls", "arguments": {}}'
    parsed = parse_tool_calls(f"First cd.\n<tool_call>{WRITTEN}</tool_call>\n<tool_call>{second}</tool_call>")
    assert parsed.actions == [CALL, {"name": "ls", "args": {}}] and parsed.thought == "First cd."
    assert parse_tool_calls(f"{WRITTEN}\n{second}").actions == parsed.actions
    assert parse_tool_calls(f"[{WRITTEN}, {second}]").actions == parsed.actions


def test_more_calls_than_a_turn_runs_are_told_apart():
    parsed = parse_tool_calls(f"[{', '.join([WRITTEN] * (MAX_ACTIONS + 2))}]")
    assert (len(parsed.actions), len(parsed.extra), parsed.error) == (MAX_ACTIONS, 2, None)


@pytest.mark.parametrize(
    "reply", ["All done.", "", "It holds {'a': 1} and f(x).", '```json\n{"total": 5}\n```', "Use [1] or {}."]
)
def test_a_reply_without_calls_goes_to_the_user(reply):
    assert parse_tool_calls(reply).actions == [{"name": "respond", "args": {"text": reply}}]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ('<tool_call>{"name": "cd", "arguments": {"folder": }}</tool_call>', "not valid JSON"),
        ("<tool_call>cd(folder='document')</tool_call>", "not valid JSON"),
        ("<tool_call></tool_call>", "empty"),
        ('<tool_call>{"arguments": {}}</tool_call>', "with a name"),
        ('<tool_call>{"name": "cd", "arguments": ["document"]}</tool_call>', "must be a JSON object"),
        ('<tool_call>{"name": "cd", "arguments": "folder"}</tool_call>', "not valid JSON"),
        ('<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', "not valid JSON"),
        ('<tool_call>{"name": "respond", "arguments": {}}</tool_call>', "no tool respond"),
        ("<tool_call>" + "[" * 50_000 + "</tool_call>", "not valid JSON"),
        (f'<tool_call>{{"name": "cd", "arguments": {{"n": {"9" * 5000}}}}}</tool_call>', "too large"),
        ("<tool_call>" + json.dumps({"name": "cd", "arguments": {"folder": "x" * MAX_READ}}), "too long"),
        ('{"name": "cd", "arguments": {"folder": "docu', "not valid JSON"),
    ],
)
def test_a_faulty_call_comes_back_in_words(reply, said):
    parsed = parse_tool_calls(reply)
    assert parsed.actions == [] and said in parsed.error and len(parsed.error) < 400


def test_calls_before_a_faulty_one_are_kept():
    parsed = parse_tool_calls(f'<tool_call>{WRITTEN}</tool_call><tool_call>{{"name"}}</tool_call>')
    assert parsed.actions == [CALL] and "not valid JSON" in parsed.error
