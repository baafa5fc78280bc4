"""From a grid's folder to a file of results: a row a policy. One JSON object on standard output.

confkv eval --suite vwa-mini ... --out runs/mini
python benchmarks/grid.py runs/mini > benchmarks/results/eval_vwa-mini_MODEL.json
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from tasks.grid.log import read_lines, read_settings
from tasks.grid.records import RESULTS_FILE, GridSettings
from tasks.grid.summary import Group, summarise
from tasks.records import read_episode


def command(settings: GridSettings) -> str:
    """What plays the same episodes."""
    words = ["confkv", "eval", "--suite", settings.suite, "--tasks", " ".join(settings.tasks)]
    if settings.agent != "model":
        words += ["--agent", settings.agent]
    else:
        words += ["--policies", " ".join(settings.policies), "--history", " ".join(settings.histories)]
        words += [word for model in settings.models for word in ("--model", model)]
    words += ["--seeds", str(settings.seeds), "--max-turns", str(settings.max_turns)]
    words += ["--max-new-tokens", str(settings.max_new_tokens), "--temperature", f"{settings.temperature:g}"]
    words += ["--observation", settings.observation, "--chunk", str(settings.chunk)]
    words += ["--dtype", settings.dtype, "--device", settings.device, *(["--batch"] if settings.batch else [])]
    return shlex.join(words)


def row(group: Group) -> dict[str, Any]:
    """One way of playing; bytes in megabytes (1e6)."""
    low, high = group.success.interval.low, group.success.interval.high
    return {
        "model": group.model,
        "policy": group.policy,
        "history": group.history,
        "solved": group.success.solved,
        "episodes": group.success.episodes,
        "wilson_95": f"{low:.2f} to {high:.2f}",
        "ended": ", ".join(f"{reason} {count}" for reason, count in group.reasons.items()),
        "peak_mb": round(group.peak_bytes / 1e6, 1),
        "mean_peak_mb": round(group.mean_peak_bytes / 1e6, 1),
        "mean_mb": round(group.mean_bytes / 1e6, 1),
        "host_mb": round(group.host_bytes / 1e6, 1),
        "full_kv_mb": round(group.full_bytes / 1e6, 1),
        "tokens": round(group.tokens),
        "prefilled": round(group.prefilled),
        "turns": round(group.turns, 1),
        "seconds": round(group.seconds, 1),
    }


def result(folder: Path) -> dict[str, Any]:
    """The file's object.

    Raises:
        TaskError: the folder holds no grid.
    """
    settings, lines = read_settings(folder), read_lines(folder / RESULTS_FILE)
    summary = summarise(settings, lines)
    versions = read_episode(folder / lines[-1].trace).versions if lines else {}
    return {
        "benchmark": "eval",
        "command": command(settings),
        "models": [model for model in settings.models if model != "none"],
        "dtype": settings.dtype,
        "versions": versions,
        "planned": summary.planned,
        "played": summary.played,
        "rows": [row(group) for group in summary.groups],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what confkv eval --out named")
    print(json.dumps(result(parser.parse_args().folder), indent=1))


if __name__ == "__main__":
    main()
