"""A grid from what was asked for to its report: checked first, then played, then summed up."""

from __future__ import annotations

import fnmatch
import re
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path

from tasks.errors import TaskError
from tasks.grid.log import GridLog, check_out, open_grid
from tasks.grid.play import Player
from tasks.grid.pool import Pool
from tasks.grid.progress import GridProgress
from tasks.grid.records import AGENTS, HISTORIES, NO_CACHE, GridSettings, Key, Line
from tasks.grid.report import write_report
from tasks.grid.shared import SharedModel
from tasks.grid.suites import Suite, TaskInfo, suite
from tasks.grid.summary import Summary
from tasks.grid.watch import off_the_terminal
from tasks.options import check_episode
from tasks.signals import handled


@dataclass(frozen=True)
class Options:
    """What a grid is asked to do; see ``confkv eval --help`` for each. A text may name several policies."""

    suite: str
    policies: Sequence[str] = ("full", "confkv")
    models: Sequence[str] = ()
    seeds: int = 1
    workers: int = 1
    batch: bool = False
    limit: int = 0
    tasks: str = ""
    agent: str = "model"
    histories: Sequence[str] = ("persistent",)
    max_turns: int = 30
    max_new_tokens: int = 256
    temperature: float = 0.0
    observation: str = "aria"
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512
    out: Path | None = None
    resume: bool = False
    screenshots: bool = False
    ray: str | None = None


@dataclass
class Plan:
    """A checked grid: everything is known to exist, nothing is loaded or written yet."""

    options: Options
    suite: Suite
    settings: GridSettings
    tasks: dict[str, TaskInfo]
    out: Path


def prepare(options: Options) -> Plan:
    """Check names and places; fetches models that are not here yet.

    Raises:
        an exception with ``user_facing`` set: one line, the cause and the next step.
    """
    check_episode(options, seeds=(options.seeds, 1), workers=(options.workers, 1), limit=(options.limit, 0))
    if options.agent not in AGENTS:
        raise TaskError(f"--agent {options.agent} is unknown; use one of {', '.join(AGENTS)}")
    if options.resume and options.out is None:
        raise TaskError("--resume continues the folder that --out names; name it")
    histories = _words(options.histories)
    if not histories or set(histories) - set(HISTORIES):
        unknown = next(iter(set(histories) - set(HISTORIES)), "")
        raise TaskError(f"--history {unknown or 'names none'}: use {' or '.join(HISTORIES)}, or both in one string")
    played = suite(options.suite)
    chosen = choose(played.tasks(), options.tasks, options.limit)
    scripted = options.agent != "model"
    settings = GridSettings(
        suite=played.name,
        tasks=[task.id for task in chosen],
        policies=[NO_CACHE] if scripted else _policies(options.policies),
        models=[NO_CACHE] if scripted else list(dict.fromkeys(options.models)),
        seeds=options.seeds,
        agent=options.agent,
        histories=["persistent"] if scripted else histories,
        max_turns=options.max_turns,
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        observation=options.observation,
        dtype=options.dtype,
        device=options.device,
        chunk=options.chunk,
        batch=options.batch,
    )
    out = options.out or _default_folder(settings)
    check_out(out, settings, options.resume)
    if options.agent == "oracle" and (missing := [t.id for t in chosen if played.oracle(t.id, 0) is None]):
        raise TaskError(f"{missing[0]} has no oracle; use --agent model, noop or random")
    if not scripted:
        from confkv.models import resolve
        from tasks.live import fetch_progress

        if not settings.models:
            raise TaskError("--model names none; `confkv models` lists them")
        for model in settings.models:
            resolve(model, progress=fetch_progress())
    return Plan(options, played, settings, {task.id: task for task in chosen}, out)


def _words(values: Sequence[str]) -> list[str]:
    """The words of all values, which blanks or commas separate, each once."""
    return list(dict.fromkeys(word for value in values for word in value.replace(",", " ").split()))


def specs(text: str) -> list[str]:
    """Policy specs out of text in which blanks or commas separate them.

    A comma separates parameters, too: what follows one and is ``key=value`` or a number belongs to the spec before.
    """
    found: list[str] = []
    for word in text.split():
        for nth, piece in enumerate(word.split(",")):
            if nth and re.fullmatch(r"[\w-]+=[^:]*|[\d.]+", piece):
                found[-1] += "," + piece
            elif piece:
                found.append(piece)
    return found


