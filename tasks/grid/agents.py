"""Agents without a model: one that does nothing, one that clicks about, and what an oracle has to offer."""

from __future__ import annotations

import random
import re
from typing import Protocol

from envs.records import Action, Observation

_ELEMENT = re.compile(r'^(?P<role>[\w-]+)(?: "(?P<name>[^"]*)")? \[(?P<id>e\d+)\](?P<rest>.*)$')
_WORD = re.compile(r"\w[\w.,'-]*")
_WRITABLE = {"textbox", "searchbox", "spinbutton"}
_TICKABLE = {"checkbox", "radio", "switch"}
_STOP = 0.1  # chance to answer at each step: ten steps on average


class ScriptedAgent(Protocol):
    """Plays an episode without a model; the action named ``answer`` ends it."""

    def act(self, observation: Observation) -> Action:
        """The next action on what is seen."""


def action(name: str, **args: object) -> Action:
    """An action record."""
    return {"name": name, "args": dict(args)}


def element(text: str, role: str, name: str) -> str:
    """The id of the first line of a page with this role and name.

    Raises:
        LookupError: no line has them; the message names what was looked for.
    """
    for line in text.splitlines():
        found = _ELEMENT.match(line)
        if found and found["role"] == role and (found["name"] or "") == name:
            return found["id"]
    raise LookupError(f'the page has no {role} "{name}"')


class NoopAgent:
    """Answers nothing, at once: what a suite gives away for free."""

    def act(self, observation: Observation) -> Action:
        return action("answer", text="")


class RandomAgent:
    """Valid actions drawn from the page's ids and words: what a suite gives away to luck. Seeded."""

    def __init__(self, task: str, seed: int) -> None:
        self._dice = random.Random(f"{task}-{seed}")

    def act(self, observation: Observation) -> Action:
        lines = observation["text"].splitlines()
        found = [match for line in lines if (match := _ELEMENT.match(line)) and "disabled" not in match["rest"]]
        words = _WORD.findall(observation["text"]) or ["word"]
        if self._dice.random() < _STOP:
            return action("answer", text=self._dice.choice(words))
        if not found or self._dice.random() < 0.1:
            return self._dice.choice([action("back"), action("scroll", direction="down"), action("wait", seconds=0.1)])
        chosen = self._dice.choice(found)
        if chosen["role"] in _WRITABLE:
            return action("fill", id=chosen["id"], text=self._dice.choice(words))
        if chosen["role"] in _TICKABLE:
            return action("check", id=chosen["id"])
        options = chosen["rest"].partition("options: ")[2].split(" | ") if "options: " in chosen["rest"] else []
        if options:
            return action("select_option", id=chosen["id"], option=self._dice.choice(options))
        return action("click", id=chosen["id"])
