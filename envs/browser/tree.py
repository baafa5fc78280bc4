"""Playwright's accessibility snapshot as a tree: a YAML-like text, one node a line.

It is parsed iteratively, as pages may be thousands of levels deep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

INTERACTIVE = {
    "button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox", "option", "slider",
    "spinbutton", "switch", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "treeitem",
}  # fmt: skip
TEXT_ENTRY = {"textbox", "searchbox", "spinbutton", "combobox"}

_HEAD = re.compile(r'^(?P<role>[A-Za-z][\w-]*)(?: (?P<name>"(?:[^"\\]|\\.)*"))?(?P<attrs>(?: \[[^\]]*\])*)$')
_ATTR = re.compile(r"\[([\w-]+)(?:=([^\]]*))?\]")
_PLAIN = re.compile(r'^(?P<head>[A-Za-z][\w-]*(?: "(?:[^"\\]|\\.)*")?(?: \[[^\]]*\])*)(?P<rest>:.*)?$')
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]+")


@dataclass
class Node:
    """One node of the snapshot; ``parent`` is an index into the node list (-1: the root)."""

    role: str
    name: str = ""
    text: str = ""
    attrs: dict[str, str] = field(default_factory=dict)
    parent: int = -1
    children: list[int] = field(default_factory=list)

    @property
    def ref(self) -> str:
        return self.attrs.get("ref", "")

    @property
    def actionable(self) -> bool:
        """Whether it gets an id: a control, or anything the page shows a hand over."""
        return bool(self.ref) and (self.role in INTERACTIVE or "cursor" in self.attrs)


def clean(text: str) -> str:
    """One line, no control characters or lone surrogates, single spaces."""
    return " ".join(_CONTROL.sub(" ", text).split())


def first_line(message: str) -> str:
    """The first line of what a browser says of an error."""
    return clean(message.splitlines()[0]) if message else "unknown browser error"


def _scalar(raw: str) -> str:
    raw = raw.strip()
    if raw.startswith('"'):
        try:
            return str(json.loads(raw))
        except ValueError:
            return raw.strip('"')
    if raw.startswith("'") and raw.endswith("'") and len(raw) > 1:
        return raw[1:-1].replace("''", "'")
    return raw


def _split(body: str) -> tuple[str, str]:
    """A line without its dash -> (head, value)."""
    if body.startswith("'"):
        end = 1
        while end < len(body):
            if body[end] == "'":
                if body[end + 1 : end + 2] != "'":
                    break
                end += 1
            end += 1
        head, rest = body[1:end].replace("''", "'"), body[end + 1 :]
    elif body.startswith('"'):
        decoder = json.JSONDecoder()
        try:
            head, end = decoder.raw_decode(body)
            rest = body[end:]
        except ValueError:
            head, rest = body, ""
    elif match := _PLAIN.match(body):
        head, rest = match["head"], match["rest"] or ""
    else:
        head, _, rest = body.partition(": ")
        rest = ":" + rest if rest else ""
    return str(head), _scalar(rest[1:]) if rest.startswith(":") else ""


def parse(snapshot: str) -> list[Node]:
    """All nodes in document order. ``text`` nodes and bare values become nodes of role "text"."""
    nodes: list[Node] = []
    stack: list[tuple[int, int]] = []  # (indent, index)
    for line in snapshot.splitlines():
        stripped = line.lstrip(" ")
        if not stripped.startswith("- "):
            continue
        indent = len(line) - len(stripped)
        while stack and stack[-1][0] >= indent:
            stack.pop()
        parent = stack[-1][1] if stack else -1
        head, value = _split(stripped[2:])
        if head.startswith("/"):
            if parent >= 0:
                nodes[parent].attrs[head] = clean(value)
            continue
        match = _HEAD.match(head)
        if match is None:
            node = Node("text", text=clean(f"{head}: {value}" if value else head))
        else:
            name = clean(json.loads(match["name"])) if match["name"] else ""
            attrs = {key: val for key, val in _ATTR.findall(match["attrs"])}
            node = Node(match["role"], name, clean(value), attrs)
        node.parent = parent
        nodes.append(node)
        if parent >= 0:
            nodes[parent].children.append(len(nodes) - 1)
        stack.append((indent, len(nodes) - 1))
    return nodes


def descendants(nodes: list[Node], index: int) -> Iterable[int]:
    stack = list(reversed(nodes[index].children))
    while stack:
        child = stack.pop()
        yield child
        stack.extend(reversed(nodes[child].children))


def inner_text(nodes: list[Node], index: int) -> str:
    parts = [nodes[index].text]
    for child in descendants(nodes, index):
        parts += [nodes[child].name, nodes[child].text]
    return clean(" ".join(part for part in parts if part))


def nameless(nodes: list[Node]) -> list[Node]:
    """Controls other than fields and choices that neither have a name nor hold any text."""
    silent = INTERACTIVE - TEXT_ENTRY - {"checkbox", "radio", "switch", "slider", "listbox", "option"}
    return [
        node
        for index, node in enumerate(nodes)
        if node.actionable
        and not node.name
        and (node.role in silent or node.role not in INTERACTIVE)
        and not node.attrs.get("/url")
        and not inner_text(nodes, index)
        and not any(nodes[child].actionable for child in descendants(nodes, index))
    ]
