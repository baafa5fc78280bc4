"""The action grammar of WebArena and VisualWebArena (``click [12]``, ``type [12] [lamp] [1]``), read as our actions.

Numbers are element ids without their ``e``. ``type`` presses Enter after the text unless it ends in ``[0]``.
"""

from __future__ import annotations

import re
from typing import Any

_FENCE = re.compile(r"`{3}(?:[\w+-]*[ \t]*\n)?(.*?)`{3}", re.DOTALL)
_NAME = re.compile(r"[^a-z_]")  # what ends a name
_ID = r"\[\s*(?P<id>(?:f\d+)?e?\d+)\s*\]"
_ARGUMENT = r"\[(?P<text>.*)\]"
_WITH_ENTER = re.compile(r"(?P<text>.*)\]\s*\[\s*(?P<enter>[01])\s*", re.DOTALL)
#: Names that take something in brackets (or a direction), and names that stand alone.
_BRACKETED = {
    "click": _ID,
    "hover": _ID,
    "clear": _ID,
    "type": _ID + r"\s*" + _ARGUMENT,
    "press": _ARGUMENT,
    "goto": _ARGUMENT,
    "tab_focus": r"\[\s*(?P<text>\d+)\s*\]",
    "scroll": r"\[?\s*(?:direction\s*=\s*)?(?P<text>up|down)\s*\]?",
    "stop": _ARGUMENT,
}
_ALONE = {"new_tab": "new_tab", "close_tab": "close_tab", "go_back": "back", "go_forward": "forward"}


def commands(reply: str) -> list[str]:
    """What may be commands: the lines of the fenced parts of a reply, else all its lines."""
    fenced = _FENCE.findall(reply)
    return [line for part in fenced or [reply] for line in part.splitlines()]


def read_official(reply: str) -> tuple[list[dict[str, Any]], str]:
    """The actions that a reply in this grammar asks for, [] where it is not written in it, and the reply without them.

    Text between the first bracket and the last one of its line is taken as it is, brackets included.
    """
    actions: list[dict[str, Any]] = []
    rest = reply
    for line in commands(reply):
        asked = _actions(line.strip().strip("`").strip())
        if asked:
            rest = rest.replace(line, "", 1)
            actions += asked
            if asked[-1]["name"] == "answer":
                break
    return actions, rest


def _actions(line: str) -> list[dict[str, Any]]:
    name = _NAME.split(line, maxsplit=1)[0]
    if name in _ALONE and line == name:
        return [{"name": _ALONE[name], "args": {}}]
    if name == "stop" and line == name:
        return [{"name": "answer", "args": {"text": ""}}]
    if name not in _BRACKETED:
        return []
    match = re.fullmatch(rf"{name}\s*{_BRACKETED[name]}\s*\.?", line)
    return _action(name, match.groupdict()) if match else []


def _action(name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    text = given.get("text") or ""
    if name in ("click", "hover"):
        return [{"name": name, "args": {"id": _id(given["id"])}}]
    if name == "clear":
        return [{"name": "fill", "args": {"id": _id(given["id"]), "text": ""}}]
    if name == "type":
        element, enter = _id(given["id"]), True
        if with_enter := _WITH_ENTER.fullmatch(text):
            text, enter = with_enter["text"], with_enter["enter"] == "1"
        fill = {"name": "fill", "args": {"id": element, "text": text}}
        return [fill, {"name": "press", "args": {"key": "Enter", "id": element}}] if enter else [fill]
    if name == "tab_focus":
        return [{"name": "switch_tab", "args": {"index": int(text)}}]
    if name == "scroll":
        return [{"name": "scroll", "args": {"direction": text}}]
    if name == "stop":
        return [{"name": "answer", "args": {"text": text}}]
    if not text.strip():
        return []
    if name == "press":
        return [{"name": "press", "args": {"key": text.strip()}}]
    return [{"name": "goto", "args": {"url": text.strip()}}]


def _id(written: str) -> str:
    return f"e{written}" if written.isdigit() else written
