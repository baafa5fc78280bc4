"""``confkv bench ablate``: what each part of the method is worth, every variant at the same mean device bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from dataclasses import dataclass

from confkv.policies import Policy, parse_policy
from tasks.bench import figures
from tasks.bench.comparison import compare
from tasks.bench.decode import Run
from tasks.bench.matching import Candidate, candidate, known, parameters, rebudgeted
from tasks.bench.model import load
from tasks.bench.output import circumstances, write
from tasks.bench.ppl import Options, PplSummary, heading, opened, prepare, settings, table
from tasks.bench.progress import Progress
from tasks.bench.results import open_log
from tasks.errors import TaskError

#: The values of each sweep; those of the method's own are left out of the sweep, the full method stands for them.
SWEEPS: dict[str, tuple[float, ...]] = {
    "alpha": (0.0, 0.25, 0.5, 0.65, 0.8, 1.0),
    "tau": (0.3, 0.5, 0.7, 0.9),
    "decay": (0.5, 0.9, 0.98, 0.995),
    "protect": (8, 16, 32, 64),
    "w": (32, 64, 128, 256),
}
PARTS = ("random", "recency only", "mass only", "no confidence", "shuffled confidence")


@dataclass(frozen=True)
class Shuffled:
    """A budget by confidence whose signal is cut: a step counts as confident with probability ``share``, whatever its
    confidence is. The draw is a hash of the confidence's bits, so the budget has no state and a run can be repeated.
    """

    base: Policy
    share: float
    seed: int = 0

    @property
    def smallest(self) -> int | None:
        return self.base.budget.smallest

    @property
    def tau(self) -> float:
        return float(getattr(self.base.budget, "tau", getattr(getattr(self.base.budget, "base", None), "tau", 0.7)))

    def at(self, confidence: float | None) -> int | None:
        """The base's budget at full or at no confidence."""
        if confidence is None:
            return self.base.budget.at(None)
        digest = hashlib.sha256(struct.pack("<dq", confidence, self.seed)).digest()
        sure = int.from_bytes(digest[:8], "big") < self.share * 2**64
        return self.base.budget.at(float("inf") if sure else float("-inf"))

    def per_layer(self, nominal: int, layers: int) -> list[int]:
        """The base's."""
        return self.base.budget.per_layer(nominal, layers)


def shuffled(base: Candidate, share: float, seed: int) -> Candidate:
    """``base`` with its confidence shuffled; ``share`` is the share of confident steps to keep."""

    def change(policy: Policy) -> Policy:
        return dataclasses.replace(policy, budget=Shuffled(policy, share, seed))

    return rebudgeted(base, "shuffled confidence", f"shuffled={share:.4f}/{seed}", change)


def with_parameters(spec: str, **changed: object) -> str:
    """A spec with some parameters replaced."""
    values = {**parameters(spec), **changed}
    name = parse_policy(spec).spec.partition(":")[0]
    return parse_policy(f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}").spec


def parts(method: str, chosen: list[str]) -> tuple[list[Candidate], list[str]]:
    """The method without one of its parts each, as far as the registry and the method's parameters allow; and what is
    left out. Shuffled confidence is not among them: its share has to be measured first."""
    values = parameters(method)
    out: list[Candidate] = []
    absent = []
    for name in chosen:
        if name == "random":
            here, _ = known(["random"])
            out += [candidate(spec, name) for spec in here]
            absent += [] if here else ["random (not in this version)"]
        elif name in ("recency only", "mass only"):
            if "alpha" in values:
                out.append(candidate(with_parameters(method, alpha=float(name == "mass only")), name))
            else:
                absent.append(f"{name} ({method} has no alpha)")
        elif name == "no confidence":
            if {"n_high", "n_low"} <= set(values):
                out.append(candidate(with_parameters(method, n_low=values["n_high"]), name))
            else:
                absent.append(f"{name} ({method} has no n_high and n_low)")
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


def run(options: Options, method: str = "confkv", chosen: str = "all", seed: int = 0) -> PplSummary:
    """Measure what is not on file yet, and write the summary, the table and the figure.

    Args:
        options: as for ``ppl``; ``policies`` adds further specs to the table.
        method: the full method, a spec.
        chosen: ``all``, ``parts``, ``sweeps``, or some of ``alpha tau decay protect w``.
        seed: of the shuffled confidence.

    Raises:
        an exception with ``user_facing`` set: bad input.
    """
    words = chosen.replace(",", " ").split()
    if not words or not set(words) <= {"all", "parts", "sweeps", *SWEEPS}:
        raise TaskError(f"--what '{chosen}' should be some of all, parts, sweeps, {', '.join(SWEEPS)}")
    checked = prepare(dataclasses.replace(options, policies=f"{method} {options.policies or ''}"))
    whole = [name for name in SWEEPS if name in words or {"all", "sweeps"} & set(words)]
    wants_parts = bool({"all", "parts"} & set(words))
    without, absent = parts(method, list(PARTS) if wants_parts else [])
    swept, absent_sweeps = sweeps(method, whole)
    with open_log(options.out, Run) as log, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        bench = opened(model, options, checked, log, progress)
        main = dataclasses.replace(checked.candidates[0], label="full method")
        others = [*checked.candidates[1:], *without]
        if wants_parts and {"n_high", "n_low"} <= set(parameters(method)):
            rows, _ = compare(bench, [main], checked.match)
            share = next(row for row in rows if row.policy == main.label).confident_share
            others.append(shuffled(main, share, seed))
        elif wants_parts:
            absent.append(f"shuffled confidence ({method} has no n_high and n_low)")
        bench.notes.clear()
        rows, pairs = compare(bench, [main, *others, *swept], checked.match)
        left_out = [*absent, *absent_sweeps]
        notes = [f"left out: {', '.join(left_out)}"] if left_out else []
        summary = PplSummary(
            **circumstances("ablate", [options.model], model.dtype),
            settings={**settings(options), "method": method, "what": words, "seed": seed},
            notes=[*notes, *bench.notes],
            rows=rows,
            pairs=[pair for pair in pairs if main.label in (pair.a, pair.b)],
        )
        write(options.out, summary, table(rows), figures.comparison(rows, f"{options.model}: {heading(options)}"))
    return summary
