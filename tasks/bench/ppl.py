"""``confkv bench ppl``: sustained perplexity of policies by teacher-forced decoding, at matched mean device bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.bench import figures
from tasks.bench.comparison import TOLERANCE, Bench, Pair, PolicyRow, compare
from tasks.bench.decode import Run
from tasks.bench.matching import Candidate, candidate
from tasks.bench.model import Model, load
from tasks.bench.output import Summary, circumstances, markdown, write
from tasks.bench.progress import Progress
from tasks.bench.results import ResultLog, open_log
from tasks.bench.text import Text, cut, read_texts
from tasks.errors import TaskError
from tasks.options import check

#: What is compared where nothing is named. The last of each family of confkv are its controls: one budget, the
#: confidence of other steps, recall at about as many steps by chance.
DEFAULTS = (
    "full", "window", "streaming", "streaming-rel", "random", "tova", "scissorhands", "knorm", "snapkv", "pyramidkv",
    "zigzag", "adakv", "h2o", "confkv", "confkv-l", "confkv-slow", "confkv-slow:n_low=184", "confkv-slow:shuffle=1",
    "confkv-recall", "confkv-recall:gate=random,rate=0.6", "confkv-look", "confkv-look:gate=random,rate=0.6",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What the bench is asked to do; see ``confkv bench ppl --help`` for each."""

    model: str
    texts: list[Path] | None
    out: Path
    policies: str | None = None
    match: str = "window:512"
    tokens: int = 2048
    prefix: int = 64
    segments: int = 1
    calibrate: int = 512
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512
    together: int = 16


class PplSummary(Summary):
    """What the bench found."""

    rows: list[PolicyRow]
    pairs: list[Pair]


@dataclass(frozen=True)
class Checked:
    """Options that hold: names exist and texts are read; nothing is loaded yet."""

    candidates: list[Candidate]
    match: Candidate | None
    texts: list[Text]


def prepare(options: Options) -> Checked:
    """Check all that can be checked before a model is loaded.

    Raises:
        TaskError, PolicyError: one line, the cause and the mend.
    """
    check(
        options.device,
        options.dtype,
        tokens=(options.tokens, 1),
        prefix=(options.prefix, 1),
        segments=(options.segments, 1),
        calibrate=(options.calibrate, 1),
        chunk=(options.chunk, 1),
        together=(options.together, 1),
    )
    specs = list(DEFAULTS) if options.policies is None else options.policies.split()
    if not specs:
        raise TaskError('--policies names none; write for example --policies "full window confkv"')
    match = None if options.match == "none" else candidate(options.match)
    if match is not None and match.size is None:
        raise TaskError(f"--match {options.match} has no size to match; name one that has, as in --match window:512")
    candidates = list({spec: candidate(spec) for spec in specs}.values())
    return Checked(candidates, match, read_texts(options.texts))


def room(model: Model, length: int) -> None:
    """Full KV cannot pass the model's position limit, and every comparison needs full KV.

    Raises:
        TaskError
    """
    limit = getattr(model.net.config.get_text_config(), "max_position_embeddings", None)
    if limit and length > limit:
        raise TaskError(f"{model.name} sees at most {limit:,} positions and {length:,} are asked for; lower --tokens")


def opened(model: Model, options: Options, checked: Checked, log: ResultLog[Run], progress: Progress) -> Bench:
    """The bench over the texts' segments."""
    length = options.prefix + options.tokens
    room(model, length)
    segments = cut(checked.texts, model.tokenizer, length, options.segments)
    return Bench(model, segments, options.prefix, options.tokens, options.calibrate, log, progress, options.together)


def run(options: Options) -> PplSummary:
    """Measure what is not on file yet, and write the summary, the table and the figure.

    Raises:
        an exception with ``user_facing`` set: bad input.
    """
    checked = prepare(options)
    with open_log(options.out, Run) as log, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        bench = opened(model, options, checked, log, progress)
        rows, pairs = compare(bench, checked.candidates, checked.match)
        summary = PplSummary(
            **circumstances("ppl", [options.model], model.dtype),
            settings=settings(options),
            notes=bench.notes,
            rows=rows,
            pairs=pairs,
        )
        write(options.out, summary, table(rows), figures.comparison(rows, f"{options.model}: {heading(options)}"))
    return summary


def settings(options: Options) -> dict[str, object]:
    """The options that shape the figures; texts by name, without their folder."""
    return {
        "texts": [path.name for path in options.texts or []],
        "match": options.match,
        "tolerance": TOLERANCE,
        "tokens": options.tokens,
        "prefix": options.prefix,
        "segments": options.segments,
        "chunk": options.chunk,
        "together": options.together,
    }


def heading(options: Options) -> str:
    """One line over the figure."""
    matched = "sizes as written" if options.match == "none" else f"mean device bytes of {options.match}"
    pieces = f"{options.segments} x {options.tokens:,} tokens" if options.segments > 1 else f"{options.tokens:,} tokens"
    return f"perplexity over {pieces}, {matched}"


def table(rows: Sequence[PolicyRow]) -> str:
    """The rows for reading; the interval is of the difference to ``full``."""
    columns = ["policy", "spec", "perplexity", "above full (95%)", "gap closed", "mean MB", "bytes / match"]
    columns += ["peak MB", "host MB", "kept", "confident", "looks", "recalls", "seconds"]
    exchanges = any(row.exchanged_share is not None for row in rows)  # older files do not tell
    columns += ["exchanged"] if exchanges else []
    cells: list[list[object]] = []
    for row in rows:
        above = row.above_full
        cells.append(
            [
                row.policy,
                f"`{row.spec}`",
                row.perplexity,
                None if above is None else f"{above.value:.2f} ({above.low:.2f} to {above.high:.2f})",
                row.gap_closed,
                row.mean_bytes / 1e6,
                None if row.bytes_ratio is None else f"{row.bytes_ratio:.3f}",
                row.peak_bytes / 1e6,
                row.host_bytes / 1e6,
                row.kept,
                f"{row.confident_share:.0%}",
                row.looks,
                row.recalls,
                round(row.seconds, 1),
                *([None if row.exchanged_share is None else f"{row.exchanged_share:.0%}"] if exchanges else []),
            ]
        )
    return markdown(columns, cells)
