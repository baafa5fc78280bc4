"""The verbs of a script: find on the page, click, fill, choose, read.

A script is a generator: it yields actions and is sent what is seen after each. It returns the answer.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from envs.records import Action, Observation
from tasks.grid.agents import element

Step = Generator[Action, Observation, None]
Read = Generator[Action, Observation, str]
Lines = Generator[Action, Observation, list[str]]
Script = Generator[Action, Observation, str]

TRIES = 3
SLOW = "did not react within"  # what a busy machine makes the browser say
MORE = "are cut; scroll down to see them)"
ABOVE = re.compile(r"^\(lines 1 to (\d+) of \d+ are above")
HEADER = re.compile(r"^(tabs|url|title|dialog): ")


class Stuck(Exception):
    """The page does not have what the script looks for."""


class Hand:
    """What is seen now, and what can be done with it."""

    def __init__(self) -> None:
        self.seen: Observation = {"goal": "", "text": "", "url": "", "title": "", "error": "", "effect": ""}

    @property
    def captions(self) -> list[str]:
        """What the task's own pictures show, as the goal says it."""
        return re.findall(r"^Image \d+: (.*)$", self.seen["goal"], re.M)

    def do(self, name: str, **arguments: Any) -> Step:
        """One action; tried again where the browser was too slow for it, as it has not happened then.

        Raises:
            Stuck: it did not happen.
        """
        for _ in range(TRIES):
            self.seen = yield {"name": name, "args": arguments}
            if not self.seen["error"]:
                return
            if SLOW not in self.seen["error"]:
                break
        raise Stuck(f"{name}({arguments}): {self.seen['error']}")

    def _lines(self) -> list[str]:
        return self.seen["text"].splitlines()

    def _here(self, role: str, name: str, after: str) -> str:
        """The id of a control in the part of the page that is shown, "" if it is not there."""
        lines = self._lines()
        if after:
            at = next((nth for nth, line in enumerate(lines) if line == after or line.startswith(after + " [")), None)
            lines = lines[at + 1 :] if at is not None else []
        try:
            return element("\n".join(lines), role, name.replace('"', "'"))
        except LookupError:
            return ""

    def find(self, role: str, name: str, after: str = "") -> Read:
        """The id of a control, scrolled to if need be: down to the end, then up again.

        Args:
            after: only what stands below this line.

        Raises:
            Stuck: the page has no such control.
        """
        for direction, sign in (("down", MORE), ("up", "are above; scroll up")):
            while True:
                if found := self._here(role, name, after):
                    return found
                if sign not in self.seen["text"]:
                    break
                yield from self.do("scroll", direction=direction)
        raise Stuck(f"{role} {name!r} is not on {self.seen['url']}")

    def click(self, role: str, name: str, after: str = "") -> Step:
        """Click a control."""
        target = yield from self.find(role, name, after)
        yield from self.do("click", id=target)

    def fill(self, name: str, text: str, role: str = "textbox") -> Step:
        """Fill a text field."""
        target = yield from self.find(role, name)
        yield from self.do("fill", id=target, text=text)

    def choose(self, name: str, option: str) -> Step:
        """Choose from a drop-down list."""
        target = yield from self.find("combobox", name)
        yield from self.do("select_option", id=target, option=option)

    def search(self, box: str, words: str) -> Step:
        """Search the site."""
        yield from self.fill(box, words, role="searchbox")
        yield from self.click("button", "Search")

    def read(self) -> Lines:
        """All lines of the page, from wherever it is scrolled to."""
        while "are above; scroll up" in self.seen["text"]:
            yield from self.do("scroll", direction="up")
        lines: dict[int, str] = {}
        while True:
            start = 0
            shown = [line for line in self._lines() if not HEADER.match(line)]
            if shown and (above := ABOVE.match(shown[0])):
                start, shown = int(above[1]), shown[1:]
            more = bool(shown) and shown[-1].endswith(MORE)
            for nth, line in enumerate(shown[:-1] if more else shown):
                lines[start + nth] = line
            if not more:
                return [lines[nth] for nth in sorted(lines)]
            yield from self.do("scroll", direction="down")

    def match(self, pattern: str) -> Read:
        """The first group of the first line that the pattern matches.

        Raises:
            Stuck: no line does.
        """
        for line in (yield from self.read()):
            if found := re.search(pattern, line):
                return found[1]
        raise Stuck(f"no line matches {pattern!r} on {self.seen['url']}")

    def after(self, line: str, pattern: str) -> Read:
        """The first group of the first match below a line.

        Raises:
            Stuck: the line is not there, or nothing matches below it.
        """
        below = False
        for each in (yield from self.read()):
            if below and (found := re.search(pattern, each)):
                return found[1]
            below = below or each == line
        raise Stuck(f"nothing matches {pattern!r} below {line!r} on {self.seen['url']}")


def link(line: str) -> str:
    """The name of a link's line, "" if it is none."""
    found = re.match(r'link "(.*)" \[e\d+\]', line)
    return found[1] if found else ""
