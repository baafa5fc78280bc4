"""Decoding several sessions together: time of a step by policy and batch size, interleaved in one run.

Every session has seen ``--tokens`` tokens before. They are prefilled once and forked, which leaves a cache of the size
that decoding them leaves. Each row then samples its own tokens. The ratio of interest is the throughput of ``confkv``
over that of ``full`` at the same batch size. Weights are real.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

from circumstances import circumstances
from decode import Step, filled_session, interleave

from confkv import models
from confkv.batch import Batch
from confkv.engine import Engine


def batch_step(batch: Batch) -> Step:
    """One step of a batch whose rows do not end."""
    return lambda: batch.step() and None


def measure(model: str, policies: list[str], sizes: list[int], tokens: int, repeats: int) -> dict[str, Any]:
    """Every row of the benchmark: one a batch size."""
    loaded = models.load(model)
    rows: list[dict[str, Any]] = []
    base = {}
    for policy in policies:
        engine = Engine(loaded.model, loaded.tokenizer, policy, loaded.name)
        engine.max_positions = None  # past the limit RoPE only extrapolates; times do not depend on it
        base[policy] = filled_session(engine, tokens, loaded.model.config.vocab_size)
    for size in sizes:
        steps, members = {}, {}
        for policy, session in base.items():
            members[policy] = [session.fork() for _ in range(size)]
            # Sampled, so that the rows do not say the same.
            batch = session.engine.decode()
            for seed, member in enumerate(members[policy]):
                batch.add(member, 10**9, temperature=1.0, stop_ids=[], seed=seed)
            batch.step()
            steps[policy] = batch_step(batch)
        spent = {policy: sum(m.stats.seconds["manage"] for m in own) for policy, own in members.items()}
        times = interleave(steps, repeats)
        row: dict[str, Any] = {"batch": size, "tokens": tokens}
        for policy, values in times.items():
            median = statistics.median(values)
            managed = sum(m.stats.seconds["manage"] for m in members[policy]) - spent[policy]
            row[policy] = {
                "step_ms": round(1e3 * median, 3),
                "tokens_per_s": round(size / median, 1),
                "manage_ms": round(1e3 * managed / (repeats + 3), 3),
                "manage_share": round(managed / (repeats + 3) / statistics.mean(values), 4),
                "kept": statistics.mean(k for m in members[policy] for k in m.stats.kept_per_layer),
                "bytes": sum(m.stats.bytes for m in members[policy]),
            }
            if policy != policies[0]:
                row[policy]["throughput_ratio"] = round(row[policies[0]]["step_ms"] / row[policy]["step_ms"], 3)
        rows.append(row)
        print(row, file=sys.stderr)
    return circumstances("batch", model) | {
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "repeats": repeats,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--policies", nargs="+", default=["full", "confkv"], help="ratios are over the first")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=2048, help="seen by each session before (default 2048)")
    parser.add_argument("--repeats", type=int, default=15, help="steps of each kind per row (default 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    arguments = parser.parse_args()
    result = measure(arguments.model, arguments.policies, arguments.batch, arguments.tokens, arguments.repeats)
    if arguments.json:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
