"""BFCL's memory conversations as one chat: what the user says, what is asked afterwards, and where the answer was told.

The data and the checker are the benchmark's; playing all in one session, instead of through its memory tools, is not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from envs.tools import bfcl

SCENARIOS = ("notetaker", "healthcare", "finance", "customer", "student")  # by length, 0.8k to 18.6k tokens


@dataclass(frozen=True)
class Question:
    """``message`` is the index of the message that tells the answer, None where it cannot be located."""

    id: str
    text: str
    answers: tuple[str, ...]
    message: int | None


@dataclass(frozen=True)
class Conversation:
    """All that the user of a scenario says, in order, and the questions asked when all is said."""

    scenario: str
    role: str
    messages: tuple[str, ...]
    questions: tuple[Question, ...]


def _lines(*path: str) -> list[dict[str, Any]]:
    text = resources.files("bfcl_eval").joinpath("data", *path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().lower()


def locate(source: str, messages: tuple[str, ...]) -> int | None:
    """The first message that holds a source sentence; what is left out of the sentence is written as ``...``."""
    parts = [part for piece in re.split(r"\.{3}|…", source) if (part := _plain(piece))]
    for index, message in enumerate(messages):
        if parts and all(part in _plain(message) for part in parts):
            return index
    return None


@cache
def load(scenario: str) -> Conversation:
    """The conversation of a scenario.

    Raises:
        ToolsMissing: the benchmark's package is not installed.
    """
    bfcl.prepare()
    from bfcl_eval.constants.default_prompts import MEMORY_AGENT_SETTINGS

    told = _lines("memory_prereq_conversation", f"memory_{scenario}.json")
    messages = tuple(str(m["content"]) for entry in told for turn in entry["question"] for m in turn)
    truth = {entry["id"]: entry for entry in _lines("possible_answer", "BFCL_v4_memory.json")}
    questions = tuple(
        Question(
            entry["id"],
            str(entry["question"][0][0]["content"]),
            tuple(map(str, truth[entry["id"]]["ground_truth"])),
            locate(str(truth[entry["id"]].get("source", "")), messages),
        )
        for entry in _lines("BFCL_v4_memory.json")
        if entry["scenario"] == scenario
    )
    return Conversation(scenario, str(MEMORY_AGENT_SETTINGS[scenario]), messages, questions)


def right(reply: str, question: Question) -> bool:
    """The benchmark's own verdict: one of the answers stands in the reply."""
    from bfcl_eval.eval_checker.agentic_eval.agentic_checker import agentic_checker

    return bool(agentic_checker(reply, list(question.answers))["valid"])
