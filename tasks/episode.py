"""One episode from names to records: what was asked is checked first, then loaded, played and written."""

from __future__ import annotations

import io
import logging
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from tasks.folder import RecordedEnv, RunFolder, check_folder, default_folder
from tasks.live import View, fetch_progress, megabytes, times
from tasks.options import check_episode
from tasks.records import KV, Episode, Seconds, Settings
from tasks.signals import handled
from tasks.steps import StepWriter

PACKAGES = ("confkv", "torch", "transformers", "playwright", "gymnasium", "browsergym-core", "miniwob")


@dataclass(frozen=True)
class Options:
    """What a run is asked to do; see ``confkv run --help`` for each."""

    task: str
    model: str
    policy: str = "confkv"
    seed: int = 0
    out: Path | None = None
    headed: bool = False
    max_turns: int = 30
    max_new_tokens: int = 256
    temperature: float = 0.0
    observation: str = "aria"
    dtype: str = "auto"
    device: str = "cpu"
    chunk: int = 512
    screenshots: bool = True


@dataclass
class Plan:
    """A checked run: everything is known to exist and nothing is loaded or written yet."""

    options: Options
    policy: Any
    env: Any
    out: Path
    measure: list[Callable[[str], int]]

    @property
    def heading(self) -> str:
        """One line that names the run."""
        o = self.options
        return f"{o.task} · {o.model} · {self.policy.spec} · seed {o.seed}"


def prepare(options: Options) -> Plan:
    """Check names and places before anything is loaded; fetches the model where it is not here yet.

    Raises:
        an exception with ``user_facing`` set: unknown policy, parameter, task, model; no browser; bad out.
    """
    from confkv.policies import parse_policy

    check_episode(options, seed=(options.seed, 0))
    policy = parse_policy(options.policy)
    out = options.out or default_folder(options.task, policy.spec, options.seed, datetime.now())
    check_folder(out)

    from tasks.resolve import make_env

    measure: list[Callable[[str], int]] = []  # filled with the model's tokenizer once it is loaded
    env = make_env(
        options.task,
        seed=options.seed,
        headed=options.headed,
        screenshots=options.screenshots,
        observation=options.observation,
        count_tokens=lambda text: measure[0](text) if measure else (len(text) + 3) // 4,
    )
    try:
        from confkv.models import resolve

        resolve(options.model, progress=fetch_progress())
    except BaseException:
        env.close()
        raise
    return Plan(options, policy, env, out, measure)


@contextmanager
def logged(stream: TextIO) -> Iterator[None]:
    """Send what the agent logs, tracebacks above all, to ``stream`` and not to the terminal."""
    logger, handler = logging.getLogger("agent"), logging.StreamHandler(stream)
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def play(plan: Plan, view: View) -> Episode:
    """Load, play, write. Ctrl-C and crashes leave an episode too; the browser is closed whatever happens.

    Raises:
        KeyboardInterrupt: never once loading has begun; the episode says ``interrupted``.
        Exception: what broke the episode, after it was written (if a page had been opened).
    """
    return _Run(plan, view).play()


