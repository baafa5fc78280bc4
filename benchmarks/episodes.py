"""Play tasks over seeds with one loaded model: who wins, in how many turns. One JSON object on standard output.

The fourteen tasks by default are the simple MiniWoB ones that README's figure is about; success is a raw reward of 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from circumstances import circumstances

from agent.loop import run_episode
from confkv.engine import Engine
from tasks.resolve import make_env

TASKS = [
    f"miniwob/{name}"
    for name in (
        "click-test", "click-button", "click-link", "enter-text", "click-checkboxes", "focus-text", "click-dialog",
        "choose-list", "click-tab", "login-user", "enter-password", "click-option", "email-inbox-nl-turk",
        "search-engine",
    )
]  # fmt: skip


def play(engine: Engine, task: str, seed: int, turns: int, new_tokens: int) -> dict[str, Any]:
    """One episode in a session of its own, as a row."""
    start = time.perf_counter()

    def count_tokens(text: str) -> int:
        return len(engine.tokenizer.encode(text, add_special_tokens=False))

    env = make_env(task, seed=seed, count_tokens=count_tokens)
    session = engine.session()
    try:
        result = run_episode(env, session, engine.tokenizer, seed=seed, max_turns=turns, max_new_tokens=new_tokens)
    finally:
        env.close()
    return {
        "task": task,
        "seed": seed,
        "won": result.raw_reward == 1,
        "raw_reward": result.raw_reward,
        "turns": result.turns,
        "stop_reason": result.stop_reason,
        "tokens_seen": session.stats.tokens_seen,
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--policy", default="full")
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--new-tokens", type=int, default=256)
    arguments = parser.parse_args()
    engine = Engine.load(arguments.model, arguments.policy)
    rows = []
    for seed in arguments.seeds:
        for task in arguments.tasks:
            rows.append(play(engine, task, seed, arguments.turns, arguments.new_tokens))
            print(rows[-1], file=sys.stderr, flush=True)
    result = circumstances("episodes", arguments.model) | {
        "policy": arguments.policy,
        "won": sum(row["won"] for row in rows),
        "played": len(rows),
        "rows": rows,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
