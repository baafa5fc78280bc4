"""Decode step times, side by side and interleaved.

Two questions, each answered as a ratio inside one run:

* ``held``: what does ``full`` cost against transformers' own DynamicCache with sdpa, at a given number of tokens held?
* ``generated``: how much quicker is ``confkv`` than ``full`` (and DynamicCache) after N generated tokens, and what
  share of its step is management?

Long contexts are filled by prefill, not by decoding; the cache ends up the same size. Weights are real.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from circumstances import circumstances
from transformers import DynamicCache

from confkv import models
from confkv.engine import Engine
from confkv.session import Session

Step = Callable[[], None]


def filled_session(engine: Engine, count: int, vocabulary: int) -> Session:
    """A session of an engine that has seen ``count`` tokens of a fixed pseudo-random text."""
    session = engine.session()
    ids = torch.randint(100, vocabulary - 100, (count,), generator=torch.Generator().manual_seed(1)).tolist()
    session.extend(ids)
    return session


def session_step(session: Session) -> Step:
    """One decode step through the public interface."""
    stream = session.generate(max_new_tokens=10**9, stop_ids=[])
    next(stream)
    return lambda: next(stream) and None


@torch.no_grad()
def dynamic_step(model: Any, count: int, vocabulary: int) -> Step:
    """One greedy decode step of transformers with its DynamicCache and sdpa."""
    cache = DynamicCache(config=model.config)
    ids = torch.randint(100, vocabulary - 100, (1, count), generator=torch.Generator().manual_seed(1)).to(model.device)
    for start in range(0, count, 512):
        out = model(input_ids=ids[:, start : start + 512], past_key_values=cache, use_cache=True, logits_to_keep=1)
    state = {"token": out.logits[:, -1:].argmax(-1)}

    @torch.no_grad()
    def step() -> None:
        logits = model(input_ids=state["token"], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        state["token"] = logits[:, -1:].argmax(-1)

    return step


def interleave(steps: dict[str, Step], repeats: int, wait: Callable[[], None] = lambda: None) -> dict[str, list[float]]:
    """Seconds of ``repeats`` calls of each step, taken in turns so that drift hits all alike.

    ``wait`` returns once the device has done what it was given.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    for _ in range(repeats):
        for name, step in steps.items():
            wait()
            start = time.perf_counter()
            step()
            wait()
            times[name].append(time.perf_counter() - start)
    return times


def measure(model: str, held: list[int], generated: list[int], repeats: int) -> dict[str, Any]:
    """Every row of the benchmark."""
    loaded = models.load(model)
    plain = models.load(model)
    plain.model.set_attn_implementation("sdpa")
    vocabulary = loaded.model.config.vocab_size
    full = Engine(loaded.model, loaded.tokenizer, "full", loaded.name)
    confkv = Engine(loaded.model, loaded.tokenizer, "confkv", loaded.name)
    rows: list[dict[str, Any]] = []
    for kind, counts in (("held", held), ("generated", generated)):
        for count in counts:
            # Past the model's position limit RoPE only extrapolates; times do not depend on it.
            full.max_positions = None
            sessions = {"full": filled_session(full, count, vocabulary)}
            if kind == "generated":
                sessions["confkv"] = filled_session(confkv, count, vocabulary)
            steps = {name: session_step(session) for name, session in sessions.items()}
            steps["dynamic_cache"] = dynamic_step(plain.model, count, vocabulary)
            managed = {name: session.stats.seconds["manage"] for name, session in sessions.items()}
            times = interleave(steps, repeats)
            row: dict[str, Any] = {"kind": kind, "tokens": count}
            for name, values in times.items():
                row[f"{name}_ms"] = round(1e3 * statistics.median(values), 3)
            row["full_over_dynamic_cache"] = round(row["full_ms"] / row["dynamic_cache_ms"], 3)
            if kind == "generated":
                row["full_over_confkv"] = round(row["full_ms"] / row["confkv_ms"], 2)
                row["dynamic_cache_over_confkv"] = round(row["dynamic_cache_ms"] / row["confkv_ms"], 2)
                stats = sessions["confkv"].stats
                spent = (stats.seconds["manage"] - managed["confkv"]) / (repeats + 3)
                row["manage_ms"] = round(1e3 * spent, 3)
                row["manage_share"] = round(1e3 * spent / (1e3 * statistics.mean(times["confkv"])), 4)
                row["confkv_kept"] = sum(stats.kept_per_layer) / len(stats.kept_per_layer)
            rows.append(row)
            print(row, file=sys.stderr)
    return circumstances("decode", model) | {
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "repeats": repeats,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--held", type=int, nargs="*", default=[512, 4096, 16384])
    parser.add_argument("--generated", type=int, nargs="*", default=[2048, 8192, 30000])
    parser.add_argument("--repeats", type=int, default=15, help="steps of each kind per row (default 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    arguments = parser.parse_args()
    result = measure(arguments.model, arguments.held, arguments.generated, arguments.repeats)
    if arguments.json:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
