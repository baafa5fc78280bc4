"""From a model's reply to calls of tools, read as JSON. Nothing in a reply is ever evaluated as code.

Read are the forms that models are trained on: ``<tool_call>{...}</tool_call>`` (Hermes, Qwen), ``[TOOL_CALLS] [...]``
(Mistral), a bare object or list, with ``parameters`` for ``arguments`` (Llama 3), the same in a code block, and
OpenAI's ``{"type": "function", "function": {...}}``.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from agent.actions import MAX_ACTIONS
from agent.parser import ParsedReply, split_thinking

#: The action that hands the turn back to the user, with what the reply says.
RESPOND = "respond"
MAX_READ = 100_000  # characters of a reply that are read as calls
_HOW = 'Write each call as <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?[ \t]*\n(\s*[\[{].*?)(?:```|\Z)", re.DOTALL)
_MARKED = re.compile(r"(?:\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call\|>)(.*)\Z", re.DOTALL)
_BARE = re.compile(r'\A\s*(?:\[\s*)?\{\s*"(?:name|function|type|arguments|parameters|tool)".*\Z', re.DOTALL)


class _Problem(ValueError):
    """Calls that cannot be read; ``str()`` is for the model."""


def parse_tool_calls(text: str) -> ParsedReply:
    """Read a reply: its calls, or, where it has none, :data:`RESPOND` with its text. Never raises.

    With ``error`` set, ``actions`` are the calls before the faulty one.
    """
    thinking, body = split_thinking(text)
    written, said = _written(body)
    if not written:
        return ParsedReply(thinking, [{"name": RESPOND, "args": {"text": body.strip()}}])
    thought = "\n".join(part for part in (thinking, said.strip()) if part)
    actions: list[dict[str, Any]] = []
    error: str | None = None
    try:
        if len(body) > MAX_READ:
            raise _Problem(f"The reply is too long: calls may take {MAX_READ:,} characters.")
        for block in written:
            for value in _values(block):
                actions.append(_call(value))
    except _Problem as problem:
        error = f"{problem} {_HOW}"
    extra = actions[MAX_ACTIONS:]
    return ParsedReply(thought, actions[:MAX_ACTIONS], None if extra else error, extra)


def _written(body: str) -> tuple[list[str], str]:
    """(the parts of a reply that are calls, what it says beside them)."""
    for pattern in (_TAGGED, _MARKED, _FENCED):
        found = [match for match in pattern.finditer(body) if pattern is not _FENCED or _BARE.match(match[1])]
        if found:
            return [match[1] for match in found], body[: found[0].start()]
    return ([body], "") if _BARE.match(body) else ([], body)


def _values(block: str) -> list[Any]:
    """The JSON values written one after the other; lists are taken apart."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    values: list[Any] = []
    position = 0
    while block[position:].strip(" \t\r\n;,"):
        position += len(block[position:]) - len(block[position:].lstrip(" \t\r\n;,"))
        try:
            value, position = decoder.raw_decode(block, position)
        except json.JSONDecodeError as error:
            near = " ".join(block[max(0, error.pos - 20) : error.pos + 20].split())
            raise _Problem(
                f"The call is not valid JSON ({error.msg}, near {near!r}). Nothing of it was done."
            ) from error
        except (ValueError, RecursionError) as error:
            raise _Problem("The call is not valid JSON (a number or the nesting is too large).") from error
        values += value if isinstance(value, list) else [value]
    if not values:
        raise _Problem("The call is empty.")
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _call(value: Any) -> dict[str, Any]:
    """A call as an action."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _Problem("A call is a JSON object with a name.")
    name = value["name"]
    if name == RESPOND:
        raise _Problem(f"There is no tool {RESPOND}; to speak to the user, write a message without a call.")
    args: Any = next((value[key] for key in ("arguments", "parameters", "args") if key in value), {})
    if isinstance(args, str):  # OpenAI's own form: the arguments are JSON in a string
        try:
            args = json.loads(args or "{}", parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise _Problem(f"The arguments of {name[:60]} are not valid JSON.") from error
    if args is None:
        args = {}
    if not isinstance(args, dict):
        raise _Problem(f"The arguments of {name[:60]} must be a JSON object.")
    return {"name": name, "args": args}
