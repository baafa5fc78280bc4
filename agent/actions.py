"""The closed set of actions: names, parameters, how each is written and what it is for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["id", "text", "option", "flag", "key", "direction", "url", "index", "seconds"]
DIRECTIONS = ("up", "down", "left", "right")
MAX_ACTIONS = 10


@dataclass(frozen=True)
class Param:
    """One parameter: its name, what kind of value it takes, and other names that models give it."""

    name: str
    kind: Kind
    optional: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class ActionSpec:
    """One action: its parameters in order, one line of help, and a correct call to show in error messages."""

    name: str
    params: tuple[Param, ...]
    help: str
    example: str

    @property
    def signature(self) -> str:
        """``fill(id, text)``; optional parameters end in ``?``."""
        return f"{self.name}({', '.join(p.name + ('?' if p.optional else '') for p in self.params)})"

    def param(self, name: str) -> Param | None:
        """The parameter of this name, or of this alias; None when there is none."""
        lowered = name.lower()
        exact = [p for p in self.params if p.name == lowered]
        return next(iter(exact or [p for p in self.params if lowered in p.aliases]), None)


_REF = ("ref", "element", "element_id", "elementid", "bid", "uid", "target", "selector", "eid")
_ID = Param("id", "id", aliases=_REF)
_ID_OPTIONAL = Param("id", "id", optional=True, aliases=_REF)
_TEXT = Param("text", "text", aliases=("value", "content", "input", "message", "answer", "string"))
_OPTION = Param("option", "option", aliases=("options", "value", "values", "label", "text"))
_CHECKED = Param("checked", "flag", optional=True, aliases=("value", "state", "check"))
_KEY = Param("key", "key", aliases=("keys", "key_comb", "combo", "text"))
_DIRECTION = Param("direction", "direction", aliases=("dir", "to"))
_URL = Param("url", "url", aliases=("href", "link", "address"))
_URL_OPTIONAL = Param("url", "url", optional=True, aliases=("href", "link", "address"))
_INDEX = Param("index", "index", aliases=("tab", "tab_index", "page", "number", "id"))
_SECONDS = Param("seconds", "seconds", optional=True, aliases=("time", "sec", "secs", "duration"))

_ALL = (
    ActionSpec("click", (_ID,), "click a button, link, option, tab; a text box gets the cursor", 'click("e5")'),
    ActionSpec("fill", (_ID, _TEXT), "replace what a text box holds", 'fill("e5", "some text")'),
    ActionSpec("select_option", (_ID, _OPTION), "choose in a drop-down list", 'select_option("e5", "Red")'),
    ActionSpec("check", (_ID, _CHECKED), "tick a checkbox or radio; False unticks", 'check("e5")'),
    ActionSpec("hover", (_ID,), "move the mouse over it", 'hover("e5")'),
    ActionSpec("press", (_KEY, _ID_OPTIONAL), 'press a key, such as "Enter"', 'press("Enter", "e5")'),
    ActionSpec("scroll", (_DIRECTION, _ID_OPTIONAL), "up, down, left or right", 'scroll("down")'),
    ActionSpec("goto", (_URL,), "open an address", 'goto("http://site.test/page")'),
    ActionSpec("back", (), "to the previous page", "back()"),
    ActionSpec("forward", (), "to the next page of the history", "forward()"),
    ActionSpec("new_tab", (_URL_OPTIONAL,), "open a tab", "new_tab()"),
    ActionSpec("switch_tab", (_INDEX,), "show another tab", "switch_tab(1)"),
    ActionSpec("close_tab", (), "close this tab", "close_tab()"),
    ActionSpec("wait", (_SECONDS,), "let the page work", "wait(1)"),
    ActionSpec("answer", (_TEXT,), "give the final answer; this ends the task", 'answer("the answer")'),
)

ACTIONS: dict[str, ActionSpec] = {spec.name: spec for spec in _ALL}


def quote(text: str) -> str:
    """``text`` as a literal on one line, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    return repr(value)


def format_action(action: Mapping[str, Any]) -> str:
    """An action record as the call a model writes: ``fill("e5", "text")``.

    Arguments follow the order of the signature; one left out makes the later ones keywords.
    """
    args: Mapping[str, Any] = action.get("args", {})
    spec = ACTIONS.get(str(action["name"]))
    names = [p.name for p in spec.params] if spec else []
    parts: list[str] = []
    skipped = False
    for name in [*names, *(n for n in args if n not in names)]:
        if args.get(name) is None:
            skipped = True
        elif skipped or name not in names:
            parts.append(f"{name}={_literal(args[name])}")
        else:
            parts.append(_literal(args[name]))
    return f"{action['name']}({', '.join(parts)})"
