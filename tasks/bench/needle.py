"""``confkv bench needle``: exact retrieval of a key by length and depth, as written or at a share of full's bytes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confkv.policies import Policy, parse_policy
from tasks.bench import figures
from tasks.bench.asking import QUESTIONS, SEGMENTS, Read, ask, prompt, read
from tasks.bench.haystack import KINDS, SHARED, Case, Haystacks, correct
from tasks.bench.matching import Candidate, candidate
from tasks.bench.model import Model, load
from tasks.bench.needle_rows import Answer, NeedleRow, accuracy, heat, summarise, table
from tasks.bench.output import Summary, circumstances, write
from tasks.bench.ppl import DEFAULTS, room
from tasks.bench.progress import Progress
from tasks.bench.results import Identity, ResultLog, Row, open_log
from tasks.bench.share import peak, sized
from tasks.bench.text import Text, encode, read_texts
from tasks.errors import TaskError
from tasks.options import check


@dataclass(frozen=True)
class Options:
    """What the bench is asked to do; see ``confkv bench needle --help`` for each."""

    model: str
    texts: list[Path] | None
    out: Path
    policies: str | None = None
    lengths: str = "1024 2048"
    depths: str = "0 0.25 0.5 0.75 1"
    kinds: str = "single"
    needles: int = 2
    new_tokens: int = 24
    segment: str = "text"
    question: str = "goal"
    share: float = 0.0
    seed: int = 0
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512


class Sized(Row):
    """A policy's spec at the size that a share of full's bytes allows at a length."""

    spec: str


class NeedleSummary(Summary):
    """What the bench found."""

    rows: list[NeedleRow]


def numbers(option: str, text: str, kind: type[int] | type[float], low: float, high: float) -> list[Any]:
    """Numbers separated by blanks or commas, each within bounds.

    Raises:
        TaskError: one line that names the option.
    """
    pieces = text.replace(",", " ").split()
    try:
        values = [kind(piece) for piece in pieces]
    except ValueError:
        values = []
    if not values or not all(low <= value <= high for value in values):
        what = "whole numbers" if kind is int else "numbers"
        raise TaskError(f"{option} '{text}' should be {what} from {low:g} to {high:g}, separated by blanks")
    return list(dict.fromkeys(values))


@dataclass
class Bench:
    """What the cells have in common.

    Attributes:
        reads: haystacks that are prefilled for more than one question, by kind, length, policy and needle; one is kept.
    """

    model: Model
    options: Options
    depths: list[float]
    log: ResultLog[Answer]
    sizes: ResultLog[Sized]
    reads: dict[tuple[str, int, str, int], Read] = field(default_factory=dict)


def run(options: Options) -> NeedleSummary:
    """Ask what is not on file yet, and write the summary, the table and the figure.

    Raises:
        an exception with ``user_facing`` set: bad input.
    """
    lengths, depths, kinds = _grid(options)
    # The controls belong to the question of perplexity.
    plain = [spec for spec in DEFAULTS if ":" not in spec]
    specs = plain if options.policies is None else options.policies.split()
    if not specs:
        raise TaskError('--policies names none; write for example --policies "full window:512 confkv"')
    # Shares and ratios are of full's bytes and answers, so it comes first.
    listed = [candidate(spec) for spec in (["full"] if options.share else []) + specs]
    candidates = {one.label if options.share else one.policy.spec: one for one in listed}
    texts = read_texts(options.texts)
    notes: list[str] = []
    if options.share:
        notes.append(f"sizes: the largest whose peak is within 1/{options.share:g} of what full holds at the length")
    cells = [(k, i, d) for k in kinds for i in range(options.needles) for d in depths]
    with open_log(options.out, Answer) as log, open_log(options.out / "sizes", Sized) as sizes, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        room(model, max(lengths) + options.new_tokens)
        bench = Bench(model, options, depths, log, sizes)
        answers: dict[str, list[Answer]] = {spec: [] for spec in candidates}
        for text in texts:
            stacks = Haystacks(text.content, lambda piece: len(encode(model.tokenizer, piece)))
            for spec, chosen in candidates.items():
                progress.begin(spec, len(cells) * len(lengths))
                for length in lengths:
                    policy = _sized(bench, chosen, stacks, text, length, answers.get("full", []))
                    for kind, needle, depth in cells:
                        answers[spec].append(_cell(bench, policy, stacks, text, (kind, length, depth, needle)))
                        progress.advance()
                    newest = answers[spec][-len(cells) :]
                    found = f"{accuracy(newest):.0%} of {len(cells)}"
                    progress.say(f"{spec} [{policy.spec}] {length:,} tokens of {text.name}: {found}")
        rows = [summarise(spec, of_policy, answers.get("full", [])) for spec, of_policy in answers.items()]
        summary = NeedleSummary(
            **circumstances("needle", [options.model], model.dtype),
            settings={
                "texts": [text.name for text in texts],
                "lengths": lengths,
                "depths": depths,
                "kinds": kinds,
                "needles": options.needles,
                "segment": options.segment,
                "question": options.question,
                "share": options.share,
                "new_tokens": options.new_tokens,
                "seed": options.seed,
                "chunk": options.chunk,
            },
            notes=notes,
            rows=rows,
        )
        title = f"{options.model}: {', '.join(kinds)} needles found, {options.needles * len(texts)} a cell and kind"
        panels = {spec: heat(of_policy, lengths, depths) for spec, of_policy in answers.items()}
        names = [f"{length:,}" for length in lengths], [f"{depth:g}" for depth in depths]
        write(options.out, summary, table(rows), figures.heat_maps(panels, *names, title))
    return summary


def _grid(options: Options) -> tuple[list[int], list[float], list[str]]:
    """Lengths, depths and kinds, all options checked.

    Raises:
        TaskError: one line that names the option.
    """
    positive = {"needles": (options.needles, 1), "new_tokens": (options.new_tokens, 1), "chunk": (options.chunk, 1)}
    check(options.device, options.dtype, **positive)
    lengths = numbers("--lengths", options.lengths, int, 64, 1 << 20)
    depths = numbers("--depths", options.depths, float, 0, 1)
    kinds = options.kinds.replace(",", " ").split()
    if not kinds or not set(kinds) <= set(KINDS):
        raise TaskError(f"--kinds '{options.kinds}' should be some of {', '.join(KINDS)}, separated by blanks")
    if options.segment not in SEGMENTS:
        raise TaskError(f"--segment {options.segment} is unknown; use one of {', '.join(SEGMENTS)}")
    if options.question not in QUESTIONS:
        raise TaskError(f"--question {options.question} is unknown; use one of {', '.join(QUESTIONS)}")
    if options.share and not 1 < options.share < float("inf"):
        raise TaskError(f"--share {options.share:g} should be a number above 1, or 0 for sizes as written")
    return lengths, depths, kinds


def _case(bench: Bench, stacks: Haystacks, cell: tuple[str, int, float, int]) -> Case:
    kind, length, depth, needle = cell
    seed = bench.options.seed * 1000 + needle
    if kind in SHARED:
        return stacks.cases(bench.depths, length, seed)[bench.depths.index(depth)]
    return stacks.case(kind, length, depth, seed)


def _sized(
    bench: Bench, chosen: Candidate, stacks: Haystacks, text: Text, length: int, full: Sequence[Answer]
) -> Policy:
    """The policy at this length: as written, or at the size that the share allows."""
    model, options = bench.model, bench.options
    if not options.share or chosen.at is None:
        return chosen.policy
    engine = model.engine(chosen.policy)
    # Exact, without the room that an allocation has to spare.
    held = [engine.full_bytes(answer.tokens) for answer in full if answer.length == length]
    target = sum(held) / len(held) / options.share
    parameters = {"length": length, "target": round(target), "segment": options.segment, "question": options.question}
    identity = _identity(model, "needle-size", chosen.policy.spec, text, parameters)

    def measure() -> Sized:
        clock = time.perf_counter()
        before, after = prompt(model.tokenizer, stacks.case("single", length, 0.5, options.seed * 1000))
        positions = round(target / engine.bytes_per_token)
        policy = sized(
            chosen,
            lambda policy: peak(model, policy, before, after, options.segment, options.question),
            target,
            max(positions - options.chunk, positions // 2),
        )
        return Sized(identity=identity, seconds=round(time.perf_counter() - clock, 3), spec=policy.spec)

    return parse_policy(bench.sizes.measured(identity, measure).spec)


def _identity(model: Model, bench: str, spec: str, text: Text, parameters: dict[str, Any]) -> Identity:
    return Identity(
        bench=bench,
        model=model.name,
        fingerprint=model.fingerprint,
        policy=spec,
        text=text.digest,
        parameters={**model.parameters, **parameters},
    )


def _cell(bench: Bench, policy: Policy, stacks: Haystacks, text: Text, cell: tuple[str, int, float, int]) -> Answer:
    """One answer. Where a haystack serves several questions it is prefilled for the first that is not on file."""
    kind, length, depth, needle = cell
    model, options = bench.model, bench.options
    shared = kind in SHARED
    parameters = {"kind": kind, "length": length, "depth": depth, "needle": needle, "seed": options.seed}
    parameters |= {"segment": options.segment, "question": options.question, "new_tokens": options.new_tokens}
    parameters |= {"depths": " ".join(f"{depth:g}" for depth in bench.depths)} if shared else {}
    identity = _identity(model, "needle", policy.spec, text, parameters)

    def measure() -> Answer:
        clock = time.perf_counter()
        case = _case(bench, stacks, cell)
        key = (kind, length, f"{policy.spec} {text.digest}", needle)
        if (haystack := bench.reads.get(key)) is None:
            # One at a time: at 16K tokens full KV alone has some hundred megabytes.
            bench.reads.clear()
            haystack = read(model, policy, case, options.segment)
            if shared:
                bench.reads[key] = haystack
        answer, tokens, stats = ask(model, haystack, case, options.question, options.new_tokens, again=shared)
        return Answer(
            identity=identity,
            seconds=round(time.perf_counter() - clock, 3),
            kind=kind,
            length=length,
            depth=depth,
            needle=needle,
            tokens=tokens,
            expected=list(case.expected),
            answer=answer,
            correct=correct(case, answer),
            mean_bytes=stats.mean_bytes,
            peak_bytes=stats.peak_bytes,
            host_bytes=stats.host_bytes,
            evictions=stats.evictions,
        )

    return bench.log.measured(identity, measure)
