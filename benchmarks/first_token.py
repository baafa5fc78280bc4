"""Time to first token by turn: one persistent session against the conversation fed anew each turn, interleaved."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import corpus
from circumstances import circumstances

from agent.reprefill import Reprefill
from confkv.engine import Engine

SYSTEM = 400  # tokens


def first_token(session: Any, ids: list[int], reply: int) -> float:
    """Seconds from a page to the first token of its reply; the rest of the reply is sampled too."""
    start = time.perf_counter()
    session.extend(ids, "observation")
    tokens = session.generate(reply, stop_ids=[], segment="reply")
    next(tokens)
    seconds = time.perf_counter() - start
    for _ in tokens:
        pass
    return seconds


def play(engine: Engine, text: str, turns: int, observation: int, reply: int) -> dict[str, Any]:
    """Both ways, turn by turn; which goes first alternates."""
    ids: list[int] = engine.tokenizer(text, add_special_tokens=False)["input_ids"]
    needed = SYSTEM + turns * observation
    if len(ids) < needed:
        raise SystemExit(f"first_token.py: the text has {len(ids)} tokens, {needed} are needed; give a longer --text")
    ways: dict[str, Any] = {"persistent": engine.session(), "reprefill": Reprefill(engine.session)}
    for session in ways.values():
        session.extend(ids[:SYSTEM], "system")
    rows = []
    for turn in range(turns):
        begin = SYSTEM + turn * observation
        page = ids[begin : begin + observation]
        order = list(ways) if turn % 2 else list(reversed(ways))
        seconds = {name: first_token(ways[name], page, reply) for name in order}
        row = {"turn": turn + 1, **{name: round(seconds[name], 3) for name in ways}}
        rows.append(row | {"ratio": round(seconds["reprefill"] / seconds["persistent"], 2)})
        print(rows[-1], file=sys.stderr)
    late = [row["ratio"] for row in rows if row["turn"] >= 10]
    return {
        "policy": engine.policy.spec,
        "tokens_seen": ways["persistent"].stats.tokens_seen,
        "ratio_from_turn_10": {"median": statistics.median(late), "least": min(late)} if late else None,
        "turns": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--policy", default="confkv")
    parser.add_argument("--text", type=Path, help="a text file; default: the Python reference")
    parser.add_argument("--turns", type=int, default=14)
    parser.add_argument("--observation", type=int, default=1500)
    parser.add_argument("--reply", type=int, default=8)
    arguments = parser.parse_args()
    engine = Engine.load(arguments.model, arguments.policy)
    result = play(engine, corpus.read(arguments.text), arguments.turns, arguments.observation, arguments.reply)
    print(json.dumps(result | circumstances("first_token", arguments.model), indent=1))


if __name__ == "__main__":
    main()
