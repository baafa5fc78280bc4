"""``confkv bench quant``: how precise the history has to be. Perplexity, error and bytes of FP16, INT8, INT4 and NF4.

INT8 is the store's own. INT4 and NF4 are simulated: what leaves the window is coded and decoded in place, so the model
attends to what a 4-bit store would give it, while memory stays that of full precision; their bytes are computed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from confkv.policies import parse_policy
from confkv.store import Store
from tasks.bench import figures
from tasks.bench.model import Model, load
from tasks.bench.output import Summary, circumstances, markdown, write
from tasks.bench.ppl import room
from tasks.bench.progress import Progress
from tasks.bench.results import Identity, ResultLog, Row, open_log
from tasks.bench.text import Segment, cut, read_texts
from tasks.errors import TaskError
from tasks.options import check
from tasks.records import Record

#: First positions that stay in full precision, as in the store's INT8 mode.
SINKS = 4
#: The store codes positions in blocks of this many.
BLOCK = 32
PRECISIONS = ("fp", "int8", "int4", "nf4")


def nf4_levels() -> list[float]:
    """The 16 levels of 4-bit NormalFloat (QLoRA, https://arxiv.org/abs/2305.14314, section 3): quantiles of N(0, 1),
    eight above zero, seven below, and zero, scaled to [-1, 1]."""
    quantile = NormalDist().inv_cdf
    offset = (1 - 1 / 32 + 1 - 1 / 30) / 2
    above = [quantile(offset + (0.5 - offset) * i / 8) for i in range(8)]
    below = [-quantile(offset + (0.5 - offset) * i / 7) for i in range(7)]
    top = max(above)
    return sorted(value / top for value in [*above, 0.0, *below])


def int4(x: Tensor) -> Tensor:
    """Symmetric 4 bits (levels -7 to 7) with one FP16 scale a vector (last dimension), coded and decoded."""
    wide = x.float()
    scale = (wide.abs().amax(-1, keepdim=True) / 7).half().float().clamp_min(1e-8)
    return ((wide / scale).round().clamp(-7, 7) * scale).to(x.dtype)


def nf4(x: Tensor) -> Tensor:
    """4-bit NormalFloat with one FP16 scale a vector (last dimension), coded and decoded."""
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True).half().float().clamp_min(1e-8)
    levels = torch.tensor(nf4_levels(), device=x.device)
    borders = (levels[1:] + levels[:-1]) / 2
    return (levels[torch.bucketize((wide / scale).contiguous(), borders)] * scale).to(x.dtype)


SIMULATED: dict[str, Callable[[Tensor], Tensor]] = {"int4": int4, "nf4": nf4}


def stored_error(plain: Store, window: int, prefix: int, squares: dict[str, list[float]]) -> None:
    """Add up the squared error, and the squares, of what an INT8 store makes of keys and values as they come.

    Args:
        plain: all of them in full precision, in position order.
        window, prefix: newest positions that stay as they are; positions that come at once, before blocks.
    """
    count = plain.n_fp[0]
    store = Store(plain.lanes, plain.heads, plain.dim, plain.dtype, plain.device, int8=True, window=window, sinks=SINKS)
    for start, stop in itertools.pairwise([0, *range(prefix, count, BLOCK), count]):
        store.reserve(stop - start)
        for lane in range(store.lanes):
            store.append(lane, plain.k[lane, :, start:stop], plain.v[lane, :, start:stop])
        store.commit(start, [], stop - start)
        store.age()
    for lane in range(store.lanes):
        coded = store.n_history[lane]
        k, v, _ = store.dequantised(lane)
        for name, new in (("k", k), ("v", v)):
            _add(squares[name], getattr(plain, name)[lane, :, SINKS : SINKS + coded], new[:, :coded])


@dataclass(frozen=True)
class Options:
    """What the bench is asked to do; see ``confkv bench quant --help`` for each."""

    model: str
    texts: list[Path] | None
    out: Path
    precisions: str = " ".join(PRECISIONS)
    tokens: int = 1024
    prefix: int = 64
    window: int = 128
    segments: int = 1
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512


class Coded(Row):
    """One precision on one segment.

    Attributes:
        nll: sum over ``tokens``, nats.
        error_k, error_v: relative L2 error over all coded positions of all layers.
        bits: a coded number, its share of scales included.
        mean_bytes: mean over steps; allocated, or computed without slack where ``simulated``.
    """

    precision: str
    simulated: bool
    tokens: int
    nll: float
    error_k: float
    error_v: float
    bits: float
    mean_bytes: float


class QuantRow(Record):
    """A precision over all segments; ``error_k`` and ``error_v`` are means of the segments'."""

    precision: str
    simulated: bool
    perplexity: float
    error_k: float
    error_v: float
    bits: float
    mean_bytes: float
    tokens: int
    seconds: float


class QuantSummary(Summary):
    """What the bench found."""

    rows: list[QuantRow]


def measure(
    model: Model, precision: str, segment: Segment, options: Options, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Score a segment with its history at a precision; the figures of :class:`Coded`."""
    spec = f"full:int8=1,w={options.window}" if precision == "int8" else "full"
    session = model.engine(parse_policy(spec)).session()
    ids, coded, nll = segment.ids, SINKS, 0.0
    session.extend(ids[: options.prefix])
    squares = {"k": [0.0, 0.0], "v": [0.0, 0.0]}
    end = options.prefix + options.tokens
    for begin in range(options.prefix, end, BLOCK):
        piece = ids[begin : min(begin + BLOCK, end)]
        nll -= sum(session.score(piece))
        advance(len(piece))
        store = session.cache.store
        leaves = session.seen - options.window
        if precision in SIMULATED and store is not None and leaves > coded:
            for name in ("k", "v"):
                plain = getattr(store, name)[:, :, coded:leaves]
                new = SIMULATED[precision](plain)
                _add(squares[name], plain, new)
                plain.copy_(new)
            coded = leaves
    if precision == "int8":
        # The error needs keys and values in full precision, and this session has coded its own.
        source = model.engine(parse_policy("full")).session()
        source.extend(ids[:end])
        if source.cache.store is not None:
            stored_error(source.cache.store, options.window, options.prefix, squares)
    dim = _dimension(model)
    bits = {"fp": 8.0 * model.net.dtype.itemsize, "int8": 8 + 32 / dim}.get(precision, 4 + 16 / dim)
    stats = session.stats
    return {
        "precision": precision,
        "simulated": precision in SIMULATED,
        "tokens": options.tokens,
        "nll": nll,
        "error_k": _relative(squares["k"]),
        "error_v": _relative(squares["v"]),
        "bits": bits,
        "mean_bytes": _computed(session.engine, options, bits) if precision in SIMULATED else stats.mean_bytes,
    }


def _add(squares: list[float], plain: Tensor, new: Tensor) -> None:
    squares[0] += float((new.float() - plain.float()).square().sum())
    squares[1] += float(plain.float().square().sum())


def _relative(squares: list[float]) -> float:
    return math.sqrt(squares[0] / squares[1]) if squares[1] else 0.0


def _dimension(model: Model) -> int:
    config = model.net.config.get_text_config()
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _computed(engine: Any, options: Options, bits: float) -> float:
    """Mean bytes over the decode steps where coded numbers take ``bits``."""
    a_position, full = engine.bytes_per_token, 8 * engine.model.dtype.itemsize
    total = 0.0
    for n in range(options.prefix + 1, options.prefix + options.tokens + 1):
        coded = max(0, n - options.window - SINKS)
        total += a_position * (n - coded + coded * bits / full)
    return total / options.tokens


def run(options: Options) -> QuantSummary:
    """Measure what is not on file yet, and write the summary, the table and the figure.

    Raises:
        an exception with ``user_facing`` set: bad input.
    """
    check(
        options.device,
        options.dtype,
        tokens=(options.tokens, 1),
        prefix=(options.prefix, SINKS),
        window=(options.window, 1),
        segments=(options.segments, 1),
        chunk=(options.chunk, 1),
    )
    precisions = options.precisions.replace(",", " ").split()
    if not precisions or not set(precisions) <= set(PRECISIONS):
        raise TaskError(f"--precisions '{options.precisions}' should be some of {', '.join(PRECISIONS)}")
    if options.prefix + options.tokens <= options.window + SINKS + BLOCK:
        raise TaskError(f"--tokens {options.tokens} never leaves the window of {options.window}; use more")
    texts = read_texts(options.texts)
    with open_log(options.out, Coded) as log, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        length = options.prefix + options.tokens
        room(model, length)
        segments = cut(texts, model.tokenizer, length, options.segments)
        rows = []
        for precision in precisions:
            found = [_measured(model, precision, segment, options, log, progress) for segment in segments]
            rows.append(_row(found))
            progress.say(f"{precision}: perplexity {rows[-1].perplexity:.3f}, error of keys {rows[-1].error_k:.2%}")
        summary = QuantSummary(
            **circumstances("quant", [options.model], model.dtype),
            settings={
                "texts": [text.name for text in texts],
                "tokens": options.tokens,
                "prefix": options.prefix,
                "window": options.window,
                "segments": options.segments,
                "chunk": options.chunk,
            },
            notes=[
                "fp is the model's own dtype",
                "simulated: coded and decoded in place; bytes are computed, without slack",
            ],
            rows=rows,
        )
        names = [f"{row.precision} (simulated)" if row.simulated else row.precision for row in rows]
        title = f"{options.model}: history older than {options.window} positions, {options.tokens:,} tokens"
        values, sizes = [row.perplexity for row in rows], [row.mean_bytes for row in rows]
        write(options.out, summary, table(rows), figures.precision(names, values, sizes, title))
    return summary


def _measured(
    model: Model, precision: str, segment: Segment, options: Options, log: ResultLog[Coded], progress: Progress
) -> Coded:
    where = {"start": segment.start, "prefix": options.prefix, "tokens": options.tokens, "window": options.window}
    identity = Identity(
        bench="quant",
        model=model.name,
        fingerprint=model.fingerprint,
        policy="full",
        text=segment.text.digest,
        parameters={**model.parameters, **where, "precision": precision},
    )

    def fresh() -> Coded:
        clock = time.perf_counter()
        progress.begin(precision, options.tokens)
        figures_ = measure(model, precision, segment, options, progress.advance)
        return Coded(identity=identity, seconds=round(time.perf_counter() - clock, 3), **figures_)

    return log.measured(identity, fresh)


def _row(found: Sequence[Coded]) -> QuantRow:
    tokens, count, first = sum(row.tokens for row in found), len(found), found[0]
    return QuantRow(
        precision=first.precision,
        simulated=first.simulated,
        perplexity=math.exp(sum(row.nll for row in found) / tokens),
        error_k=sum(row.error_k for row in found) / count,
        error_v=sum(row.error_v for row in found) / count,
        bits=first.bits,
        mean_bytes=sum(row.mean_bytes for row in found) / count,
        tokens=tokens,
        seconds=sum(row.seconds for row in found),
    )


def table(rows: Sequence[QuantRow]) -> str:
    columns = ["history", "how", "perplexity", "error of keys", "error of values", "bits a number", "mean MB"]
    cells: list[list[object]] = [
        [
            r.precision,
            "simulated" if r.simulated else "stored",
            r.perplexity,
            f"{r.error_k:.2%}",
            f"{r.error_v:.2%}",
            r.bits,
            r.mean_bytes / 1e6,
        ]
        for r in rows
    ]
    return markdown(columns, cells)