class _Run:
    def __init__(self, plan: Plan, view: View) -> None:
        self.plan, self.view = plan, view
        self.folder = RunFolder(plan.out)
        self.env = RecordedEnv(plan.env, self.folder)
        self.engine: Any = None
        self.session: Any = None
        self.writer: StepWriter | None = None
        self.load_seconds = 0.0
        self.started_at = datetime.now(UTC)
        self.clock = time.perf_counter()

    def play(self) -> Episode:
        result: Any = None
        failure: BaseException | None = None
        log = io.StringIO()
        try:
            with logged(log):
                result = self._loop()
        except (Exception, KeyboardInterrupt) as error:
            failure = error
        # Ctrl-C and its like wait: closing the browser and writing the records takes a second or two.
        with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            try:
                self.env.close()
            except Exception as error:  # the episode counts for more than a browser that will not close
                failure = failure or error
            interrupted = isinstance(failure, KeyboardInterrupt)
            if failure is not None and not interrupted and not self.folder.opened:
                raise failure
            try:
                episode = self._episode(result, failure)
                self._write(episode)
                self.folder.log(log.getvalue())
            finally:
                self.folder.close()
        if failure is not None and not interrupted:
            raise failure
        return episode

    def _loop(self) -> Any:
        options = self.plan.options
        self.view.phase(f"loading {options.model}")
        from agent.loop import run_episode
        from confkv.engine import Engine

        start = time.perf_counter()
        self.engine = Engine.load(
            model=options.model,
            policy=self.plan.policy,
            device=options.device,
            dtype=options.dtype,
            chunk=options.chunk,
        )
        self.load_seconds = time.perf_counter() - start
        tokenizer = self.engine.tokenizer
        self.plan.measure.append(lambda text: len(tokenizer.encode(text, add_special_tokens=False)))
        self.session = self.engine.session()
        self.writer = StepWriter(self.folder, self.env, self.session)
        self.view.attach(self.session, self.engine.full_bytes)
        self.view.phase("opening the page")
        self.started_at, self.clock = datetime.now(UTC), time.perf_counter()
        return run_episode(
            self.env,
            self.session,
            tokenizer,
            seed=options.seed,
            max_turns=options.max_turns,
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            on_event=self._event,
        )

    def _event(self, event: dict[str, Any]) -> None:
        assert self.writer is not None
        self.writer.event(event)
        self.view.event(event)

    def _episode(self, result: Any, failure: BaseException | None) -> Episode:
        options, stats = self.plan.options, self.session.stats if self.session is not None else None
        if self.writer is not None:
            self.writer.flush(complete=False)
        if failure is None:
            stop_reason, error = str(result.stop_reason), result.error
        elif isinstance(failure, KeyboardInterrupt):
            stop_reason, error = "interrupted", None
        else:
            stop_reason, error = "error", f"{type(failure).__name__}: {failure}"
        episode = Episode(
            task=options.task,
            goal=self.env.goal,
            model=self.engine.name if self.engine is not None else options.model,
            model_fingerprint=str(getattr(self.engine, "fingerprint", "") or ""),
            policy=self.plan.policy.spec,
            seed=options.seed,
            success=bool(result.success) if result is not None else False,
            reward=float(result.reward) if result is not None else 0.0,
            raw_reward=self.env.raw_reward,
            stop_reason=stop_reason,
            error=error,
            answer=result.answer if result is not None else None,
            score_reason=self.env.score_reason,
            turns=int(result.turns) if result is not None else self.writer.turns if self.writer else 0,
            actions=self.writer.actions if self.writer else 0,
            settings=Settings.of(options),
            versions=versions(),
            started_at=self.started_at,
            finished_at=datetime.now(UTC),
            out=str(self.plan.out),
        )
        total = time.perf_counter() - self.clock
        episode.seconds = Seconds(env=self.env.seconds, load=self.load_seconds, total=total)
        if stats is not None:
            episode.tokens_seen, episode.decode_steps = stats.tokens_seen, stats.decode_steps
            episode.kv = KV.of(stats)
            episode.seconds = Seconds.of(stats, env=self.env.seconds, load=self.load_seconds, total=total)
        return episode

    def _write(self, episode: Episode) -> None:
        tau = self.plan.policy.budget.threshold
        outcome = "success" if episode.success else f"no success ({episode.stop_reason})"
        held = f"peak KV {megabytes(episode.kv.peak_bytes)}, full {megabytes(episode.kv.full_bytes)}"
        title = f"{self.plan.heading}\n{outcome}, {episode.turns} turns, {episode.tokens_seen:,} tokens; {held}"
        self.folder.finish(episode, self.session.steps if self.session is not None else [], title=title, tau=tau)


def versions() -> dict[str, str]:
    """Versions of what the figures depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def summary(episode: Episode) -> str:
    """The last lines of ``confkv run``: outcome, tokens, bytes beside full KV, time, files."""
    kv, spent = episode.kv, episode.seconds
    kept = sum(kv.kept_per_layer) / len(kv.kept_per_layer) if kv.kept_per_layer else 0.0
    verdict = "yes" if episode.success else "no"
    compared = times(kv.full_bytes, kv.peak_bytes)
    rows = [
        ("success", f"{verdict} (raw reward {episode.raw_reward:g}; {episode.stop_reason})"),
        ("turns", f"{episode.turns} of at most {episode.settings.max_turns}, {episode.actions} actions"),
        ("tokens seen", f"{episode.tokens_seen:,}; {kept:,.0f} kept at the end"),
        (
            "peak KV",
            f"{megabytes(kv.peak_bytes)}; full KV would have held {megabytes(kv.full_bytes)}"
            + (f" ({compared})" if compared else ""),
        ),
        (
            "seconds",
            f"{spent.total:.1f}: prefill {spent.prefill:.1f}, decode {spent.decode:.1f}, "
            f"cache management {spent.manage:.1f}, browser {spent.env:.1f}",
        ),
        ("files", f"{episode.out} (episode.json, steps.jsonl, decode.npz, cache.png, screenshots/)"),
    ]
    if kv.host_bytes:
        text = f"{kv.recalls:,} recalls, {kv.looks:,} second looks; archive {megabytes(kv.host_bytes)} of host memory"
        rows.insert(4, ("recall", text))
    if episode.score_reason:
        rows.insert(1, ("scored", " ".join(episode.score_reason.split())[:200]))
    if episode.answer is not None:
        rows.insert(1, ("answer", " ".join(episode.answer.split())[:200]))
    if episode.error:
        rows.insert(1, ("error", " ".join(episode.error.split())[:200]))
    return "\n".join(f"{name:<12} {text}" for name, text in rows)
