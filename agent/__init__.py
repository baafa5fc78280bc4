"""The agent: action grammar, append-only transcript, prompts and the episode loop; it knows no suite."""

from agent.actions import ACTIONS
from agent.loop import run_episode
from agent.parser import ParsedReply, parse_reply
from agent.records import ActionRecord, EpisodeResult, TurnRecord
from agent.transcript import Piece, Transcript

__all__ = [
    "ACTIONS",
    "ActionRecord",
    "EpisodeResult",
    "ParsedReply",
    "Piece",
    "Transcript",
    "TurnRecord",
    "parse_reply",
    "run_episode",
]
