"""A gold episode as what a session is fed: pieces of the conversation, and between them the gold calls to be scored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.tool_transcript import ToolTranscript
from envs.records import Action
from envs.tools import RESPOND, ToolEnv
from tasks.tools.tasks import bfcl_ids, gold_tokens, world


@dataclass(frozen=True)
class Fed:
    """Token ids to feed as one segment."""

    ids: list[int]
    segment: str


@dataclass(frozen=True)
class Call:
    """Token ids of a gold call, the reply of a turn."""

    ids: list[int]


def call_text(action: Action) -> str:
    """A gold call as Hermes and Qwen write it."""
    body = json.dumps({"name": action["name"], "arguments": action["args"]}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def script(task_id: str, tokenizer: Any, *, pin_tools: bool) -> list[Fed | Call]:
    """The whole gold episode, one call a reply. A user's turn ends with the reply "Done.", which is fed, not scored."""
    env = ToolEnv(world(task_id))
    obs, info = env.reset(seed=0)
    transcript = ToolTranscript(tokenizer, info["tools"], pin_tools=pin_tools)
    found: list[Fed | Call] = [
        Fed(piece.ids, piece.segment) for piece in transcript.open(str(info["system"]), str(obs["text"]))
    ]
    for action in env.world.gold():
        text = "Done." if action["name"] == RESPOND else call_text(action)
        ids = list(tokenizer.encode(text, add_special_tokens=False))
        found.append(Fed(ids, "reply") if action["name"] == RESPOND else Call(ids))
        obs, _, over, _, _ = env.step(action)
        if over:
            break
        spoken = action["name"] == RESPOND
        pieces = transcript.turn(str(obs["text"]), None) if spoken else transcript.results([obs["text"]], None)
        found += [Fed(piece.ids, piece.segment) for piece in pieces]
    env.close()
    return found


def pick(episodes: int, below: int) -> list[str]:
    """So many ``long_context`` tasks whose gold episode has fewer tokens than ``below``, evenly from the list."""
    counts = gold_tokens()
    ids: Sequence[str] = [task for task in bfcl_ids("long_context") if counts[task] < below]
    if episodes >= len(ids):
        return list(ids)
    return [ids[index * len(ids) // episodes] for index in range(episodes)]
