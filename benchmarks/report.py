"""Write RESULTS.md from ``benchmarks/results/*.json``: every table with its command, and what could not be run.

    python benchmarks/report.py            # writes RESULTS.md
    python benchmarks/report.py --check    # exit code 1 where RESULTS.md is not what it would write

The same files give the same text, byte for byte: nothing of the clock or the machine goes in.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tasks.bench import kl, needle, ppl, quant
from tasks.bench.output import markdown
from tasks.records import write_atomically

ROOT = Path(__file__).resolve().parents[1]
PAPER = "https://arxiv.org/abs/2605.24786"
NOT_QUOTED = "not quoted"

#: Benches whose summary knows its own table.
TABLES: dict[str, Callable[[Any], str]] = {
    "ppl": lambda data: ppl.table(ppl.PplSummary.model_validate(data).rows),
    "ablate": lambda data: ppl.table(ppl.PplSummary.model_validate(data).rows),
    "needle": lambda data: needle.table(needle.NeedleSummary.model_validate(data).rows),
    "kl": lambda data: kl.table(kl.KlSummary.model_validate(data).rows),
    "quant": lambda data: quant.table(quant.QuantSummary.model_validate(data).rows),
}
TITLES = {
    "ppl": "Sustained perplexity at matched device bytes",
    "ablate": "Ablation at matched device bytes",
    "needle": "Needles in a haystack",
    "kl": "Confidence against the KL shift when the newest context is removed",
    "quant": "Precision of the history",
    "decode": "Decode step times",
    "turns": "A long episode",
    "first_token": "Time to first token, persistent session and fed anew",
    "episodes": "Tasks won",
    "eval": "Tasks of a suite, policy against policy",
    "int8_error": "INT8 on real activations",
}

#: The paper's models, none of whose weights were to be had here. The paper's checkpoints are not known to us in every
#: case; a hub id is the public model of that name and size.
MODELS = {
    "GPT-2": ("openai-community/gpt2", 1024),
    "Qwen-14B": ("Qwen/Qwen2.5-14B-Instruct", 32768),
    "Qwen-32B": ("Qwen/Qwen2.5-32B-Instruct", 32768),
    "gpt-oss-20b": ("openai/gpt-oss-20b", 131072),
}


def paper_rows() -> list[list[object]]:
    """Experiment, model, the paper's figure (from its abstract, or not quoted) and the command that would run it."""
    rows: list[list[object]] = []
    for name, (hub, limit) in MODELS.items():
        device, text = "--device cuda --text TEXT", f"--model {hub}"
        tokens = min(4096, limit - 64)
        rows.append(
            [
                f"perplexity and memory over {tokens:,} decoded tokens",
                name,
                "within 1.5 to 2.1 points of full KV over four model families",
                f"`confkv bench ppl {text} {device} --tokens {tokens} --match window:512`",
            ]
        )
        lengths = " ".join(str(n) for n in (512, 1024, 4096, 8192, 16384, 32768) if n + 512 <= limit)
        rows.append(
            [
                "needle in a haystack" + (" up to 32K tokens" if limit > 32768 else ""),
                name,
                "91.4% (window 53.8%, H2O 80.6%), model not quoted",
                f'`confkv bench needle {text} {device} --lengths "{lengths}"`',
            ]
        )
        rows.append(
            [
                "ablation of the method's parts",
                name,
                NOT_QUOTED,
                f"`confkv bench ablate {text} {device} --tokens {tokens}`",
            ]
        )
        rows.append(["precision of the history", name, NOT_QUOTED, f"`confkv bench quant {text} {device}`"])
        masked = hub != "openai/gpt-oss-20b"
        command = f"`confkv bench kl {text} {device}`" if masked else "none: sliding-window layers are not masked"
        rows.append(["KL shift against confidence", name, NOT_QUOTED, command])
    rows.append(
        [
            "75 VisualWebArena tasks",
            NOT_QUOTED,
            "95.3% of full KV's success at 2.8x lower peak memory",
            '`confkv eval --suite visualwebarena --policies "full confkv" --device cuda --model MODEL`, its sites up',
        ]
    )
    return rows


def section(name: str, data: dict[str, Any]) -> str:
    """One file as a section: title, command, table, notes."""
    bench = str(data.get("benchmark", "")) or name.partition("_")[0]
    models = data.get("models") or ([data["model"]] if "model" in data else [])
    title = TITLES.get(bench, bench) + (f": {', '.join(models)}" if models else "")
    command = data.get("command") or "(the command is not in the file)"
    parts = [f"## {title}\n", f"`benchmarks/results/{name}.json`, made by\n", f"    {command}\n", _table(bench, data)]
    notes = data.get("notes") or []
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes) + "\n")
    versions = ", ".join(f"{package} {version}" for package, version in sorted((data.get("versions") or {}).items()))
    where = [str(data["dtype"])] if data.get("dtype") else []
    where += [versions] if versions else []
    return "\n".join([*parts, *([f"{'; '.join(where)}\n"] if where else [])])


def _table(bench: str, data: dict[str, Any]) -> str:
    if bench in TABLES:
        return TABLES[bench](data)
    # An older kind of file: its own figures as one row, then its rows, those with the same columns together.
    told = ("benchmark", "command", "model", "dtype")
    single = {key: value for key, value in data.items() if key not in told and isinstance(value, int | float | str)}
    tables = [markdown(list(single), [list(single.values())])] if single else []
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in data.get("rows") or []:
        groups.setdefault(tuple(row), []).append(row)
    tables += [markdown(columns, [list(row.values()) for row in rows]) for columns, rows in groups.items()]
    return "\n".join(tables)


def report(results: Path) -> str:
    """The whole text.

    Raises:
        SystemExit: a file is not what its bench writes; one line.
    """
    sections = []
    for path in sorted(results.glob("*.json")):
        try:
            sections.append(section(path.stem, json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, ValidationError, TypeError, AttributeError) as error:
            raise SystemExit(f"report.py: {path} cannot be read ({str(error).splitlines()[0]})") from error
    intro = (
        "# Results\n\n"
        "Written by `python benchmarks/report.py` from `benchmarks/results/`; do not edit. Each table stands under the "
        "command that made it.\n"
    )
    rest = (
        "## Of the paper, not run\n\n"
        f"The weights of the models that [CONF-KV]({PAPER}) measures were not available here. What it reports is given "
        f'as its abstract says; other figures of it are "{NOT_QUOTED}". Hub ids name the public model of that name '
        "and size; `TEXT` is a plain text file.\n\n"
        + markdown(["experiment", "model", "the paper", "command"], paper_rows())
    )
    return "\n".join([intro, *sections, rest])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--out", type=Path, default=ROOT / "RESULTS.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the file is out of date")
    arguments = parser.parse_args()
    text = report(arguments.results).encode()
    if not arguments.check:
        write_atomically(arguments.out, text)
    elif not arguments.out.exists() or arguments.out.read_bytes() != text:
        sys.exit(f"{arguments.out.name} is out of date: python benchmarks/report.py writes it anew")


if __name__ == "__main__":
    main()