def _policies(given: Sequence[str]) -> list[str]:
    from confkv.policies import parse_policy

    words = [spec for text in given for spec in specs(text)]
    if not words:
        raise TaskError('--policies names none; write for example --policies "full window:512 confkv"')
    return list(dict.fromkeys(parse_policy(word).spec for word in words))


def choose(tasks: Sequence[TaskInfo], filter: str, limit: int) -> list[TaskInfo]:
    """The tasks that the words of ``filter`` name, at most ``limit`` of them (0: all), taken from each site in turn.

    A word names the task whose id it is; else those it matches as a pattern (``*``) or that hold it.

    Raises:
        TaskError: a word names no task.
    """
    wanted: set[str] = set()
    words = _words([filter])
    for word in words:
        low = word.casefold()
        exact = [task.id for task in tasks if task.id.casefold() == low]
        found = exact or [
            task.id
            for task in tasks
            if low in task.id.casefold() or ("*" in low and fnmatch.fnmatch(task.id.casefold(), low))
        ]
        if not found:
            raise TaskError(f"--tasks {word} names no task of the suite; ids are such as {tasks[0].id}")
        wanted.update(found)
    kept = [task for task in tasks if not words or task.id in wanted]
    if not limit or limit >= len(kept):
        return kept
    sites = [[task for task in kept if task.site == site] for site in dict.fromkeys(task.site for task in kept)]
    turns = [task for turn in zip_longest(*sites) for task in turn if task is not None]
    some = {task.id for task in turns[:limit]}
    return [task for task in kept if task.id in some]


def _default_folder(settings: GridSettings) -> Path:
    who = settings.agent if settings.agent != "model" else "+".join(settings.models)
    name = f"eval-{settings.suite}-{who}-{datetime.now():%Y%m%d-%H%M%S}"
    return Path("runs") / re.sub(r"[^A-Za-z0-9._+=-]+", "-", name)[-200:]


def run(plan: Plan, *, plain: bool = False) -> Summary:
    """Play what is not on file yet, then write ``summary.json`` and ``report.html``.

    Raises:
        KeyboardInterrupt: stopped; what was over stays, and a report of it is written.
        an exception with ``user_facing`` set: a model cannot be loaded, the disk is full, the folder is in use.
    """
    settings, options = plan.settings, plan.options
    with open_grid(plan.out, settings, options.resume) as log, off_the_terminal():
        keys = settings.episodes()
        left = [key for key in keys if key.id not in log.lines]
        progress = GridProgress(len(keys), len(keys) - len(left), options.workers, plain=plain)
        try:
            with progress:
                progress.say(f"{len(left)} of {len(keys)} episodes to play, {options.workers} at a time, in {plan.out}")
                if options.ray is not None:
                    from tasks.grid.cluster import play_on_ray

                    play_on_ray(plan, left, log, progress)
                else:
                    for model in settings.models:
                        _play_model(plan, [key for key in left if key.model == model], log, progress)
        finally:
            with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                summary = write_report(plan.out, settings, log.lines.values())
    return summary


def _play_model(plan: Plan, keys: list[Key], log: GridLog, progress: GridProgress) -> None:
    if not keys:
        return
    stop = threading.Event()
    shared = load(plan.settings, keys[0].model, log, progress)
    progress.started()

    def over(worker: int, line: Line) -> None:
        log.add(line)
        progress.end(worker, line)

    players = [
        Player(
            plan.suite,
            plan.settings,
            plan.out,
            shared,
            stop,
            screenshots=plan.options.screenshots,
            on_turn=_teller(progress, worker),
        )
        for worker in range(min(plan.options.workers, len(keys)))
    ]
    Pool(players, stop, over, progress.begin).run((key, plan.tasks[key.task]) for key in keys)


def _teller(progress: GridProgress, worker: int) -> Callable[[int], None]:
    return lambda turn: progress.turn(worker, turn)


def load(settings: GridSettings, name: str, log: GridLog, progress: GridProgress) -> SharedModel | None:
    """The model of this name, None for agents without one.

    Raises:
        TaskError: its weights are not those that the folder's episodes were played with.
        ModelError: it cannot be loaded.
    """
    if name == NO_CACHE:
        return None
    from tasks.bench.model import load as load_model

    progress.say(f"... loading {name}")
    model = load_model(name, dtype=settings.dtype, device=settings.device, chunk=settings.chunk)
    if log.fingerprints(name) - {model.fingerprint}:
        raise TaskError(f"{name} has other weights than the episodes on file were played with; name another --out")
    return SharedModel(model, batch=settings.batch)
