"""Grammar-constrained actions: inside the code block of a reply only calls that fit the page can be written.

A call's name must be an action, its id a line of the newest page, and the two must go together (``fill`` takes a text
box, not a link). Text arguments are free. The model chooses; what could only come back as an error is not offered.
"""

from __future__ import annotations

import re

import regex

from agent.actions import ACTIONS, DIRECTIONS, MAX_ACTIONS, Param

_LINE = re.compile(r'^\s*([\w-]+)(?: "[^"\n]*")? \[((?:f\d+)?e\d+)\]', re.MULTILINE)
_OPEN = r"[\w+-]*[ \t]*\n"  # the rest of the line that opens the block

#: Roles (WAI-ARIA, and "clickable" for what only looks like a control) an action takes; others take any.
_ROLES = {
    "fill": {"textbox", "searchbox", "spinbutton", "combobox", "slider"},
    "select_option": {
        "combobox", "listbox", "button", "clickable", "option", "radio", "checkbox", "switch", "tab", "menuitem",
        "menuitemradio", "menuitemcheckbox", "treeitem",
    },
    "check": {
        "checkbox", "radio", "switch", "option", "menuitemcheckbox", "menuitemradio", "treeitem", "clickable",
    },
}  # fmt: skip
_TEXT = r'"(?:[^"\\\n]|\\["\\/nt])*+"'
_SOME_TEXT = r'"(?:[^"\\\n]|\\["\\/nt])++"'


class Grammar:
    """What may be written in the action block under one page.

    Args:
        page: the observation's text, with its ``role "name" [e5]`` lines.
    """

    def __init__(self, page: str) -> None:
        self._elements = {key: role for role, key in _LINE.findall(page)}
        calls = [call for name in ACTIONS if (call := self._call(name))]
        call = f"(?:{'|'.join(calls)})"
        self._block = regex.compile(rf"{_OPEN}{call}(?:\n{call}){{0,{MAX_ACTIONS - 1}}}(?:\n```\s*)?")

    def accepts(self, block: str) -> bool:
        """Whether ``block`` (what follows the opening backticks) can still become, or is, a whole block."""
        return self._block.fullmatch(block, partial=True) is not None

    def complete(self, block: str) -> bool:
        """Whether ``block`` is calls and nothing is missing but at most the closing fence."""
        return self._block.fullmatch(block.rstrip()) is not None

    def _call(self, name: str) -> str:
        """The pattern of a call; "" where the page has nothing it could act on."""
        spec = ACTIONS[name]
        ids = [key for key, role in self._elements.items() if name not in _ROLES or role in _ROLES[name]]
        if not ids and any(param.kind == "id" and not param.optional for param in spec.params):
            return ""
        written = ""
        for index, param in enumerate(spec.params):
            if param.kind == "id" and not ids:
                continue
            part = (", " if index else "") + _argument(param, ids)
            written += f"(?:{part})?" if param.optional else part
        return rf"{name}\({written}\)"


def _argument(param: Param, ids: list[str]) -> str:
    """The pattern of one argument."""
    text = _SOME_TEXT
    return {
        "id": f'"(?:{"|".join(map(re.escape, ids))})"',
        "text": _TEXT,
        "option": rf"(?:{text}|\[{text}(?:, {text}){{0,20}}\])",
        "flag": "(?:True|False)",
        "key": text,
        "direction": f'"(?:{"|".join(DIRECTIONS)})"',
        "url": text,
        "index": r"\d{1,2}",
        "seconds": r"\d{1,2}(?:\.\d)?",
    }[param.kind]


def block_of(text: str) -> str | None:
    """What ``text`` (a reply) has written after its first opening backticks; None before them or inside a thought."""
    head = text.rpartition("</think>")[2]
    _, fence, block = head.partition("```")
    return block if fence and "<think>" not in head else None
