"""From a page's accessibility tree to a flat list of lines a small model can read.

The tree is rendered as ``button "No" [e5]`` for what can be acted on and plain lines for what can only be read;
containers that say nothing are dropped. The id stands behind the name, as models copy what follows the words they think
of: with the id in front a 1.5B model that had just written the right name took a neighbour's id.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from envs.browser.clickables import CLOSE, MARKED, MID, OPEN, Clickable, unmarked
from envs.browser.tree import INTERACTIVE, TEXT_ENTRY, Node, clean, descendants, inner_text

ANNOUNCED = {"heading", "img", "dialog", "alertdialog", "alert", "status", "progressbar", "meter", "tooltip"}
STATES = ("checked", "disabled", "selected", "expanded", "pressed", "invalid", "required")
#: Parts of a page that get a line of their own, so that a site's own links are not taken for the page's content.
LANDMARKS = {"banner": "Site header", "navigation": "Navigation", "main": "Main part", "contentinfo": "Site footer"}
MAX_OPTIONS = 60
MAX_VALUE = 2000

#: The head of a line that has an id: role, name if there is one, id.
LINE = re.compile(r'^[\w-]+(?: "[^"]*")? \[(?P<id>e\d+)\]')


@dataclass
class Element:
    """What a line with an id stands for: ``ref`` is Playwright's, for this snapshot only."""

    id: str
    ref: str
    role: str
    name: str
    options: list[str] = field(default_factory=list)
    disabled: bool = False
    path: str = ""

    @property
    def selector(self) -> str:
        """How Playwright finds it."""
        return f"css={self.path}" if self.path else f"aria-ref={self.ref}"

    @property
    def label(self) -> str:
        """The head of its line."""
        return self.role + (f" {_quote(self.name)}" if self.name else "") + f" [{self.id}]"


def _quote(text: str) -> str:
    text = text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "..."
    return '"' + text.replace('"', "'") + '"'


