"""A grid with a real browser: the shop is solved by its oracle alone, and a killed browser costs one episode."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from tasks.cli import app
from tasks.grid.log import read_lines
from tasks.grid.suites import suite
from tasks.records import read_episode

pytestmark = pytest.mark.usefixtures("browser")


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


def test_the_embedded_suite_is_played_and_scored_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["eval", "--suite", "vwa-mini", "--tasks", "vwa-mini/101", "--out"]
    assert app.invoke([*arguments, str(out), "--agent", "oracle", "--observation", "som"]) == 0
    assert app.invoke([*arguments, str(tmp_path / "idle"), "--agent", "noop"]) == 0
    (solved,) = read_lines(out / "results.jsonl")
    (idle,) = read_lines(tmp_path / "idle" / "results.jsonl")
    settings = json.loads((out / "grid.json").read_text())
    assert settings["observation"] == read_episode(out / solved.trace).settings.observation == "som"
    # The pictures of the records are those that the agent was given, marks and all.
    shots = sorted((out / solved.trace / "screenshots").iterdir())
    assert len(shots) == solved.actions + 1
    assert (31, 119, 180) in set(Image.open(shots[0]).convert("RGB").getdata())
    assert not (tmp_path / "idle" / idle.trace / "screenshots").exists()
    assert (solved.success, solved.raw_reward, solved.reason, solved.site) == (True, 1.0, "answer", "classifieds")
    assert (idle.success, idle.raw_reward, idle.reason, idle.answer) == (False, 0.0, "answer", "")
    assert idle.score_reason and idle.score_reason in unescape((tmp_path / "idle" / "report.html").read_text())


def test_the_suites_know_their_tasks() -> None:
    mini = suite("vwa-mini").tasks()
    assert len(mini) == 75 and {task.difficulty for task in mini} == {"easy", "medium", "hard"}
    assert {site: sum(task.site == site for task in mini) for site in ("classifieds", "shopping", "forum")} == {
        "classifieds": 25, "shopping": 25, "forum": 25
    }  # fmt: skip
    demo, miniwob = suite("demo"), suite("miniwob")
    assert [(task.id, task.site, task.difficulty) for task in demo.tasks()] == [("demo/shop", "shop", "easy")]
    ids = [task.id for task in miniwob.tasks()]
    assert len(ids) > 100 and "miniwob/click-button" in ids and {task.site for task in miniwob.tasks()} == {"miniwob"}
    assert demo.oracle("demo/shop", 0) is not None and miniwob.oracle("miniwob/click-button", 0) is None
