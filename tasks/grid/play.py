"""One episode of a grid, from its key to its line. Whatever breaks it is told in the line, not raised."""

from __future__ import annotations

import gc
import io
import os
import re
import shutil
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from agent.actions import MAX_ACTIONS
from agent.records import EpisodeResult
from tasks.episode import versions
from tasks.folder import RunFolder
from tasks.grid import scripted
from tasks.grid.agents import NoopAgent, RandomAgent, ScriptedAgent
from tasks.grid.log import begin_trace
from tasks.grid.records import TRACES, GridSettings, Key, Line
from tasks.grid.shared import Meter, SharedModel, Stopped, token_counter
from tasks.grid.suites import Suite, TaskInfo
from tasks.grid.watch import TurnLog, WatchedAgent, WatchedEnv, logged_here
from tasks.records import EPISODE_FILE, KV, Episode, Seconds, Settings, write_atomically
from tasks.steps import StepWriter

_drawing = threading.Lock()  # matplotlib draws for one thread at a time


def trace_name(key: Key) -> str:
    """The folder of an episode's records within the grid's: readable, and its own."""
    parts = [key.task, key.policy, *([] if key.history == "persistent" else [key.history]), f"s{key.seed}"]
    name = re.sub(r"[^A-Za-z0-9._=+-]+", "-", "-".join(parts)).strip("-.")
    return f"{TRACES}/{name[:100]}-{key.id}"


class Player:
    """Plays the episodes of one worker, one after the other; each in an environment of its own.

    Args:
        out: the grid's folder.
        model: None for scripted agents.
        stop: set where the grid is to end: the episode under way is dropped.
        home: where the records will be, for what they say of themselves; default: ``out``.
        on_turn: called as each turn begins, with its number.
    """

    def __init__(
        self,
        suite: Suite,
        settings: GridSettings,
        out: Path,
        model: SharedModel | None,
        stop: threading.Event,
        *,
        screenshots: bool = False,
        on_turn: Callable[[int], None] = lambda turn: None,
        home: Path | None = None,
    ) -> None:
        self.home = home or out
        self.suite, self.settings, self.out, self.model, self.stop = suite, settings, out, model, stop
        self.screenshots, self.on_turn = screenshots, on_turn
        self.tokenizer = model.tokenizer() if model is not None else None
        self.env: Any = None

    def play(self, key: Key, task: TaskInfo) -> Line:
        """The line of an episode, whose records are in their folder before this returns.

        Raises:
            Stopped: the grid is to end; nothing of the episode is left.
            TaskError: the records cannot be written.
        """
        final = self.out / trace_name(key)
        partial = begin_trace(final)
        folder = RunFolder(partial)
        folder.open()
        try:
            line = _Episode(self, key, task, folder).play()
        except BaseException:
            folder.close()
            shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:
            # Tracebacks, caught ones too (matplotlib keeps some), tie frames into cycles, and those frames hold the
            # session: a whole cache would wait for the collector, which counts objects and not bytes.
            gc.collect()
        os.replace(partial, final)
        return line


