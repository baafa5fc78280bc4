"""``confkv bench memory``: what a session still remembers, by the age of the fact (the probe ``bfcl-memory``).

BFCL's memory conversations are played turn by turn into one session under each policy; then every question is asked
from a fork of its own. The data and the checker are the benchmark's, the protocol is not: scores are no BFCL scores.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent.transcript import Piece, Transcript
from confkv.policies import Policy, parse_policy
from tasks.bench import figures
from tasks.bench.model import Model, load
from tasks.bench.output import Summary, circumstances, markdown, write
from tasks.bench.progress import Progress
from tasks.bench.results import Identity, ResultLog, Row, digest, open_log
from tasks.bench.tools import POLICIES, fill_shares
from tasks.errors import TaskError
from tasks.options import check
from tasks.records import Record
from tasks.tools import memory
from tasks.tools.memory import SCENARIOS, Conversation, Question

GOAL = "I will tell you about myself. Remember it: I will ask you about it later."
REPLY = "Noted."
ASKED = "Answer in a few words, from what I told you: {question}"
#: Bounds of the groups of ages, tokens.
AGES = (500, 2_000, 8_000)


@dataclass(frozen=True)
class Options:
    """What the bench is asked to do; see ``confkv bench memory --help`` for each."""

    model: str
    out: Path
    policies: str | None = None
    scenarios: str = "notetaker healthcare finance"
    new_tokens: int = 48
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512


class ScenarioRow(Row):
    """One conversation under one policy. Lists run over its questions; bytes are the device's, when all was said.

    ``logp``: mean log p of a token of the first accepted answer, nats. ``age_tokens``, ``age_turns``: from the end of
    the message that tells the answer to the question; None where that message cannot be located.
    """

    scenario: str
    tokens: int
    questions: list[str]
    replies: list[str]
    right: list[bool]
    logp: list[float]
    age_tokens: list[int | None]
    age_turns: list[int | None]
    bytes: int
    mean_bytes: float
    full_bytes: int
    host_bytes: int


class AgeGroup(Record):
    """Questions whose fact has an age in ``[low, high)`` tokens; ``high`` None: no bound."""

    low: int
    high: int | None
    questions: int
    accuracy: float
    logp: float


class MemoryRow(Record):
    """A policy over all conversations; ``share``: mean device bytes over those of ``full`` (NaN without it)."""

    policy: str
    questions: int
    accuracy: float
    logp: float
    ages: list[AgeGroup]
    mean_bytes: float
    share: float
    host_bytes: float
    seconds: float


class MemorySummary(Summary):
    """What the bench found."""

    rows: list[MemoryRow]


def play(session: Any, told: Conversation, tokenizer: Any) -> tuple[Transcript, list[int]]:
    """Play a conversation; the transcript, and the tokens seen at the end of each message."""
    transcript = Transcript(tokenizer)
    reply = list(tokenizer.encode(REPLY, add_special_tokens=False))
    ends: list[int] = []
    for index, message in enumerate(told.messages):
        pieces = transcript.turn(message, None) if index else transcript.start(told.role, GOAL, message)
        _feed(session, pieces)
        ends.append(session.seen)
        session.extend(reply, segment="reply")
    return transcript, ends


def ask(session: Any, question: Question, transcript: Transcript, tokenizer: Any, new_tokens: int) -> tuple[str, float]:
    """Ask from a fork: the greedy reply, and the mean log p of a token of the first accepted answer (nats)."""
    fork = session.fork()
    _feed(fork, transcript.turn(ASKED.format(question=question.text), None))
    other = fork.fork()
    ids = list(tokenizer.encode(question.answers[0], add_special_tokens=False))
    logp = float(np.mean(other.score(ids)))
    said = [int(token.id) for token in fork.generate(new_tokens, stop_ids=transcript.stop_ids, segment="reply")]
    return transcript.reply_text(said), logp


def _feed(session: Any, pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        session.extend(piece.ids, segment=piece.segment)


def run(options: Options) -> MemorySummary:
    """Measure what is not on file yet, and write the summary, the table and the figure.

    Raises:
        an exception with ``user_facing`` set: bad input, or the benchmark is not installed.
    """
    check(options.device, options.dtype, new_tokens=(options.new_tokens, 1))
    scenarios = options.scenarios.replace(",", " ").split()
    unknown = [name for name in scenarios if name not in SCENARIOS]
    if unknown or not scenarios:
        raise TaskError(f"--scenarios: use some of {', '.join(SCENARIOS)}")
    policies = [parse_policy(spec) for spec in (options.policies or POLICIES).split()]
    told = [memory.load(name) for name in scenarios]
    with open_log(options.out, ScenarioRow) as log, Progress() as progress:
        progress.say(f"loading {options.model}")
        model = load(options.model, dtype=options.dtype, device=options.device, chunk=options.chunk)
        progress.begin("conversations", len(told) * len(policies))
        found: dict[str, list[ScenarioRow]] = {}
        for conversation in told:
            for policy in policies:
                found.setdefault(policy.spec, []).append(_measured(model, conversation, policy, options, log))
                progress.advance()
    rows = [_row(spec, own) for spec, own in found.items()]
    fill_shares(rows)
    summary = MemorySummary(
        **circumstances("memory", [options.model], model.dtype),
        settings={"scenarios": scenarios, "new_tokens": options.new_tokens, "chunk": options.chunk},
        notes=[
            "BFCL v4 memory conversations in one session, all questions asked at the end from forks; a protocol of "
            "our own with the official checker, so no BFCL score",
            "log p: mean over the tokens of the first accepted answer, nats; ages in tokens",
        ],
        rows=rows,
    )
    write(options.out, summary, table(rows), figures.by_age(rows, "What is remembered, by the age of the fact"))
    return summary


def _measured(
    model: Model, told: Conversation, policy: Policy, options: Options, log: ResultLog[ScenarioRow]
) -> ScenarioRow:
    identity = Identity(
        bench="memory",
        model=model.name,
        fingerprint=model.fingerprint,
        policy=policy.spec,
        text=digest(repr((told, GOAL, REPLY, ASKED))),
        parameters={"scenario": told.scenario, "new_tokens": options.new_tokens, **model.parameters},
    )

    def measure() -> ScenarioRow:
        clock = time.perf_counter()
        session = model.engine(policy).session()
        transcript, ends = play(session, told, model.tokenizer)
        stats, turns = session.stats, len(told.messages)
        asked = [ask(session, q, transcript, model.tokenizer, options.new_tokens) for q in told.questions]
        at = [q.message for q in told.questions]
        return ScenarioRow(
            identity=identity,
            seconds=round(time.perf_counter() - clock, 3),
            scenario=told.scenario,
            tokens=stats.tokens_seen,
            questions=[q.id for q in told.questions],
            replies=[reply for reply, _ in asked],
            right=[memory.right(reply, q) for (reply, _), q in zip(asked, told.questions, strict=True)],
            logp=[logp for _, logp in asked],
            age_tokens=[None if m is None else stats.tokens_seen - ends[m] for m in at],
            age_turns=[None if m is None else turns - m for m in at],
            bytes=stats.bytes,
            mean_bytes=stats.mean_bytes,
            full_bytes=stats.full_bytes,
            host_bytes=stats.host_bytes,
        )

    return log.measured(identity, measure)


def _row(spec: str, rows: Sequence[ScenarioRow]) -> MemoryRow:
    right = np.array([value for row in rows for value in row.right], dtype=float)
    logp = np.array([value for row in rows for value in row.logp])
    age = np.array([np.nan if value is None else value for row in rows for value in row.age_tokens], dtype=float)
    groups: list[AgeGroup] = []
    for low, high in zip((0, *AGES), (*AGES, None), strict=True):
        inside = (age >= low) & (age < (np.inf if high is None else high))
        if inside.any():
            accuracy, mean = float(right[inside].mean()), float(logp[inside].mean())
            groups.append(AgeGroup(low=low, high=high, questions=int(inside.sum()), accuracy=accuracy, logp=mean))
    return MemoryRow(
        policy=spec,
        questions=len(right),
        accuracy=float(right.mean()),
        logp=float(logp.mean()),
        ages=groups,
        mean_bytes=float(np.mean([row.mean_bytes for row in rows])),
        share=float("nan"),
        host_bytes=float(np.mean([row.host_bytes for row in rows])),
        seconds=sum(row.seconds for row in rows),
    )


def group_name(group: AgeGroup) -> str:
    """A group of ages in words, as in ``500 to 2,000``."""
    return f"from {group.low:,}" if group.high is None else f"{group.low:,} to {group.high:,}"


def table(rows: Sequence[MemoryRow]) -> str:
    """The table of the bench, in Markdown: right answers and log p, over all and by age."""
    names = [f"{group_name(group)} (n={group.questions})" for group in rows[0].ages]
    columns = ["policy", "right", "log p", *names, "MB", "of full", "host MB"]
    cells: list[list[object]] = [
        [
            row.policy,
            f"{row.accuracy:.0%}",
            f"{row.logp:.2f}",
            *(f"{group.accuracy:.0%}, {group.logp:.2f}" for group in row.ages),
            row.mean_bytes / 1e6,
            f"{row.share:.2f}",
            row.host_bytes / 1e6,
        ]
        for row in rows
    ]
    return markdown(columns, cells)
