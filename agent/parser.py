"""From a model's reply to a thought and some actions. Nothing in a reply is ever evaluated as code."""

from __future__ import annotations

import ast
import difflib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from agent.actions import ACTIONS, DIRECTIONS, MAX_ACTIONS, ActionSpec, Param, format_action
from agent.official import read_official
from agent.scan import Argument, Bare, ScanError, Scanner, whole

# Names that models bring from elsewhere, and the action that is meant.
SYNONYMS = {
    "type": "fill", "input": "fill", "write": "fill", "enter": "fill", "enter_text": "fill",
    "set_value": "fill", "select": "select_option", "choose": "select_option", "tap": "click",
    "submit": "click", "press_key": "press", "key": "press", "keyboard": "press", "navigate": "goto",
    "open": "goto", "visit": "goto", "go_back": "back", "go_forward": "forward", "uncheck": "check",
    "tick": "check", "sleep": "wait", "finish": "answer", "done": "answer", "stop": "answer",
    "focus": "click", "set_focus": "click", "focus_on": "click",
    "respond": "answer", "send_msg_to_user": "answer", "tab_focus": "switch_tab",
}  # fmt: skip
_READ = 3 * MAX_ACTIONS  # how far a reply is read; what is beyond MAX_ACTIONS is told, not done
_BY_SQUASHED = {name.replace("_", ""): name for name in ACTIONS}
_HEAD = re.compile(
    r"^[ \t]*(?:>[ \t]*)?(?:[-*•][ \t]+|\d+[.)][ \t]*)?(?:\*\*)?(?:`{3}[\w+-]*[ \t]*|`{1,2})?"
    r"(?:\*\*)?(?:(?:next[ \t]+)?actions?(?:[ \t]*\d+)?(?:\*\*)?[ \t]*[:=](?:\*\*)?[ \t]*)?[`\[*]*"
    r"(?:await[ \t]+)?(?:[a-z]\w*\.)?(?P<name>[A-Za-z_]\w*)[ \t]*\(",
    re.MULTILINE | re.IGNORECASE,
)
_INLINE = re.compile(r"(?<![\w])(?P<name>[A-Za-z_]\w*)\(")
_BETWEEN = re.compile(r"[\s;,.&|`>-]*(?:and\s+then|and|then)?[\s`]*(?P<name>[A-Za-z_]\w*)[ \t]*\(")
_SPOKEN = re.compile(
    r"^[ \t`*-]*(?:action:\s*)?(?P<name>click|hover|check)[ \t]+\[?(?P<id>e\d+)\]?[ \t.`]*$", re.I | re.M
)
_LOOKS_LIKE_ARGUMENTS = re.compile(r"\s*(?:[\"'“‘\[)]|-?\d|[a-z]{1,2}\d+\s*[,)]|\w+\s*=)")
_ID = re.compile(r"[\w.:@-]+")
_COPIED_ID = re.compile(r"\[(?:ref=|id=)?([\w.:@-]+)\]")
_LOOKS_LIKE_ID = re.compile(r"\[?(?:f\d+)?e\d+\]?")


@dataclass(frozen=True)
class ParsedReply:
    """What a reply asks for.

    ``actions`` are valid records, at most ``MAX_ACTIONS``, and ``extra`` those beyond; when ``error`` is set they are
    those before the faulty call.
    """

    thought: str
    actions: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    extra: list[dict[str, Any]] = field(default_factory=list)


class _Problem(ValueError):
    """A call that cannot be carried out; ``str()`` is for the model."""


def parse_reply(text: str) -> ParsedReply:
    """Read a reply. Never raises: whatever is wrong with it is in ``error``, in words for the model."""
    if not text.strip():
        return ParsedReply("", error=f"The reply was empty. {_how()}")
    thinking, body = split_thinking(whole(text).replace("\r\n", "\n"))
    if not body.strip():
        return ParsedReply(thinking, error=f"The reply had thoughts but no action. {_how()}")
    written, rest = read_official(body)
    if written and not _own_calls(rest):
        thought = "\n".join(part for part in (thinking, body.partition("```")[0].strip()) if part)
        return ParsedReply(thought if "```" in body else thinking, written[:MAX_ACTIONS], None, written[MAX_ACTIONS:])
    actions: list[dict[str, Any]] = []
    error: str | None = None
    first, position = len(body), 0
    for name, start, opening in _calls(body):
        if start < position:
            continue
        first = min(first, start)
        position = opening
        while True:
            try:
                action, position = _read(body, name, position)
            except (_Problem, ScanError) as problem:
                error = str(problem)
                break
            actions.append(action)
            follower = _BETWEEN.match(body, position)
            if len(actions) == _READ or action["name"] == "answer" or follower is None:
                break
            if _known(follower["name"]) is None or "\n" in body[position : follower.start("name")]:
                break
            name, position = follower["name"], follower.end()
        if error or len(actions) == _READ or actions[-1]["name"] == "answer":
            break
    if not actions and error is None:
        spoken, calls = _SPOKEN.search(body), _json_calls(body)
        if calls:
            called = parse_reply(calls)
            return ParsedReply(thinking, called.actions, called.error, called.extra)
        if spoken:
            first = spoken.start()
            actions.append({"name": spoken["name"].lower(), "args": {"id": spoken["id"]}})
        else:
            error = f"No action was found in the reply. {_how()}"
    before = re.sub(r"`{3}[\w+-]*\s*$", "", body[:first]).strip()
    thought = "\n".join(part for part in (thinking, before) if part)
    extra = actions[MAX_ACTIONS:]
    return ParsedReply(thought, actions[:MAX_ACTIONS], None if extra else error, extra)


