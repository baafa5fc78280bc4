"""``confkv bench needle``: exact retrieval of a key by length and depth, one prefill a cell and policy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from confkv.policies import Policy
from tasks.bench import figures
from tasks.bench.haystack import KINDS, Case, Haystacks, correct
from tasks.bench.matching import known
from tasks.bench.model import Model, load
from tasks.bench.output import Summary, circumstances, markdown, write
from tasks.bench.ppl import DEFAULTS, room
from tasks.bench.progress import Progress
from tasks.bench.results import Identity, ResultLog, Row, open_log
from tasks.bench.statistics import Interval, wilson
from tasks.bench.text import Text, encode, read_texts
from tasks.errors import TaskError
from tasks.options import check
from tasks.records import Record

SEGMENTS = ("text", "observation")
_MARK = "\x1fhaystack\x1f"
_PREFACE = "Read the text and answer the question after it.\n\n"


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
    seed: int = 0
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512


class Answer(Row):
    """One cell: what was asked for, what came, and what the cache held.

    ``evictions`` were made by the end of the answer; bytes are the session's mean and peak.
    """

    kind: str
    length: int
    depth: float
    needle: int
    tokens: int
    expected: list[str]
    answer: str
    correct: bool
    mean_bytes: float
    peak_bytes: int
    host_bytes: int
    evictions: int


class NeedleRow(Record):
    """A policy over the whole grid: ``accuracy`` with its Wilson interval, and by part of the grid."""

    policy: str
    accuracy: float
    interval: Interval
    asked: int
    by_kind: dict[str, float]
    by_length: dict[str, float]
    by_depth: dict[str, float]
    mean_bytes: float
    peak_bytes: int
    host_bytes: int
    seconds: float


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


def prompt(tokenizer: Any, case: Case) -> tuple[list[int], list[int]]:
    """Token ids up to the end of the haystack, and from the question to where the answer begins.

    With a chat template both are one user turn; without, plain text that ends in "Answer:".
    """
    ask = f"\n\n{case.question}"
    if getattr(tokenizer, "chat_template", None):
        turn = [{"role": "user", "content": f"{_PREFACE}{_MARK}{ask}"}]
        whole = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        head, _, tail = whole.partition(_MARK)
    else:
        head, tail = f"{tokenizer.bos_token or ''}{_PREFACE}", f"{ask}\nAnswer:"
    return encode(tokenizer, head + case.haystack), encode(tokenizer, tail)


def ask(model: Model, policy: Policy, case: Case, segment: str, new_tokens: int) -> tuple[str, int, Any]:
    """Prefill once, answer greedily: the answer, the prompt's tokens, the session's statistics."""
    before, after = prompt(model.tokenizer, case)
    session = model.engine(policy).session()
    session.extend(before, segment)
    session.extend(after, "text")
    answer = "".join(token.text for token in session.generate(new_tokens, temperature=0.0))
    return answer, len(before) + len(after), session.stats


def run(options: Options) -> NeedleSummary:
    """Ask what is not on file yet, and write the summary, the table and the figure.

    Raises:
        an exception with ``user_facing`` set: bad input.
    """
    from confkv.policies import parse_policy

    positive = {"needles": (options.needles, 1), "new_tokens": (options.new_tokens, 1), "chunk": (options.chunk, 1)}
    check(options.device, options.dtype, **positive)
    lengths = numbers("--lengths", options.lengths, int, 64, 1 << 20)
    depths = numbers("--depths", options.depths, float, 0, 1)
    kinds = options.kinds.replace(",", " ").split()
    if not kinds or not set(kinds) <= set(KINDS):
        raise TaskError(f"--kinds '{options.kinds}' should be some of {', '.join(KINDS)}, separated by blanks")
    if options.segment not in SEGMENTS:
        raise TaskError(f"--segment {options.segment} is unknown; use one of {', '.join(SEGMENTS)}")
    specs, absent = (options.policies.split(), []) if options.policies is not None else known(list(DEFAULTS))
    policies = {policy.spec: policy for policy in map(parse_policy, specs)}
    if not policies:
        raise TaskError('--policies names none; write for example --policies "full window:512 confkv"')
    texts = read_texts(options.texts)
    notes = [f"not in this version, left out: {', '.join(absent)}"] if absent else []
    grid = [(k, n, d, i) for k in kinds for n in lengths for d in depths for i in range(options.needles)]
    with open_log(options.out, Answer) as log, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        room(model, max(lengths) + options.new_tokens)
        answers: dict[str, list[Answer]] = {spec: [] for spec in policies}
        for text in texts:
            stacks = Haystacks(text.content, lambda piece: len(encode(model.tokenizer, piece)))
            for spec, policy in policies.items():
                progress.begin(spec, len(grid))
                for cell in grid:
                    answers[spec].append(_cell(model, policy, stacks, text, cell, options, log))
                    progress.advance()
                progress.say(f"{spec} on {text.name}: {_accuracy(answers[spec][-len(grid) :]):.0%} of {len(grid)}")
        rows = [_row(spec, of_policy) for spec, of_policy in answers.items()]
        summary = NeedleSummary(
            **circumstances("needle", [options.model], model.dtype),
            settings={
                "texts": [text.name for text in texts],
                "lengths": lengths,
                "depths": depths,
                "kinds": kinds,
                "needles": options.needles,
                "segment": options.segment,
                "new_tokens": options.new_tokens,
                "seed": options.seed,
                "chunk": options.chunk,
            },
            notes=notes,
            rows=rows,
        )
        title = f"{options.model}: {', '.join(kinds)} needles found, {options.needles * len(texts)} a cell and kind"
        panels = {spec: _heat(of_policy, lengths, depths) for spec, of_policy in answers.items()}
        names = [f"{length:,}" for length in lengths], [f"{depth:g}" for depth in depths]
        write(options.out, summary, table(rows), figures.heat_maps(panels, *names, title))
    return summary


def _cell(
    model: Model,
    policy: Policy,
    stacks: Haystacks,
    text: Text,
    cell: tuple[str, int, float, int],
    options: Options,
    log: ResultLog[Answer],
) -> Answer:
    kind, length, depth, needle = cell
    identity = Identity(
        bench="needle",
        model=model.name,
        fingerprint=model.fingerprint,
        policy=policy.spec,
        text=text.digest,
        parameters={
            **model.parameters,
            "kind": kind,
            "length": length,
            "depth": depth,
            "needle": needle,
            "seed": options.seed,
            "segment": options.segment,
            "new_tokens": options.new_tokens,
        },
    )

    def measure() -> Answer:
        clock = time.perf_counter()
        case = stacks.case(kind, length, depth, options.seed * 1000 + needle)
        answer, tokens, stats = ask(model, policy, case, options.segment, options.new_tokens)
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

    return log.measured(identity, measure)


def _accuracy(answers: Sequence[Answer]) -> float:
    return sum(answer.correct for answer in answers) / len(answers)


def _row(spec: str, answers: list[Answer]) -> NeedleRow:
    def by(name: str) -> dict[str, float]:
        groups: dict[str, list[Answer]] = {}
        for answer in answers:
            groups.setdefault(f"{getattr(answer, name)}", []).append(answer)
        return {key: _accuracy(group) for key, group in groups.items()}

    return NeedleRow(
        policy=spec,
        accuracy=_accuracy(answers),
        interval=wilson(sum(answer.correct for answer in answers), len(answers)),
        asked=len(answers),
        by_kind=by("kind"),
        by_length=by("length"),
        by_depth=by("depth"),
        mean_bytes=sum(answer.mean_bytes for answer in answers) / len(answers),
        peak_bytes=max(answer.peak_bytes for answer in answers),
        host_bytes=max(answer.host_bytes for answer in answers),
        seconds=sum(answer.seconds for answer in answers),
    )


def _heat(answers: Sequence[Answer], lengths: list[int], depths: list[float]) -> np.ndarray[Any, Any]:
    out = np.full((len(depths), len(lengths)), np.nan)
    for i, depth in enumerate(depths):
        for j, length in enumerate(lengths):
            cell = [answer for answer in answers if answer.depth == depth and answer.length == length]
            out[i, j] = _accuracy(cell) if cell else np.nan
    return out


def table(rows: Sequence[NeedleRow]) -> str:
    kinds, lengths = list(rows[0].by_kind), list(rows[0].by_length)
    columns = ["policy", "found", "95%", "asked", *kinds, *(f"{n} tokens" for n in lengths), "mean MB", "host MB"]
    cells: list[list[object]] = []
    for row in rows:
        cells.append(
            [
                f"`{row.policy}`",
                f"{row.accuracy:.0%}",
                f"{row.interval.low:.0%} to {row.interval.high:.0%}",
                row.asked,
                *(f"{row.by_kind[kind]:.0%}" for kind in kinds),
                *(f"{row.by_length[length]:.0%}" for length in lengths),
                row.mean_bytes / 1e6,
                row.host_bytes / 1e6,
            ]
        )
    return markdown(columns, cells)
