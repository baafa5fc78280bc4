"""``confkv bench tools``: gold calls of long tool-use episodes, teacher-forced under each policy beside full KV.

No strong model is needed: the score of a benchmark asks whether a model can solve it, this asks whether a policy's next
tokens are still those of the model that remembers all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from confkv.policies import Policy, parse_policy
from tasks.bench import figures
from tasks.bench.forced import agreement, distributions
from tasks.bench.model import Model, load
from tasks.bench.output import Summary, circumstances, markdown, write
from tasks.bench.progress import Progress
from tasks.bench.results import Identity, ResultLog, Row, digest, open_log
from tasks.bench.statistics import Interval, bootstrap
from tasks.options import check
from tasks.records import Record
from tasks.tools.gold import Call, Fed, pick, script

POLICIES = "full window:512 h2o snapkv confkv confkv-l confkv-recall"


@dataclass(frozen=True)
class Options:
    """What the bench is asked to do; see ``confkv bench tools --help`` for each."""

    model: str
    out: Path
    policies: str | None = None
    episodes: int = 20
    below: int = 12_000
    pin_tools: bool = False
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512


class EpisodeRow(Row):
    """One gold episode under one policy. Lists run over the tokens of the gold calls; bytes are the device's.

    ``same``: the likeliest token is full KV's; ``kl`` from full KV's distribution and ``logp`` of the gold token, nats;
    ``rank`` of the gold token.
    """

    task: str
    tokens: int
    same: list[bool]
    kl: list[float]
    logp: list[float]
    rank: list[int]
    mean_bytes: float
    peak_bytes: int
    full_bytes: int
    host_bytes: int


class ToolsRow(Record):
    """A policy over all episodes. Intervals: 95%, bootstrap over episodes.

    ``share``: mean device bytes over those of ``full``; ``first``: share of gold tokens that are the likeliest.
    """

    policy: str
    episodes: int
    tokens: int
    agreement: float
    interval: Interval | None
    kl: float
    logp: float
    first: float
    mean_bytes: float
    share: float
    host_bytes: float
    seconds: float


class ToolsSummary(Summary):
    """What the bench found."""

    rows: list[ToolsRow]


def replay(session: Any, steps: Sequence[Fed | Call]) -> list[Tensor]:
    """Feed an episode; log-probabilities of each call, ``[tokens of it, V]``."""
    found: list[Tensor] = []
    for step in steps:
        if isinstance(step, Call):
            found.append(distributions(session, step.ids))
        else:
            session.extend(step.ids, segment=step.segment)
    return found


def run(options: Options) -> ToolsSummary:
    """Measure what is not on file yet, and write the summary, the table and the figure.

    Raises:
        an exception with ``user_facing`` set: bad input, or the benchmark is not installed.
    """
    check(options.device, options.dtype, episodes=(options.episodes, 1), below=(options.below, 1))
    policies = [parse_policy(spec) for spec in (options.policies or POLICIES).split()]
    tasks = pick(options.episodes, options.below)
    with open_log(options.out, EpisodeRow) as log, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        progress.begin("episodes", len(tasks) * len(policies))
        rows: list[EpisodeRow] = []
        for task in tasks:
            rows += _episode(model, task, policies, options, log, progress.advance)
        table_rows = [_row(policy, [r for r in rows if r.identity.policy == policy.spec]) for policy in policies]
        fill_shares(table_rows)
        schemas = "pinned" if options.pin_tools else "competing with the rest"
        summary = ToolsSummary(
            **circumstances("tools", [options.model], model.dtype),
            settings={"tasks": tasks, "below": options.below, "pin_tools": options.pin_tools, "chunk": options.chunk},
            notes=[
                "BFCL v4 multi_turn_long_context, gold calls; agreement: the likeliest token is full KV's",
                f"tool schemas: {schemas}; bytes: mean over forward passes, of the device",
            ],
            rows=table_rows,
        )
        write(options.out, summary, table(table_rows), figures.agreement(table_rows, "Gold calls under each policy"))
    return summary


def _episode(
    model: Model,
    task: str,
    policies: Sequence[Policy],
    options: Options,
    log: ResultLog[EpisodeRow],
    advance: Callable[[], None],
) -> list[EpisodeRow]:
    """The rows of one episode; full KV is run once, and only if a row is missing."""
    steps = script(task, model.tokenizer, pin_tools=options.pin_tools)
    gold = [token for step in steps if isinstance(step, Call) for token in step.ids]
    text = digest(repr([step.ids for step in steps]))
    reference: list[Tensor] = []

    def full() -> Tensor:
        if not reference:
            reference.append(torch.cat(replay(model.engine(parse_policy("full")).session(), steps)))
        return reference[0]

    rows: list[EpisodeRow] = []
    for policy in policies:
        identity = Identity(
            bench="tools",
            model=model.name,
            fingerprint=model.fingerprint,
            policy=policy.spec,
            text=text,
            parameters={"task": task, "pin_tools": options.pin_tools, **model.parameters},
        )

        def measure(policy: Policy = policy, identity: Identity = identity) -> EpisodeRow:
            whole = full()
            clock = time.perf_counter()
            session = model.engine(policy).session()
            own = torch.cat(replay(session, steps))
            found, stats = agreement(whole, own, gold), session.stats
            return EpisodeRow(
                identity=identity,
                seconds=round(time.perf_counter() - clock, 3),
                task=task,
                tokens=stats.tokens_seen,
                same=found.same,
                kl=found.kl,
                logp=found.logp,
                rank=found.rank,
                mean_bytes=stats.mean_bytes,
                peak_bytes=stats.peak_bytes,
                full_bytes=stats.full_bytes,
                host_bytes=stats.host_bytes,
            )

        rows.append(log.measured(identity, measure))
        advance()
    return rows


def _row(policy: Policy, rows: Sequence[EpisodeRow]) -> ToolsRow:
    counts = np.array([len(row.same) for row in rows], dtype=float)
    same = np.array([sum(row.same) for row in rows], dtype=float)

    def mean(name: str) -> float:
        return float(np.mean([value for row in rows for value in getattr(row, name)]))

    return ToolsRow(
        policy=policy.spec,
        episodes=len(rows),
        tokens=int(counts.sum()),
        agreement=float(same.sum() / counts.sum()),
        interval=bootstrap(lambda t: float(t[:, 0].sum() / t[:, 1].sum()), same, counts),
        kl=mean("kl"),
        logp=mean("logp"),
        first=float(np.mean([rank == 1 for row in rows for rank in row.rank])),
        mean_bytes=float(np.mean([row.mean_bytes for row in rows])),
        share=1.0,
        host_bytes=float(np.mean([row.host_bytes for row in rows])),
        seconds=sum(row.seconds for row in rows),
    )


class Held(Protocol):
    """A row of a table that tells bytes."""

    policy: str
    mean_bytes: float
    share: float


def fill_shares(rows: Sequence[Held]) -> None:
    """Set ``share``: bytes over those of ``full``, NaN where it was not measured."""
    full = next((row.mean_bytes for row in rows if row.policy == "full"), None)
    for row in rows:
        row.share = row.mean_bytes / full if full else float("nan")


def table(rows: Sequence[ToolsRow]) -> str:
    """The table of the bench, in Markdown."""
    columns = ["policy", "agreement", "95%", "KL", "log p of gold", "gold likeliest", "MB", "of full", "host MB"]
    cells: list[list[object]] = [
        [
            row.policy,
            f"{row.agreement:.1%}",
            f"{row.interval.low:.1%} to {row.interval.high:.1%}" if row.interval else None,
            row.kl,
            row.logp,
            f"{row.first:.1%}",
            row.mean_bytes / 1e6,
            f"{row.share:.2f}",
            row.host_bytes / 1e6,
        ]
        for row in rows
    ]
    return markdown(columns, cells)
