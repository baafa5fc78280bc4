"""``confkv bench kl``: does confidence say how much the newest context matters to the next token?

The motivating figure of CONF-KV (arXiv 2605.24786): over positions of a text, the KL divergence between the full
next-token distribution and the one with the newest 256 positions removed, against the confidence of the full one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confkv.confidence import confidence
from tasks.bench import figures
from tasks.bench.forced import divergence
from tasks.bench.model import Model, load
from tasks.bench.output import Summary, circumstances, markdown, write
from tasks.bench.ppl import room
from tasks.bench.progress import Progress
from tasks.bench.results import Identity, ResultLog, Row, open_log
from tasks.bench.statistics import Interval, bootstrap, pearson, spearman
from tasks.bench.text import Segment, cut, read_texts
from tasks.errors import TaskError
from tasks.options import check
from tasks.records import Record

#: Positions that must remain at least once the newest are removed.
REMAIN = 64


@dataclass(frozen=True)
class Options:
    """What the bench is asked to do; see ``confkv bench kl --help`` for each."""

    models: list[str]
    texts: list[Path] | None
    out: Path
    tokens: int = 1024
    positions: int = 200
    remove: int = 256
    segments: int = 1
    seed: int = 0
    dtype: str = "auto"
    device: str = "cpu"


class Shift(Row):
    """One segment of a text under one model; lists run over the sampled positions, ``kl`` in nats."""

    positions: list[int]
    confidence: list[float]
    kl: list[float]


class KlRow(Record):
    """A model over all segments: correlation of confidence and KL, and mean KL below and from tau 0.7 on.

    Intervals: 95%, bootstrap over positions, which are taken as independent.
    """

    model: str
    positions: int
    pearson: Interval | None
    spearman: Interval | None
    mean_kl: float
    mean_kl_unsure: float | None
    mean_kl_confident: float | None
    seconds: float


class KlSummary(Summary):
    """What the bench found."""

    rows: list[KlRow]


@torch.no_grad()
def shifts(net: Any, ids: Sequence[int], positions: Sequence[int], remove: int) -> tuple[list[float], list[float]]:
    """Confidence of the full distribution at each position, and its KL divergence from the reduced one, in nats.

    One forward pass gives both. Every sampled position p is run once more as an extra row at the same place, which sees
    what came before the newest ``remove`` positions, and itself. Keys and values of the others are those of the full
    context, as when a cache drops them.

    Args:
        net: a transformers causal LM on its own attention, without sliding-window layers.
        positions: each >= ``remove``. remove: positions removed, p itself among them in number but kept.
    """
    count, extra = len(ids), len(positions)
    at = torch.tensor(list(positions))
    column, row = torch.arange(count + extra), torch.arange(count).unsqueeze(1)
    seen = torch.zeros(count + extra, count + extra, dtype=torch.bool)
    seen[:count] = column <= row
    seen[count:] = column <= (at - remove).unsqueeze(1)
    seen[torch.arange(count, count + extra), torch.arange(count, count + extra)] = True
    mask = torch.zeros(seen.shape, dtype=net.dtype).masked_fill(~seen, torch.finfo(net.dtype).min)
    tokens = torch.tensor([[*ids, *(ids[p] for p in positions)]])
    places = torch.cat([torch.arange(count), at]).unsqueeze(0)
    wanted = torch.cat([at, torch.arange(count, count + extra)])
    out = net(
        input_ids=tokens.to(net.device),
        position_ids=places.to(net.device),
        attention_mask=mask[None, None].to(net.device),
        use_cache=False,
        logits_to_keep=wanted.to(net.device),
    )
    logits: Tensor = out.logits[0].float()
    if logits.shape[0] != len(wanted):
        logits = logits[wanted.to(logits.device)]
    full, reduced = logits[:extra].log_softmax(-1), logits[extra:].log_softmax(-1)
    return [confidence(line) for line in logits[:extra]], divergence(full, reduced).tolist()


def run(options: Options) -> KlSummary:
    """Measure what is not on file yet, and write the summary, the table and the figure.

    Raises:
        an exception with ``user_facing`` set: bad input.
    """
    check(
        options.device,
        options.dtype,
        tokens=(options.tokens, 1),
        positions=(options.positions, 2),
        remove=(options.remove, 1),
        segments=(options.segments, 1),
    )
    first = options.remove + REMAIN
    if options.tokens <= first + 1:
        raise TaskError(f"--tokens {options.tokens} leaves no position to look at; use more than {first + 1}")
    texts = read_texts(options.texts)
    rows: list[KlRow] = []
    panels: dict[str, tuple[list[float], list[float], str]] = {}
    dtype = options.dtype
    with open_log(options.out, Shift) as log, Progress() as progress:
        for name in options.models:
            progress.say(f"loading {name}")
            model = load(name, dtype=options.dtype, device=options.device)
            dtype = model.dtype
            room(model, options.tokens)
            _plain_attention(model)
            found = []
            pieces = cut(texts, model.tokenizer, options.tokens, options.segments)
            progress.begin(f"{name}: segments", len(pieces))
            for piece in pieces:
                found.append(_segment(model, piece, options, log))
                progress.advance()
            rows.append(_row(name, found))
            panels[name] = (_joined(found, "confidence"), _joined(found, "kl"), _words(rows[-1]))
            progress.say(f"{name}: {_words(rows[-1])}")
        summary = KlSummary(
            **circumstances("kl", options.models, dtype),
            settings={
                "texts": [text.name for text in texts],
                "tokens": options.tokens,
                "positions": options.positions,
                "remove": options.remove,
                "segments": options.segments,
                "seed": options.seed,
            },
            notes=["positions of one text are taken as independent, which makes the intervals narrow"],
            rows=rows,
        )
        title = f"KL shift when the newest {options.remove} positions are removed"
        write(options.out, summary, table(rows), figures.scatter(panels, title))
    return summary


def _plain_attention(model: Model) -> None:
    """transformers' own attention, which takes a mask of any shape; windows of the model itself would add theirs."""
    config = model.net.config.get_text_config()
    if "sliding_attention" in (getattr(config, "layer_types", None) or []):
        raise TaskError(f"{model.name} has sliding-window layers, which this bench does not mask; use another model")
    model.net.set_attn_implementation("sdpa")


