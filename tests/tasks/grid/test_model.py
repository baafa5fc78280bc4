"""Episodes of a model: threads share its weights, replies do not depend on them, each way of feeding is measured."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import TaskError
from tasks.grid.log import GridLog, read_lines, read_settings
from tasks.grid.progress import GridProgress
from tasks.grid.records import RESULTS_FILE, Line
from tasks.grid.run import load
from tasks.grid.shared import Meter, SharedModel, SharedSession, Stopped
from tasks.records import read_decode, read_steps

OPTIONS: dict[str, Any] = {
    "agent": "model",
    "tasks": "fake/ok-1",
    "dtype": "fp32",
    "max_turns": 2,
    "max_new_tokens": 16,
    "policies": ["full window:64"],
}


@pytest.fixture(scope="module")
def played(bench_model: Path, fakes: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Line]]:
    """A task under two policies in both ways of feeding, three episodes at a time."""
    from tasks.grid import suites
    from tasks.grid.run import Options, prepare, run

    out = tmp_path_factory.mktemp("grid") / "out"
    suites.SUITES["fake"] = fakes.FakeSuite
    try:
        histories = ["persistent reprefill"]
        run(prepare(Options("fake", models=[str(bench_model)], workers=3, histories=histories, out=out, **OPTIONS)))
    finally:
        del suites.SUITES["fake"]
    return out, read_lines(out / RESULTS_FILE)


def test_every_way_is_played_and_measured(played: tuple[Path, list[Line]], bench_model: Path) -> None:
    out, lines = played
    assert len(lines) == 4 and len({(line.policy, line.history) for line in lines}) == 4
    for line in lines:
        assert line.reason in ("step_limit", "answer", "done") and line.model == str(bench_model) and line.fingerprint
        assert line.turns == len(line.per_turn) >= 1 and line.decoded == sum(t.new_tokens for t in line.per_turn)
        assert line.tokens == line.per_turn[-1].tokens_seen > 500
        assert line.prefilled == sum(t.fed_tokens for t in line.per_turn)
        assert 0 < line.kv.mean_bytes <= line.kv.peak_bytes and line.kv.full_bytes > 0
        for turn in line.per_turn:
            assert turn.first_token_seconds is not None and 0 < turn.first_token_seconds < turn.seconds
        steps = read_steps(out / line.trace)
        assert [(s.turn, s.prompt_tokens, s.new_tokens) for s in steps] == [
            (t.turn, t.prompt_tokens, t.new_tokens) for t in line.per_turn
        ]
        assert len(read_decode(out / line.trace / "decode.npz")["confidence"]) == line.decoded
        assert (out / line.trace / "cache.png").exists()


def test_a_persistent_session_feeds_each_token_once(played: tuple[Path, list[Line]]) -> None:
    _, lines = played
    by = {(line.task, line.policy, line.history): line for line in lines}
    told = [line for line in lines if line.turns == 2]
    assert told, "the tiny model must play two turns somewhere"
    for line in told:
        again = line.history == "reprefill"
        second = line.per_turn[1]
        assert (second.fed_tokens > line.per_turn[0].prompt_tokens + second.prompt_tokens) == again
        if not again:
            twin = by[line.task, line.policy, "reprefill"]
            assert line.prefilled < twin.prefilled


def test_full_says_the_same_in_both_ways(played: tuple[Path, list[Line]]) -> None:
    out, lines = played
    replies = {
        line.history: [step.reply for step in read_steps(out / line.trace)] for line in lines if line.policy == "full"
    }
    assert replies["persistent"] == replies["reprefill"] and any(replies["persistent"])


def test_replies_do_not_depend_on_the_workers(
    played: tuple[Path, list[Line]], play: Any, bench_model: Path, tmp_path: Path
) -> None:
    out, lines = played
    _, alone = play("alone", models=[str(bench_model)], workers=1, **OPTIONS)
    for line in lines:
        if line.history == "persistent":
            other = alone[line.task, line.policy, line.seed]
            mine, theirs = read_steps(out / line.trace), read_steps(tmp_path / "alone" / other.trace)
            assert [step.reply for step in mine] == [step.reply for step in theirs]
            assert [step.confidence_mean for step in mine] == [step.confidence_mean for step in theirs]
            assert line.kv == other.kv and line.tokens == other.tokens
            assert other.seconds.wait < 1.0


def test_an_error_of_the_model_is_told_and_the_next_episode_is_fine(
    play: Any, bench_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confkv.session import Session

    extend, calls = Session.extend, [0]

    def broken_once(self: Any, ids: list[int], segment: str = "text") -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise MemoryError("out of memory")
        return extend(self, ids, segment)

    monkeypatch.setattr(Session, "extend", broken_once)
    _, lines = play(models=[str(bench_model)], **OPTIONS | {"policies": ["full"], "seeds": 2})
    first, second = lines.values()
    assert (first.reason, first.success, first.error, first.turns) == (
        "model_error",
        False,
        "MemoryError: out of memory",
        1,
    )
    assert second.reason in ("step_limit", "answer", "done") and second.error is None


def test_other_weights_are_not_mixed_in(played: tuple[Path, list[Line]], bench_model: Path, tmp_path: Path) -> None:
    out, (line, *_) = played
    progress = GridProgress(1, 0, 1, plain=True)
    log = GridLog(tmp_path)
    log.lines = {"a": line}
    assert load(read_settings(out), str(bench_model), log, progress) is not None
    log.lines = {"a": line.model_copy(update={"fingerprint": "other"})}
    with pytest.raises(TaskError, match="has other weights than the episodes on file"):
        load(read_settings(out), str(bench_model), log, progress)


class TestTurns:
    """Sessions take turns at the model."""

    def test_one_pass_at_a_time(self) -> None:
        busy, most = [0], [0]

        class Slow:
            stats, steps, seen = None, (), 0

            def extend(self, ids: list[int], segment: str) -> None:
                busy[0] += 1
                most[0] = max(most[0], busy[0])
                time.sleep(0.02)
                busy[0] -= 1

        lock, stop, meters = threading.Lock(), threading.Event(), [Meter() for _ in range(3)]
        sessions = [SharedSession(Slow(), lock, meter, stop) for meter in meters]
        threads = [threading.Thread(target=session.extend, args=([1, 2],)) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == [1] and [meter.fed for meter in meters] == [2, 2, 2]

    def test_waiting_is_counted_and_the_clock_stands_still(self) -> None:
        asked, lock = threading.Event(), threading.Lock()

        class Door:
            """A lock that tells when somebody stands before it."""

            def __enter__(self) -> None:
                asked.set()
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        class Quick:
            def extend(self, ids: list[int], segment: str) -> None:
                """Takes no time."""

        meter = Meter()
        session = SharedSession(Quick(), Door(), meter, threading.Event())  # type: ignore[arg-type]
        before, begun = meter.clock(), time.perf_counter()
        lock.acquire()
        thread = threading.Thread(target=session.extend, args=([1],))
        thread.start()
        assert asked.wait(10)
        time.sleep(0.05)
        lock.release()
        thread.join()
        went = time.perf_counter() - begun
        assert 0.05 <= meter.waited <= went
        assert meter.clock() - before <= time.perf_counter() - begun - 0.05

    def test_the_model_is_free_between_two_tokens(self, loaded: Any) -> None:
        shared = SharedModel(loaded)
        session = shared.session("full", Meter(), threading.Event())
        session.extend([5, 6, 7])
        tokens = session.generate(max_new_tokens=3, stop_ids=[])
        next(tokens)
        assert not shared.lock.locked()
        assert len(list(tokens)) == 2 and session.seen == 5 and shared.engine("full") is shared.engine("full")

    def test_a_stopped_grid_stops_at_the_next_pass(self, loaded: Any) -> None:
        stop, meter = threading.Event(), Meter()
        session = SharedModel(loaded).session("full", meter, stop)
        session.extend([5, 6, 7])
        tokens = session.generate(max_new_tokens=50, stop_ids=[])
        next(tokens)
        stop.set()
        with pytest.raises(Stopped):
            next(tokens)
        with pytest.raises(Stopped):
            session.extend([1])
        assert not meter.failed


def test_a_cache_is_freed_before_the_next_episode(
    play: Any, bench_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions hold gigabytes; none may wait until the collector finds its cycle, not even one that broke."""
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []
    opened = SharedModel.session

    def session(self: SharedModel, policy: str, *arguments: Any) -> SharedSession:
        alive.append(sum(each() is not None for each in made))
        shared = opened(self, policy, *arguments)
        made.append(weakref.ref(shared._session))
        if len(made) == 2:
            monkeypatch.setattr(type(shared), "generate", broken)
        return shared

    def broken(self: SharedSession, *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        monkeypatch.setattr(SharedModel, "session", session)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(SharedModel, "session", session)
    gc.disable()
    try:
        _, lines = play(**{**OPTIONS, "policies": ["full window:64 h2o"]}, models=[str(bench_model)])
        alive.append(sum(each() is not None for each in made))
    finally:
        gc.enable()
    assert alive == [0, 0, 0, 0]
    assert [line.error for line in lines.values() if line.error] == ["RuntimeError: out of memory"]