class _Episode:
    """The state of one episode."""

    def __init__(self, player: Player, key: Key, task: TaskInfo, folder: RunFolder) -> None:
        self.player, self.key, self.task, self.folder = player, key, task, folder
        self.meter = Meter()
        self.env: WatchedEnv | None = None
        self.session: Any = None
        self.agent: WatchedAgent | None = None
        self.steps: StepWriter | None = None
        self.turns: TurnLog | None = None
        self.crash: str | None = None
        self.log = io.StringIO()

    def play(self) -> Line:
        started_at, begun = datetime.now(UTC), self.meter.clock()
        result, failure = EpisodeResult(stop_reason="error"), None
        try:
            with logged_here(self.log):
                result = self._result()
        except Exception as error:
            failure = error
            traceback.print_exc(file=self.log)
        finally:
            self._close()
        # Told to stop, the pool kills a browser that keeps its thread waiting: that is no failure of the episode.
        broke = failure is not None or result.stop_reason == "error"
        if result.stop_reason == "interrupted" or (broke and self.player.stop.is_set()):
            raise Stopped
        if failure is not None:
            result.error = " ".join(f"{type(failure).__name__}: {failure}".split())[:500]
        line = self._line(result, started_at, begun)
        self._write(line, result)
        return line

    def _result(self) -> EpisodeResult:
        player, key, limits = self.player, self.key, self.player.settings
        counter = token_counter(player.tokenizer) if player.tokenizer is not None else None
        try:
            env = player.suite.make_env(
                key.task,
                seed=key.seed,
                count_tokens=counter,
                screenshots=player.screenshots,
                observation=limits.observation,
                headed=False,
            )
        except Exception:
            self.crash = "start_failed"
            raise
        player.env = env
        self.env = WatchedEnv(env, self.folder, player.stop)
        if key.agent != "model":
            self.session, self.agent = scripted.NoCache(), WatchedAgent(self._scripted())
            self._listen()
            # An oracle does in ten turns what a model may do in one.
            turns = limits.max_turns * (MAX_ACTIONS if key.agent == "oracle" else 1)
            return scripted.play(
                self.env, self.agent, seed=key.seed, max_turns=turns, on_event=self._event, clock=self.meter.clock
            )
        from agent.loop import run_episode
        from agent.reprefill import Reprefill

        model = player.model
        assert model is not None
        opened = partial(model.session, key.policy, self.meter, player.stop)
        self.session = Reprefill(opened) if key.history == "reprefill" else opened()
        self._listen()
        return run_episode(
            self.env,
            self.session,
            player.tokenizer,
            seed=key.seed,
            max_turns=limits.max_turns,
            max_new_tokens=limits.max_new_tokens,
            temperature=limits.temperature,
            on_event=self._event,
            clock=self.meter.clock,
        )

    def _scripted(self) -> ScriptedAgent:
        key = self.key
        if key.agent == "noop":
            return NoopAgent()
        if key.agent == "random":
            return RandomAgent(key.task, key.seed)
        oracle = self.player.suite.oracle(key.task, key.seed)
        if oracle is None:
            raise LookupError(f"{key.task} has no oracle")
        return oracle

    def _listen(self) -> None:
        assert self.env is not None
        self.steps = StepWriter(self.folder, self.env, self.session, self.meter.clock)
        self.turns = TurnLog(self.env, self.session, self.meter)

    def _event(self, event: dict[str, Any]) -> None:
        assert self.steps is not None and self.turns is not None
        self.steps.event(event)
        self.turns.event(event)
        if event.get("type") == "turn_start":
            self.player.on_turn(int(event["turn"]))

    def _close(self) -> None:
        if self.turns is not None:
            self.turns.flush()
        if self.steps is not None:
            self.steps.flush(complete=False)
        self.player.env = None
        if self.env is not None:
            try:
                self.env.close()
            except Exception:  # the outcome counts for more than a browser that will not close
                traceback.print_exc(file=self.log)

    def _reason(self, result: EpisodeResult) -> str:
        if result.stop_reason != "error":
            return result.stop_reason
        crash = self.crash or (self.env.crash if self.env is not None else None)
        if crash is None and self.meter.failed:
            crash = "model_error"
        if crash is None and self.agent is not None and self.agent.failed:
            crash = "agent_error"
        return crash or "error"

    def _line(self, result: EpisodeResult, started_at: datetime, begun: float) -> Line:
        reason = self._reason(result)
        line = Line(
            **self.key.model_dump(),
            site=self.task.site,
            difficulty=self.task.difficulty,
            success=result.success and result.stop_reason != "error",
            raw_reward=result.raw_reward,
            reason=reason,
            error=result.error,
            score_reason=result.score_reason,
            answer=result.answer,
            turns=result.turns,
            actions=self.steps.actions if self.steps is not None else 0,
            per_turn=self.turns.turns if self.turns is not None else [],
            prefilled=self.meter.fed,
            fingerprint=self.player.model.model.fingerprint if self.player.model is not None else "",
            trace=trace_name(self.key),
            started_at=started_at,
            finished_at=datetime.now(UTC),
        )
        spent = self.env.seconds if self.env is not None else 0.0
        line.seconds = Seconds(env=spent)
        if self.session is not None:
            stats = self.session.stats
            line.tokens, line.decoded, line.kv = stats.tokens_seen, stats.decode_steps, KV.of(stats)
            line.seconds = Seconds.of(stats, env=spent)
        line.seconds.total, line.seconds.wait = self.meter.clock() - begun, self.meter.waited
        return line

    def _write(self, line: Line, result: EpisodeResult) -> None:
        episode = Episode(
            task=line.task,
            goal=result.goal,
            model=line.model,
            model_fingerprint=line.fingerprint,
            policy=line.policy,
            seed=line.seed,
            success=line.success,
            reward=result.reward,
            raw_reward=line.raw_reward,
            stop_reason=line.reason,
            error=line.error,
            score_reason=line.score_reason,
            answer=line.answer,
            turns=line.turns,
            actions=line.actions,
            tokens_seen=line.tokens,
            decode_steps=line.decoded,
            kv=line.kv,
            seconds=line.seconds,
            settings=Settings.of(self.player.settings, screenshots=self.player.screenshots, headed=False),
            versions=versions(),
            started_at=line.started_at,
            finished_at=line.finished_at,
            out=str(self.player.home / line.trace),
        )
        try:
            if line.decoded:
                from confkv.policies import parse_policy

                title = f"{self.key.label}\n{line.reason}, {line.turns} turns, {line.tokens:,} tokens"
                with _drawing:
                    tau = parse_policy(line.policy).budget.threshold
                    self.folder.finish(episode, self.session.steps, title=title, tau=tau)
            else:
                data = (episode.model_dump_json(indent=2) + "\n").encode()
                write_atomically(self.folder.path / EPISODE_FILE, data)
            self.folder.log(self.log.getvalue())
        finally:
            self.folder.close()