def _segment(model: Model, piece: Segment, options: Options, log: ResultLog[Shift]) -> Shift:
    identity = Identity(
        bench="kl",
        model=model.name,
        fingerprint=model.fingerprint,
        policy="",
        text=piece.text.digest,
        parameters={
            "dtype": model.dtype,
            "device": model.parameters["device"],
            "start": piece.start,
            "tokens": options.tokens,
            "positions": options.positions,
            "remove": options.remove,
            "seed": options.seed,
        },
    )

    def measure() -> Shift:
        clock = time.perf_counter()
        candidates = np.arange(options.remove + REMAIN, options.tokens)
        rng = np.random.default_rng([options.seed, piece.start])
        chosen = np.sort(rng.choice(candidates, min(options.positions, len(candidates)), replace=False)).tolist()
        sure, kl = shifts(model.net, piece.ids, chosen, options.remove)
        return Shift(
            identity=identity, seconds=round(time.perf_counter() - clock, 3), positions=chosen, confidence=sure, kl=kl
        )

    return log.measured(identity, measure)


def _joined(found: Sequence[Shift], name: str) -> list[float]:
    return [value for shift in found for value in getattr(shift, name)]


def _row(name: str, found: Sequence[Shift]) -> KlRow:
    c, kl = np.array(_joined(found, "confidence")), np.array(_joined(found, "kl"))

    def mean(chosen: np.ndarray[Any, Any]) -> float | None:
        return float(kl[chosen].mean()) if chosen.any() else None

    return KlRow(
        model=name,
        positions=len(c),
        pearson=bootstrap(lambda t: pearson(t[:, 0], t[:, 1]), c, kl),
        spearman=bootstrap(lambda t: spearman(t[:, 0], t[:, 1]), c, kl),
        mean_kl=float(kl.mean()),
        mean_kl_unsure=mean(c < 0.7),
        mean_kl_confident=mean(c >= 0.7),
        seconds=sum(shift.seconds for shift in found),
    )


def _interval(interval: Interval | None) -> str:
    if interval is None or math.isnan(interval.value):
        return "not defined"
    return f"{interval.value:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _words(row: KlRow) -> str:
    return f"Pearson {_interval(row.pearson)}, Spearman {_interval(row.spearman)}"


def table(rows: Sequence[KlRow]) -> str:
    columns = ["model", "positions", "Pearson (95%)", "Spearman (95%)", "mean KL", "KL at c < 0.7", "KL at c >= 0.7"]
    cells: list[list[object]] = [
        [
            r.model,
            r.positions,
            _interval(r.pearson),
            _interval(r.spearman),
            r.mean_kl,
            r.mean_kl_unsure,
            r.mean_kl_confident,
        ]
        for r in rows
    ]
    return markdown(columns, cells)
