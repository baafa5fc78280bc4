"""A grid goes on after kill -9, Ctrl-C and torn files as if nothing had happened: each episode once, same outcomes."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.errors import TaskError
from tasks.grid.log import open_grid, read_lines, read_settings
from tasks.grid.records import RESULTS_FILE, TRACES, Line

ROOT = Path(__file__).resolve().parents[3]
FAKES = Path(__file__).with_name("fakes.py")


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts ``confkv eval`` in a process of its own, which ends with the test at the latest."""
    started: list[subprocess.Popen[str]] = []

    def begin(delay: float, *arguments: str | Path) -> subprocess.Popen[str]:
        started.append(_start(delay, *arguments))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def _start(delay: float, *arguments: str | Path) -> subprocess.Popen[str]:
    """``delay`` is what a step of the fake suite takes."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    return subprocess.Popen(
        [sys.executable, str(FAKES), str(delay), "eval", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Started from a background job of a script, the tests inherit a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def lines_on_file(out: Path) -> int:
    results = out / RESULTS_FILE
    return results.read_bytes().count(b"\n") if results.exists() else 0


def wait_for_lines(process: subprocess.Popen[str], out: Path, count: int) -> None:
    end = time.monotonic() + 600
    while lines_on_file(out) < count and process.poll() is None:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def outcomes(out: Path) -> list[Any]:
    """What must not depend on interruptions; a repeated key would be a repeated row."""
    rows = [
        (line.task, line.policy, line.seed, line.success, line.raw_reward, line.reason, line.error, line.turns,
         line.actions, line.answer, line.trace)
        for line in read_lines(out / RESULTS_FILE)
    ]  # fmt: skip
    return sorted(rows)


def killed_and_resumed(start: Start, whole: Path, broken: Path, kills: int, delay: float, arguments: list[str]) -> None:
    """Play ``arguments`` undisturbed in ``whole``, and in ``broken`` with kills; compare all that is left."""
    process = start(0.0, *arguments, "--out", whole)
    assert process.wait(timeout=600) == 0, process.communicate()
    episodes = lines_on_file(whole)
    dice = random.Random(11)
    for number in range(kills):
        process = start(delay, *arguments, "--out", broken, "--resume")
        wait_for_lines(process, broken, episodes * number // (kills + 1) + 1)
        time.sleep(dice.uniform(0.0, 0.3))
        assert process.poll() is None, process.communicate()
        process.kill()
        process.wait()
        assert 0 < lines_on_file(broken) < episodes
    process = start(0.0, *arguments, "--out", broken, "--resume")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    todo = int(re.search(r"(\d+) of \d+ episodes to play", errors)[1])  # type: ignore[index]
    assert 0 < todo < episodes, "the last start played all again, or nothing"
    assert outcomes(broken) == outcomes(whole) and len(outcomes(whole)) == episodes
    assert sorted(p.name for p in (broken / TRACES).iterdir()) == sorted(p.name for p in (whole / TRACES).iterdir())
    summaries = [json.loads((out / "summary.json").read_text()) for out in (whole, broken)]
    for summary in summaries:
        assert summary["played"] == summary["planned"] == episodes
    shares = [[(g["success"], g["reasons"], g["turns"]) for g in s["groups"]] for s in summaries]
    assert shares[0] == shares[1]


def test_kills_lose_and_repeat_nothing(start: Start, tmp_path: Path) -> None:
    arguments = ["--suite", "fake", "--agent", "oracle", "--seeds", "10", "--workers", "2", "--tasks", "ok breaks"]
    killed_and_resumed(start, tmp_path / "whole", tmp_path / "broken", 3, 0.08, arguments)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("browser")
def test_five_kills_with_a_real_browser(start: Start, tmp_path: Path) -> None:
    arguments = ["--suite", "demo", "--agent", "oracle", "--seeds", "30", "--workers", "2"]
    killed_and_resumed(start, tmp_path / "whole", tmp_path / "broken", 5, 0.0, arguments)


def test_ctrl_c_leaves_nothing_half_written_and_says_how_to_go_on(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [
        "--suite",
        "fake",
        "--agent",
        "oracle",
        "--seeds",
        "4",
        "--tasks",
        "ok",
        "--workers",
        "3",
        "--out",
        out,
    ]
    process = start(0.3, *arguments)
    wait_for_lines(process, out, 3)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert printed == "" and "Traceback" not in errors
    assert "go on with: confkv eval --suite fake" in errors and "--resume" in errors
    assert errors.endswith("confkv: interrupted\n")
    done = read_lines(out / RESULTS_FILE)
    assert 3 <= len(done) < 12
    # every folder belongs to a line and is whole: what was under way has left nothing
    assert sorted(f"{TRACES}/{p.name}" for p in (out / TRACES).iterdir()) == sorted(line.trace for line in done)
    assert json.loads((out / "summary.json").read_text())["played"] == len(done)
    assert "Not finished" in (out / "report.html").read_text()
    process = start(0.0, *arguments, "--resume", "--json")
    printed, errors = process.communicate(timeout=60)
    summary = json.loads(printed)
    assert (process.returncode, summary["played"]) == (0, 12) and summary["groups"][0]["success"]["solved"] == 12
    assert printed.count("\n") == 1


def is_browser(process: psutil.Process) -> bool:
    try:
        return "chrom" in process.name()
    except psutil.NoSuchProcess:  # the browser's own helpers come and go
        return False


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.usefixtures("browser")
def test_sigterm_closes_the_browsers(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(0.0, "--suite", "demo", "--agent", "oracle", "--seeds", "9", "--workers", "2", "--out", out)
    end = time.monotonic() + 60
    family: list[psutil.Process] = []
    while not any(is_browser(child) for child in family) and time.monotonic() < end:
        time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert not [child for child in family if is_alive(child)]
    assert len(list((out / TRACES).iterdir())) == lines_on_file(out)  # nothing is left of what was under way


def test_a_line_cut_short_is_played_again(play: Any, tmp_path: Path) -> None:
    _, before = play(seeds=2, tasks="ok")
    out = tmp_path / "out"
    whole = (out / RESULTS_FILE).read_bytes()
    last = whole[: whole.rstrip(b"\n").rfind(b"\n") + 1]
    (out / RESULTS_FILE).write_bytes(whole[: len(last) + 40])
    stray = out / TRACES / ".half.partial"
    stray.mkdir()
    (stray / "steps.jsonl").write_text("{")
    torn = out / ".summary.json.77.tmp"
    torn.write_text("{")
    _, after = play(seeds=2, tasks="ok", resume=True)
    assert after.keys() == before.keys() and (out / RESULTS_FILE).read_bytes().startswith(last)
    assert not stray.exists() and not torn.exists()
    kept = [key for key, line in after.items() if line.started_at == before[key].started_at]
    assert len(kept) == 5


def test_separators_within_a_text_do_not_cut_a_line(play: Any, tmp_path: Path) -> None:
    _, lines = play(tasks="fake/ok-1")
    (line,) = lines.values()
    odd = line.model_copy(update={"seed": 1, "answer": "a\u2028b\x85c\x0bd"})
    results = tmp_path / "out" / RESULTS_FILE
    results.write_text(line.model_dump_json() + "\n" + odd.model_dump_json() + "\n", encoding="utf-8")
    assert [found.answer for found in read_lines(results)] == ["word0", "a\u2028b\x85c\x0bd"]


class TestFolders:
    """What an --out may be, and what is said where it may not."""

    def test_a_start_that_was_killed_before_it_wrote_anything(self, play: Any, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / ".grid.json.77.tmp").write_text('{"suite"')
        (tmp_path / "out" / ".lock").write_text("")
        summary, _ = play(tasks="fake/ok-1")
        assert summary.played == 1

    def test_a_grid_is_not_played_over(self, play: Any) -> None:
        play(tasks="fake/ok-1")
        with pytest.raises(TaskError, match="holds a grid already; continue it with --resume"):
            play(tasks="fake/ok-1")

    def test_other_settings_are_named(self, play: Any) -> None:
        play(tasks="fake/ok-1")
        with pytest.raises(TaskError, match=r"max turns: 30 there, 9 asked for"):
            play(tasks="fake/ok-1", resume=True, max_turns=9)
        with pytest.raises(TaskError, match=r"tasks: 1 there, 2 \(with fake/ok-2\) asked for"):
            play(tasks="fake/ok-1 fake/ok-2", resume=True)
        with pytest.raises(TaskError, match=r"agent: 'oracle' there, 'noop' asked for"):
            play(tasks="fake/ok-1", resume=True, agent="noop")

    def test_workers_may_differ(self, play: Any) -> None:
        play(tasks="fake/ok-1")
        summary, _ = play(tasks="fake/ok-1", resume=True, workers=3)
        assert summary.played == 1

    def test_something_else_is_left_alone(self, play: Any, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis.txt").write_text("keep")
        for resume in (False, True):
            with pytest.raises(TaskError, match="not empty and holds no grid"):
                play(tasks="fake/ok-1", resume=resume)
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]

    def test_two_at_a_time_are_refused(self, play: Any, tmp_path: Path) -> None:
        play(tasks="fake/ok-1")
        out = tmp_path / "out"
        with open_grid(out, read_settings(out), resume=True), pytest.raises(TaskError, match="another grid is writing"):
            play(tasks="fake/ok-1", resume=True)

    def test_a_line_of_another_version(self, play: Any, tmp_path: Path) -> None:
        play(tasks="fake/ok-1")
        results = tmp_path / "out" / RESULTS_FILE
        row = json.loads(results.read_text()) | {"colour": "red"}
        results.write_text(json.dumps(row) + "\n")
        with pytest.raises(TaskError, match=r"results.jsonl line 1 is not an episode .*colour"):
            play(tasks="fake/ok-1", resume=True)

    def test_lines_are_what_they_say(self, play: Any) -> None:
        _, lines = play(tasks="fake/ok-1")
        (line,) = lines.values()
        again = Line.model_validate_json(line.model_dump_json())
        assert again == line and again.key.id == line.key.id and line.trace.endswith(line.key.id)
