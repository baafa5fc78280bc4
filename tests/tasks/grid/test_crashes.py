"""What breaks one episode is told in its line; the next one starts clean, and the number of workers changes nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tasks.grid.play import Player
from tasks.grid.records import CRASHES, TRACES, GridSettings
from tasks.grid.shared import Stopped
from tasks.grid.suites import TaskInfo
from tasks.records import read_episode, read_steps


def test_every_crash_has_its_reason_and_the_rest_is_played(play: Any, fake_suite: Any, tmp_path: Path) -> None:
    summary, lines = play(seeds=2)
    assert len(lines) == summary.played == summary.planned == 18
    for (task, _, seed), line in lines.items():
        reason = fake_suite.CRASHES.get(task)
        assert (line.reason, line.success, line.raw_reward) == (
            (reason, False, 0.0) if reason else ("answer", True, 1.0)
        )
        assert line.crashed == bool(reason) == bool(line.error)
        episode = read_episode(tmp_path / "out" / line.trace)
        assert (episode.stop_reason, episode.success, episode.seed) == (line.reason, line.success, seed)
    assert all(env.closed for env in fake_suite.FakeEnv.opened)
    assert len({id(env) for env in fake_suite.FakeEnv.opened}) == 16  # one an episode, but for those that do not start
    (group,) = summary.groups
    assert (group.success.solved, group.success.episodes, group.crashed) == (6, 18, 12)
    assert set(group.reasons) - {"answer"} <= set(CRASHES)


def test_a_crash_says_in_one_line_what_broke_and_the_trace_has_the_rest(play: Any, tmp_path: Path) -> None:
    _, lines = play()
    told = {task: line for (task, _, _), line in lines.items()}
    assert told["fake/no-start"].error == "ConnectionError: the site is down"
    assert told["fake/no-reset"].error == "TimeoutError: the page did not answer"
    assert "server fell over" in str(told["fake/breaks"].error)
    assert "the browser was closed" in str(told["fake/lost"].error)
    assert told["fake/script"].error == 'LookupError: the page has no button "Missing"'
    log = (tmp_path / "out" / told["fake/breaks"].trace / "error.txt").read_text()
    assert "Traceback" in log and "server fell over" in log
    assert not (tmp_path / "out" / told["fake/ok-1"].trace / "error.txt").exists()
    steps = read_steps(tmp_path / "out" / told["fake/ok-1"].trace)
    assert [(s.turn, s.reply, s.complete) for s in steps] == [
        (1, 'click("e1")', True),
        (2, 'answer("word0")', True),
    ]
    assert [turn.turn for turn in told["fake/ok-1"].per_turn] == [1, 2]
    assert read_steps(tmp_path / "out" / told["fake/breaks"].trace)[-1].complete is False


def test_an_environment_that_scores_at_the_end_is_asked_once(play: Any, fake_suite: Any) -> None:
    _, lines = play(tasks="fake/ok-3", seeds=2)
    assert [line.success for line in lines.values()] == [True, True]
    assert [line.score_reason for line in lines.values()] == ["compared", "compared"]
    assert [env.answers for env in fake_suite.FakeEnv.opened] == [1, 1]


def test_workers_change_nothing_but_time(play: Any) -> None:
    _, one = play("one", seeds=3)
    _, four = play("four", seeds=3, workers=4)
    assert one.keys() == four.keys() and len(one) == 27

    def outcome(line: Any) -> Any:
        return line.success, line.reason, line.error, line.turns, line.answer, line.trace

    assert {key: outcome(line) for key, line in one.items()} == {key: outcome(line) for key, line in four.items()}


@pytest.mark.parametrize("agent", ["noop", "random"])
def test_agents_that_know_nothing_win_nothing(agent: str, play: Any) -> None:
    summary, lines = play(agent=agent, tasks="ok", seeds=3, max_turns=4)
    assert summary.groups[0].success.solved == 0 and len(lines) == 9
    if agent == "noop":
        assert {(line.reason, line.turns, line.answer) for line in lines.values()} == {("answer", 1, "")}


def test_a_failure_of_the_disk_ends_the_grid(play: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tasks.errors import TaskError
    from tasks.grid.log import GridLog

    add, added = GridLog.add, []

    def full_after_two(self: Any, line: Any) -> None:
        if len(added) == 2:
            raise TaskError("cannot write results.jsonl (no space); free space")
        added.append(line)
        add(self, line)

    monkeypatch.setattr(GridLog, "add", full_after_two)
    with pytest.raises(TaskError, match="free space"):
        play(seeds=2)
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 2
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["played"] == 2
    monkeypatch.undo()


def test_records_of_an_episode_appear_whole_or_not_at_all(play: Any, tmp_path: Path, fake_suite: Any) -> None:
    seen: list[list[str]] = []
    traces = tmp_path / "out" / TRACES
    step = fake_suite.FakeEnv.step

    def looking(self: Any, given: Any) -> Any:
        seen.append(sorted(path.name for path in traces.iterdir()))
        return step(self, given)

    fake_suite.FakeEnv.step = looking
    try:
        play(tasks="fake/ok-1", seeds=2)
    finally:
        fake_suite.FakeEnv.step = step
    assert [len(names) for names in seen] == [1, 1, 2, 2]
    assert all(sum(name.startswith(".") for name in names) == 1 for names in seen)  # the one under way
    assert not any(path.name.startswith(".") for path in traces.iterdir())


@pytest.mark.parametrize("task", ["fake/no-start", "fake/no-reset", "fake/lost", "fake/scoring"])
def test_what_breaks_after_the_grid_was_told_to_stop_is_no_outcome(task: str, fake_suite: Any, tmp_path: Path) -> None:
    """The pool kills the browser that an episode waits for: it is played again by --resume, not lost to a crash."""
    stop = threading.Event()

    class Stopping(fake_suite.FakeSuite):
        def make_env(self, task_id: str, **options: Any) -> Any:
            class Env(fake_suite.FakeEnv):
                def reset(self, **options: Any) -> Any:
                    began = super().reset(**options) if task_id != "fake/no-reset" else None
                    stop.set()
                    return began or super().reset(**options)

            if task_id == "fake/no-start":
                stop.set()
            return Env(task_id, 0)

    settings = GridSettings(
        suite="fake", tasks=[task], policies=["-"], models=["-"], seeds=1, agent="oracle", histories=["persistent"],
        max_turns=3, max_new_tokens=8, temperature=0.0, dtype="auto", device="cpu", chunk=512,
    )  # fmt: skip
    (key,) = settings.episodes()
    player = Player(Stopping(), settings, tmp_path, None, stop)
    with pytest.raises(Stopped):
        player.play(key, TaskInfo(task))
    assert list((tmp_path / TRACES).iterdir()) == []