def split_thinking(text: str) -> tuple[str, str]:
    """(what was thought inside ``<think>`` blocks, the rest); an unclosed block takes all that follows it."""
    thoughts: list[str] = []
    head, tag, tail = text.partition("</think>")
    # An odd number of quotes before the tag: it stands inside an argument and is text.
    quoted = head.rpartition("\n")[2].replace('\\"', "").count('"') % 2
    if tag and "<think>" not in head and not quoted:
        thoughts.append(head.strip())  # the prompt opened the block
        text = tail

    def keep(match: re.Match[str]) -> str:
        thoughts.append(match[1].strip())
        return ""

    opened = r"(?s)^\s*<think>(.*?)(?:</think>|\Z)"
    while re.match(opened, text):
        text = re.sub(opened, keep, text, count=1)
    return "\n".join(part for part in thoughts if part), text


def _json_calls(body: str) -> str:
    """Tool calls written as JSON (``{"name": "click", "arguments": {"id": "e5"}}``) as calls, one a line."""
    calls: list[str] = []
    decoder = json.JSONDecoder()
    for match in re.finditer(r'\{\s*"(?:name|action)"', body):
        try:
            record, _ = decoder.raw_decode(body, match.start())
        except (ValueError, RecursionError):
            continue
        name = record.pop("name", None) or record.pop("action", None)
        args = next((record[key] for key in ("arguments", "args", "parameters") if key in record), record)
        if isinstance(name, str) and name.isidentifier() and isinstance(args, dict):
            calls.append(format_action({"name": name, "args": args}))
    return "\n".join(calls)


def _how() -> str:
    return "Nothing was done. After the thought, write the next action in a code block, one call per line."


def _known(name: str) -> ActionSpec | None:
    found = _BY_SQUASHED.get(name.lower().replace("_", ""))
    return ACTIONS[found] if found else None


def _own_calls(body: str) -> bool:
    """Whether a line of the reply begins with a call of ours."""
    return any(_known(match["name"]) for match in _HEAD.finditer(body))


def _calls(body: str) -> list[tuple[str, int, int]]:
    """(name, start, position after the parenthesis) of calls that begin lines, else of those in sentences."""
    heads = [
        (m["name"], m.start("name"), m.end())
        for m in _HEAD.finditer(body)
        if _known(m["name"]) or _LOOKS_LIKE_ARGUMENTS.match(body, m.end())
    ]
    if any(_known(name) for name, _, _ in heads):
        return heads
    inline = [(m["name"], m.start(), m.end()) for m in _INLINE.finditer(body) if _known(m["name"])]
    return inline or heads


def _read(body: str, name: str, position: int) -> tuple[dict[str, Any], int]:
    """The action of the call whose arguments start at ``position``, and where the call ends."""
    spec = _known(name)
    if spec is None:
        match = difflib.get_close_matches(name.lower(), [*ACTIONS, *SYNONYMS], 1, 0.5)
        near = SYNONYMS.get(match[0], match[0]) if match else None
        meant = re.match(r"\s*[\"']?((?:f\d+)?e\d+)\b", body[position : position + 20])
        example = ACTIONS[near].example.replace("e5", meant[1] if meant else "e5") if near else ""
        hint = f"Did you mean {example}?" if near else f"The actions are {', '.join(ACTIONS)}."
        raise _Problem(f"There is no action {name}. {hint}")
    scanner = Scanner(body, position)
    try:
        arguments = scanner.arguments()
    except ScanError as problem:
        raise _Problem(f"{spec.name}: {problem}. Write it as {spec.example}") from problem
    return {"name": spec.name, "args": _bind(spec, arguments, body)}, scanner.position


