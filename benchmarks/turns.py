"""A long episode: turns of real text as observations, one session. Peak KV and time by turn."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import corpus
from circumstances import circumstances

from confkv.engine import Engine


def play(engine: Engine, text: str, turns: int, observation: int, reply: int) -> dict[str, Any]:
    """Feed ``turns`` observations of ``observation`` tokens and sample ``reply`` tokens after each."""
    ids: list[int] = engine.tokenizer(text, add_special_tokens=False)["input_ids"]
    needed = 400 + turns * observation
    if len(ids) < needed:
        raise SystemExit(f"turns.py: the text has {len(ids)} tokens, {needed} are needed; give a longer --text")
    session = engine.session()
    session.extend(ids[:400], "system")
    rows = []
    for turn in range(turns):
        start = time.perf_counter()
        begin = 400 + turn * observation
        session.extend(ids[begin : begin + observation], "observation")
        fed = time.perf_counter()
        for _ in session.generate(reply, stop_ids=[], segment="reply"):
            pass
        done = time.perf_counter()
        rows.append(
            {
                "turn": turn + 1,
                "seconds": round(done - start, 3),
                "prefill_seconds": round(fed - start, 3),
                "bytes": session.stats.bytes,
                "kept": session.stats.kept_per_layer[0],
            }
        )
        print(rows[-1], file=sys.stderr)
    stats = session.stats
    return {
        "policy": engine.policy.spec,
        "tokens_seen": stats.tokens_seen,
        "peak_bytes": stats.peak_bytes,
        "mean_bytes": round(stats.mean_bytes),
        "full_bytes": stats.full_bytes,
        "full_over_peak": round(stats.full_bytes / stats.peak_bytes, 2),
        "rebases": stats.rebases,
        "last_turn_over_third": round(rows[-1]["seconds"] / rows[2]["seconds"], 3),
        "seconds": stats.seconds,
        "turns": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--policy", default="confkv")
    parser.add_argument("--text", type=Path, help="a text file; default: the Python reference")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--observation", type=int, default=1500)
    parser.add_argument("--reply", type=int, default=32)
    arguments = parser.parse_args()
    engine = Engine.load(arguments.model, arguments.policy)
    result = play(engine, corpus.read(arguments.text), arguments.turns, arguments.observation, arguments.reply)
    print(json.dumps(result | circumstances("turns", arguments.model), indent=1))


if __name__ == "__main__":
    main()