class _Renderer:
    def __init__(self, nodes: list[Node], assign: Callable[[str, str], str], marked: list[Clickable]) -> None:
        self.nodes, self.assign, self.marked = nodes, assign, marked
        self.open: tuple[int, list[str]] | None = None  # a marked element under way and its text so far
        self.lines: list[str] = []
        self.part = 0  # lines up to and with the one that names the part of the page under way; 0: none
        self.elements: dict[str, Element] = {}
        self.skip: set[int] = set()

    def run(self) -> None:
        for index, node in enumerate(self.nodes):
            if index in self.skip:
                continue
            if node.role in LANDMARKS and self.open is None:
                self._landmark(node)
            if node.role == "text":
                self._text(index, node.text)
            elif node.actionable:
                self._control(index, node)
            elif node.role == "row":
                self._row(index, node)
            elif node.role in ANNOUNCED and self.open is None:
                self._announced(index, node)
            elif node.text or (node.name and not node.children):
                self._text(index, node.text or node.name)
        self._close()  # a mark that the page left open
        self._drop_empty_part()

    def _landmark(self, node: Node) -> None:
        """A line that says which part of the page begins; one that turns out empty gives way to the next."""
        self._drop_empty_part()
        self.lines.append(LANDMARKS[node.role] + (f" {_quote(unmarked(node.name))}" if node.name else "") + ":")
        self.part = len(self.lines)

    def _drop_empty_part(self) -> None:
        if self.part and self.part == len(self.lines):
            self.lines.pop()
        self.part = 0

    def _siblings(self, index: int) -> list[int]:
        parent = self.nodes[index].parent
        return self.nodes[parent].children if parent >= 0 else []

    def _text(self, index: int, text: str) -> None:
        """Plain text, unless it only repeats the label of the control beside it."""
        siblings = self._siblings(index)
        if index in siblings:
            at = siblings.index(index)
            beside = [self.nodes[siblings[i]] for i in (at - 1, at + 1) if 0 <= i < len(siblings)]
            if any(node.actionable and node.name == text for node in beside):
                return
        self._emit(text)

    def _emit(self, text: str) -> None:
        """Add text; what stands between marks becomes a line with an id."""
        for piece in re.split(f"({OPEN}\\d+{MID}|{CLOSE})", text):
            if piece.startswith(OPEN):
                self._close()
                self.open = int(piece[1:-1]), []
            elif piece == CLOSE:
                self._close()
            elif piece.strip():
                (self.open[1] if self.open else self.lines).append(piece.strip())

    def _close(self) -> None:
        if self.open is None:
            return
        (number, parts), self.open = self.open, None
        if number >= len(self.marked):
            self.lines += parts
            return
        self._marked(self.marked[number], clean(" ".join(parts)))

    def _marked(self, thing: Clickable, text: str) -> None:
        value = text if thing.role == "textbox" else ""
        name = thing.hint if thing.role == "textbox" or not text else text
        element = Element(self.assign(thing.role, name), "", thing.role, name, path=thing.path)
        self.elements[element.id] = element
        self.lines.append(element.label + (f" value {_quote(value)}" if value else ""))

    def _take(self, index: int) -> None:
        self.skip.update(descendants(self.nodes, index))

    def _state(self, node: Node) -> str:
        parts = []
        for state in STATES:
            if state in node.attrs and node.attrs[state] != "false":
                parts.append(node.attrs[state] + " " + state if node.attrs[state] == "mixed" else state)
        if "active" in node.attrs and node.role in TEXT_ENTRY:
            parts.append("focused")
        parent = self.nodes[node.parent] if node.parent >= 0 else None
        if parent and "selected" in parent.attrs and not parent.actionable and "selected" not in parts:
            parts.append("selected")
        return f" ({', '.join(parts)})" if parts else ""

    def _control(self, index: int, node: Node) -> None:
        inner = [child for child in descendants(self.nodes, index)]
        options = [self.nodes[child] for child in inner if self.nodes[child].role == "option"]
        controls = [child for child in inner if self.nodes[child].actionable]
        if node.role == "tab" and not node.name and controls:
            return  # its link says the same and can be clicked
        name, value = node.name, ""
        role_free = node.role not in INTERACTIVE
        if node.role in TEXT_ENTRY or node.role == "slider":
            value = node.text or (inner_text(self.nodes, index) if not options else "")
        elif not name and not controls:
            name = inner_text(self.nodes, index)
        elif not name:
            name = node.text
            if role_free and not name and (first := self._first_text(index)) >= 0:
                name = self.nodes[first].text
                self.skip.add(first)
            if role_free and not name:
                return  # a clickable box whose controls are listed themselves
        if not name and node.role in ("link", "button") and node.attrs.get("/url"):
            name = node.attrs["/url"]
        if not name and node.role in TEXT_ENTRY:
            name = self._label_before(index)
        role = node.role if node.role in INTERACTIVE else "clickable"
        if node.role in ("img", "heading", "cell", "row", "gridcell", "columnheader", "listitem"):
            role = node.role
        inside = [] if controls else MARKED.findall(name)
        if inside:
            name = clean(MARKED.sub(" ", name))
        name = unmarked(name)
        if inside and not name and role_free:
            self._take(index)
            self._list_marked(inside)
            return
        if not controls or node.role == "combobox":
            self._take(index)
        element = Element(self.assign(role, name), node.ref, role, name, disabled="disabled" in node.attrs)
        line = element.label
        if value and node.role != "combobox":
            line += f" value {_quote(value)}"
        if node.role == "combobox" and options:
            element.options = [option.name for option in options]
            chosen = [option.name for option in options if "selected" in option.attrs]
            line += f" value {_quote(', '.join(chosen))}" if chosen else ""
            shown = " | ".join(element.options[:MAX_OPTIONS])
            more = len(element.options) - MAX_OPTIONS
            line += f" options: {shown}" + (f" | ... {more} more" if more > 0 else "")
        elif node.role == "combobox" and value:
            line += f" value {_quote(value)}"
        elif node.role == "listbox":
            element.options = [option.name for option in options]
        line += self._state(node)
        self.elements[element.id] = element
        self.lines.append(line)
        self._list_marked(inside)

    def _label_before(self, index: int) -> str:
        """A field without a name is named by the short text just before it, whose own line goes."""
        siblings = self._siblings(index)
        at = siblings.index(index) - 1 if index in siblings else -1
        text = self.nodes[siblings[at]].text if at >= 0 and self.nodes[siblings[at]].role == "text" else ""
        if not text or len(text) > 40 or OPEN in text or not self.lines or self.lines[-1] != text:
            return ""
        self.lines.pop()
        return text.rstrip(": ")

    def _first_text(self, index: int) -> int:
        """The first descendant that is mere text outside of any control, -1 if there is none."""
        stack = list(reversed(self.nodes[index].children))
        while stack:
            child = stack.pop()
            node = self.nodes[child]
            if node.text and not node.actionable and OPEN not in node.text:
                return child
            if not node.actionable:
                stack.extend(reversed(node.children))
        return -1

    def _list_marked(self, inside: list[tuple[str, str]]) -> None:
        for number, text in inside:
            if int(number) < len(self.marked):
                self._marked(self.marked[int(number)], clean(text))

    def _row(self, index: int, node: Node) -> None:
        """A row of plain cells is one line; a row with controls shows its cells in turn."""
        if any(self.nodes[child].actionable for child in descendants(self.nodes, index)):
            return
        if OPEN in inner_text(self.nodes, index):
            return
        cells = [self.nodes[child].name or inner_text(self.nodes, child) for child in node.children]
        self._take(index)
        if any(cells):
            self.lines.append(" | ".join(cells))

    def _announced(self, index: int, node: Node) -> None:
        inner = list(descendants(self.nodes, index))
        controls = [child for child in inner if self.nodes[child].actionable]
        if any(self.nodes[child].name == node.name for child in controls):
            return  # a heading that is a link
        text = node.name or node.text
        whole = inner_text(self.nodes, index) if node.role != "img" else text
        if OPEN in whole and not controls and "dialog" not in node.role:
            self._take(index)
            self._emit(node.name if OPEN in node.name else whole)
            return
        text = unmarked(text)
        if not controls and node.role not in ("dialog", "alertdialog"):
            text = text or inner_text(self.nodes, index)
            self._take(index)
        role = "image" if node.role == "img" else node.role
        if text or "dialog" in role:
            self.lines.append(f"{role} {_quote(text)}" if text else role)


def render(
    nodes: list[Node], assign: Callable[[str, str], str], marked: list[Clickable] | None = None
) -> tuple[list[str], dict[str, Element]]:
    """Lines of the page and the elements behind their ids; ``assign(role, name)`` hands out an id a call."""
    renderer = _Renderer(nodes, assign, marked or [])
    renderer.run()
    return renderer.lines, renderer.elements