def _bind(spec: ActionSpec, arguments: list[Argument], body: str) -> dict[str, Any]:
    """Match arguments to parameters and convert each."""
    wrong = f"Write it as {spec.example}"
    positional: list[Argument] = []
    given: dict[str, Any] = {}
    for argument in arguments:
        param = spec.param(argument.keyword) if argument.keyword else None
        if param is None and argument.keyword and body[argument.start - 1] == "=":
            raise _Problem(f"{spec.name} takes no {argument.keyword}. {wrong}")
        if param is None:
            positional.append(_with_keyword(argument, body))
        elif param.name in given:
            raise _Problem(f"{spec.name}: {param.name} is given twice. {wrong}")
        else:
            given[param.name] = argument.value
    free = [p for p in spec.params if p.name not in given]
    if len(free) == 2 and len(positional) == 2 and free[1].optional and free[1].kind == "id":
        first, second = (_plain(a.value) for a in positional)
        if _LOOKS_LIKE_ID.fullmatch(first) and not _LOOKS_LIKE_ID.fullmatch(second):
            positional.reverse()  # press("e5", "Enter")
    if len(positional) > len(free) and free and free[-1].kind == "text":
        tail = positional[len(free) - 1 :]
        if isinstance(tail[0].value, Bare):  # unquoted text with commas
            text = body[tail[0].start : tail[-1].end].strip()
            positional = [*positional[: len(free) - 1], Argument(Bare(text), None, 0, 0)]
    if len(positional) > len(free):
        raise _Problem(f"{spec.name} takes {len(spec.params)} argument(s) and got {len(arguments)}. {wrong}")
    for param, argument in zip(free, positional, strict=False):
        given[param.name] = argument.value
    args: dict[str, Any] = {}
    for param in spec.params:
        value = given.get(param.name)
        if param.optional and (value is None or (isinstance(value, Bare) and value.text in ("None", "null", ""))):
            continue
        if value is None or (isinstance(value, Bare) and not value.text):
            raise _Problem(f"{spec.name} needs {param.name}. {wrong}")
        try:
            args[param.name] = _convert(param, value)
        except ValueError as problem:
            raise _Problem(f"{spec.name}: {problem}. {wrong}") from problem
    return args


def _with_keyword(argument: Argument, body: str) -> Argument:
    """An argument whose keyword was part of its text (``answer(Total: 5)``) with that text put back."""
    if argument.keyword is None:
        return argument
    start = body.rfind(argument.keyword, 0, argument.start)
    return Argument(Bare(body[start : argument.end].strip()), None, start, argument.end)


def _plain(value: Any) -> str:
    """The text of a quoted or bare value, or of a list of one."""
    if isinstance(value, list):
        return _plain(value[0]) if len(value) == 1 else ""
    return value.text if isinstance(value, Bare) else str(value)


def _convert(param: Param, value: Any) -> Any:
    """A written value as the type its parameter takes.

    Raises:
        ValueError: it cannot be; the message names the parameter and what it takes.
    """
    if param.kind == "option" and isinstance(value, list):
        items = [_plain(item) for item in value]
        if not items or not all(items):
            raise ValueError(f"{param.name} must be an option's text or a list of texts")
        return items
    text = _plain(value)
    if isinstance(value, list) and len(value) != 1:
        raise ValueError(f"{param.name} must be one value, not a list of {len(value)}")
    if param.kind in ("text", "option"):
        return text
    text = text.strip()
    if param.kind == "id":
        return _element_id(param, text)
    if param.kind == "flag":
        if text.lower() not in ("true", "false", "1", "0", "on", "off", "yes", "no"):
            raise ValueError(f"{param.name} must be True or False, not {text[:40]!r}")
        return text.lower() in ("true", "1", "on", "yes")
    if param.kind == "direction":
        if text.lower() not in DIRECTIONS:
            raise ValueError(f"{param.name} must be one of {', '.join(DIRECTIONS)}, not {text[:40]!r}")
        return text.lower()
    if param.kind in ("index", "seconds"):
        return _number(param, text)
    if not text:
        raise ValueError(f"{param.name} must not be empty")
    return text


def _element_id(param: Param, text: str) -> str:
    copied = _COPIED_ID.match(text)
    text = copied[1] if copied else text.removeprefix("ref=").removeprefix("id=").strip("[]#@ \"'")
    if not _ID.fullmatch(text) or text.isdigit():
        raise ValueError(f'{param.name} must be an id from the page such as "e5", not {text[:40]!r}')
    return text


def _number(param: Param, text: str) -> int | float:
    want = "a whole number" if param.kind == "index" else "a number of seconds"
    try:
        number = ast.literal_eval(text.removesuffix("s") if param.kind == "seconds" else text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
        raise ValueError(f"{param.name} must be {want}, not {text[:40]!r}")
    if param.kind == "index" and not isinstance(number, int):
        raise ValueError(f"{param.name} must be {want}, not {text[:40]!r}")
    return number
