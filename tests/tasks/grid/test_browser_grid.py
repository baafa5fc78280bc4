"""A grid with a real browser: the shop is solved by its oracle alone, and a killed browser costs one episode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from envs.chromium import find_chromium
from envs.errors import EnvError
from tasks.cli import app
from tasks.grid.log import read_lines
from tasks.grid.suites import suite


def has_chromium() -> bool:
    try:
        find_chromium()
    except EnvError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_chromium(), reason="no Chromium on this machine")


def test_a_killed_browser_is_one_episode_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from envs.browser import BrowserEnv

    step, killed = BrowserEnv.step, []

    def deadly(self: Any, action: Any) -> Any:
        if action["name"] == "fill" and not killed:
            worker = psutil.Process(self.worker_pid)
            family = [worker, *worker.children(recursive=True)]
            killed.extend(family)
            for process in family:
                process.kill()
        return step(self, action)

    monkeypatch.setattr(BrowserEnv, "step", deadly)
    out = tmp_path / "out"
    arguments = ["eval", "--suite", "demo", "--agent", "oracle", "--seeds", "2", "--screenshots", "--out", str(out)]
    assert app.invoke([*arguments, "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    lost, solved = read_lines(out / "results.jsonl")
    assert (lost.seed, lost.reason, lost.success, lost.turns) == (0, "browser_lost", False, 3)
    assert "the browser was closed" in str(lost.error)
    assert (solved.seed, solved.reason, solved.success, solved.turns, solved.raw_reward) == (1, "done", True, 4, 1.0)
    assert solved.site == "shop" and solved.seconds.env > 0.3
    assert len(list((out / solved.trace / "screenshots").iterdir())) == 5
    (group,) = printed["groups"]
    assert (group["success"]["solved"], group["crashed"], printed["played"]) == (1, 1, 2)
    assert printed == json.loads((out / "summary.json").read_text())


def test_nothing_is_won_by_doing_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert app.invoke(["eval", "--suite", "demo", "--agent", "noop", "--out", str(out)]) == 0
    (line,) = read_lines(out / "results.jsonl")
    assert (line.reason, line.success, line.turns) == ("answer", False, 1)


def test_the_suites_know_their_tasks() -> None:
    demo, miniwob = suite("demo"), suite("miniwob")
    assert [(task.id, task.site, task.difficulty) for task in demo.tasks()] == [("demo/shop", "shop", "easy")]
    ids = [task.id for task in miniwob.tasks()]
    assert len(ids) > 100 and "miniwob/click-button" in ids and {task.site for task in miniwob.tasks()} == {"miniwob"}
    assert demo.oracle("demo/shop", 0) is not None and miniwob.oracle("miniwob/click-button", 0) is None
