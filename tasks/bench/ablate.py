"""``confkv bench ablate``: what each part of the method is worth, every variant at the same mean device bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from confkv.policies import parse_policy
from tasks.bench import figures
from tasks.bench.comparison import Bench, compare
from tasks.bench.decode import Run
from tasks.bench.matching import Candidate, candidate, parameters
from tasks.bench.model import load
from tasks.bench.output import circumstances, write
from tasks.bench.ppl import Options, PplSummary, heading, opened, prepare, settings, table
from tasks.bench.progress import Progress
from tasks.bench.results import open_log
from tasks.errors import TaskError

Values = dict[str, int | float | str]

#: The values of each sweep; the method's own is left out of its sweep, the full method stands for it.
SWEEPS: dict[str, tuple[float, ...]] = {
    "alpha": (0.0, 0.25, 0.5, 0.65, 0.8, 1.0),
    "tau": (0.3, 0.5, 0.7, 0.9),
    "decay": (0.5, 0.9, 0.98, 0.995),
    "protect": (8, 16, 32, 64),
    "w": (32, 64, 128, 256),
}
#: One part taken away at a time: what the method needs to have for it, and what is changed.
PARTS: dict[str, tuple[tuple[str, ...], Callable[[Values], Values]]] = {
    "recency only": (("alpha",), lambda values: {"alpha": 0.0}),
    "mass only": (("alpha",), lambda values: {"alpha": 1.0}),
    "no confidence": (("n_high", "n_low"), lambda values: {"n_low": values["n_high"]}),
    "shuffled confidence": (("shuffle",), lambda values: {"shuffle": 1}),
    "recall at every step": (("gate",), lambda values: {"gate": "always"}),
}
#: Controls that are policies of their own.
CONTROLS = ("random",)


def with_parameters(spec: str, **changed: object) -> str:
    """A spec with some parameters replaced."""
    values = {**parameters(spec), **changed}
    name = parse_policy(spec).spec.partition(":")[0]
    return parse_policy(f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}").spec


def parts(method: str) -> tuple[list[Candidate], list[str]]:
    """The method without one of its parts each, and the controls; and what the method has not."""
    values = parameters(method)
    out, absent = [candidate(spec) for spec in CONTROLS], []
    for name, (needed, change) in PARTS.items():
        missing = [key for key in needed if key not in values]
        if missing:
            absent.append(f"{name} ({method.partition(':')[0]} has no {missing[0]})")
        else:
            out.append(candidate(with_parameters(method, **change(values)), name))
    return out, absent


def sweeps(method: str, chosen: list[str]) -> tuple[list[Candidate], list[str]]:
    """One candidate for each value of each sweep but the method's own; and what is left out."""
    values = parameters(method)
    out, absent = [], []
    for name in chosen:
        if name not in values:
            absent.append(f"{name} ({method} has no such parameter)")
            continue
        # The window of full precision matters only where there is an INT8 history behind it.
        extra = {"int8": 1} if name == "w" else {}
        for value in SWEEPS[name]:
            typed = type(values[name])(value)
            if typed == values[name] and not extra:
                continue
            label = f"{name}={typed:g}" + (" int8" if extra else "")
            out.append(candidate(with_parameters(method, **{name: typed, **extra}), label))
    return out, absent


def run(options: Options, method: str = "confkv", chosen: str = "all") -> PplSummary:
    """Measure what is not on file yet, and write the summary, the table and the figure.

    Args:
        options: as for ``ppl``; ``policies`` adds further specs to the table.
        method: the full method, a spec.
        chosen: ``all``, ``parts``, ``sweeps``, or some of ``alpha tau decay protect w``.

    Raises:
        an exception with ``user_facing`` set: bad input.
    """
    words = chosen.replace(",", " ").split()
    if not words or not set(words) <= {"all", "parts", "sweeps", *SWEEPS}:
        raise TaskError(f"--what '{chosen}' should be some of all, parts, sweeps, {', '.join(SWEEPS)}")
    checked = prepare(dataclasses.replace(options, policies=f"{method} {options.policies or ''}"))
    whole = [name for name in SWEEPS if name in words or {"all", "sweeps"} & set(words)]
    wants_parts = bool({"all", "parts"} & set(words))
    without, absent = parts(method) if wants_parts else ([], [])
    swept, absent_sweeps = sweeps(method, whole)
    left_out = [*absent, *absent_sweeps]
    with open_log(options.out, Run) as log, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        bench = opened(model, options, checked, log, progress)
        main = dataclasses.replace(checked.candidates[0], label="full method")
        others = [*checked.candidates[1:], *without, *swept]
        if wants_parts and "gate" in parameters(method):
            others.append(_random_steps(bench, method, main, checked.match))
        rows, pairs = compare(bench, [main, *others], checked.match)
        notes = [f"left out: {', '.join(left_out)}"] if left_out else []
        summary = PplSummary(
            **circumstances("ablate", [options.model], model.dtype),
            settings={**settings(options), "method": method, "what": words},
            notes=[*notes, *bench.notes],
            rows=rows,
            pairs=[pair for pair in pairs if main.label in (pair.a, pair.b)],
        )
        write(options.out, summary, table(rows), figures.comparison(rows, f"{options.model}: {heading(options)}"))
    return summary


def _random_steps(bench: Bench, method: str, main: Candidate, match: Candidate | None) -> Candidate:
    """Recalls (and looks) at random steps, as many of them as the method itself was uncertain at."""
    rows, _ = compare(bench, [main], match)
    bench.notes.clear()
    share = next(row for row in rows if row.policy == main.label).confident_share
    return candidate(with_parameters(method, gate="random", rate=round(1 - share, 4)), "recall on random steps")
