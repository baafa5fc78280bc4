"""Records, folder, figure and summary of a run: values written are values read."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tasks import figure
from tasks.episode import summary
from tasks.errors import TaskError
from tasks.folder import RecordedEnv, RunFolder, check_folder, default_folder
from tasks.live import PlainView, RichView, call_text, megabytes, shorten, times
from tasks.records import (
    KV,
    ActionRecord,
    Episode,
    Seconds,
    Settings,
    StepLine,
    decode_columns,
    read_decode,
    read_episode,
    read_steps,
    write_atomically,
)
from tasks.steps import StepWriter

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
SETTINGS = Settings(
    max_turns=30,
    max_new_tokens=256,
    temperature=0.0,
    dtype="auto",
    device="cpu",
    chunk=512,
    screenshots=True,
    headed=False,
)


def an_episode(**changes: Any) -> Episode:
    base: dict[str, Any] = {
        "task": "demo/shop",
        "model": "tiny",
        "policy": "confkv",
        "seed": 3,
        "success": True,
        "reward": 1.0,
        "raw_reward": 1.0,
        "stop_reason": "answer",
        "turns": 6,
        "actions": 9,
        "tokens_seen": 4210,
        "kv": KV(peak_bytes=14_000_000, full_bytes=58_000_000, mean_bytes=1.5, kept_per_layer=[900, 1100]),
        "seconds": Seconds(prefill=1.0, decode=2.0, manage=0.5, env=3.0, total=7.0),
        "settings": SETTINGS,
        "started_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "finished_at": datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC),
        "out": "runs/x",
    }
    return Episode(**(base | changes))


def a_step(turn: int, confidence: float, budget: int | None, recalled: int = 0) -> Any:
    return SimpleNamespace(
        turn=turn,
        confidence=confidence,
        budget=budget,
        kept=100.5,
        bytes=2**33 + turn,
        seconds=0.25,
        recalled=recalled,
        looked=recalled > 0,
    )


def session_with(steps: list[Any]) -> Any:
    stats = SimpleNamespace(tokens_seen=50, kept_per_layer=[10, 20], bytes=7, peak_bytes=9, full_bytes=30)
    return SimpleNamespace(stats=stats, steps=steps, seen=50)


def test_episode_round_trip_and_no_stray_fields() -> None:
    episode = an_episode(answer="é 漢 \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"))
    text = episode.model_dump_json()
    assert Episode.model_validate_json(text) == episode
    data = json.loads(text)
    assert data["schema_version"] == 1
    assert data["kv"]["peak_bytes"] == 14_000_000 and data["seconds"]["manage"] == 0.5
    with pytest.raises(ValidationError):
        Episode.model_validate(data | {"schema_version": 2})
    with pytest.raises(ValidationError):
        Episode.model_validate(data | {"sucess": True})


def test_decode_columns_keep_values_and_mark_no_budget() -> None:
    columns = decode_columns([a_step(1, 0.5, 128, recalled=70_000), a_step(2, 0.75, None)])
    assert columns["recalled"].tolist() == [70_000, 0] and columns["looked"].tolist() == [True, False]
    assert columns["turn"].tolist() == [1, 2] and columns["bytes"].tolist() == [2**33 + 1, 2**33 + 2]
    assert columns["confidence"].tolist() == [0.5, 0.75]
    assert columns["budget"][0] == 128 and np.isnan(columns["budget"][1])
    assert all(len(column) == 0 for column in decode_columns([]).values())


def test_summary_tells_of_the_archive_only_where_there_is_one() -> None:
    kv = KV(peak_bytes=1_000_000, full_bytes=4_000_000, host_bytes=3_000_000, recalls=1234, looks=56)
    text = summary(an_episode(kv=kv))
    assert "recall       1,234 recalls, 56 second looks; archive 3.0 MB of host memory" in text
    assert "recall" not in summary(an_episode())


def test_peak_ratio_needs_both_sides() -> None:
    assert an_episode().kv.peak_ratio == pytest.approx(58 / 14)
    assert KV().peak_ratio is None


def test_write_atomically_replaces_and_leaves_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")
    write_atomically(target, b"new")
    assert target.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_folder_writes_whole_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    assert not folder.opened and not folder.path.exists()
    folder.open()
    assert folder.screenshot(PNG) == "screenshots/000.png"
    assert folder.screenshot(b"\xff\xd8\xff") == "screenshots/001.jpg"
    assert folder.screenshot(None) is None
    line = StepLine(turn=1, reply="hé\nclick", actions=[ActionRecord(name="click", args={"id": "e1"}, effect="x")])
    folder.step(line)
    assert read_steps(folder.path) == [line], "a line is readable while the run goes on"
    folder.finish(an_episode(), [a_step(1, 0.5, 128)], title="t", tau=0.7)
    folder.close()
    assert read_episode(folder.path) == an_episode()
    assert read_decode(folder.path / "decode.npz")["kept"].tolist() == [100.5]
    assert (folder.path / "cache.png").read_bytes().startswith(b"\x89PNG")
    assert {p.name for p in folder.path.iterdir()} == {
        "episode.json",
        "steps.jsonl",
        "decode.npz",
        "cache.png",
        "screenshots",
    }


def test_second_run_replaces_only_what_runs_write(tmp_path: Path) -> None:
    for turn in (1, 2):
        folder = RunFolder(tmp_path)
        (tmp_path / "notes.txt").write_text("mine")
        folder.open()
        folder.screenshot(PNG)
        if turn == 1:
            folder.screenshot(PNG)
            (tmp_path / "screenshots" / "holiday.png").write_bytes(b"mine")
        folder.step(StepLine(turn=turn))
        folder.close()
    assert [line.turn for line in read_steps(tmp_path)] == [2]
    assert sorted(p.name for p in (tmp_path / "screenshots").iterdir()) == ["000.png", "holiday.png"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_steps_cut_by_a_kill_are_read_to_the_last_whole_line(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text(StepLine(turn=1).model_dump_json() + '\n{"turn": 2, "rep')
    assert [line.turn for line in read_steps(tmp_path)] == [1]


def test_check_folder_refuses_files_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for bad in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TaskError, match="is a file"):
            check_folder(bad)
    check_folder(tmp_path / "new" / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with pytest.raises(TaskError, match="cannot write to --out"):
        check_folder(Path("/proc/confkv/run"))


def test_default_folder_is_one_safe_name() -> None:
    path = default_folder("miniwob/click-button", "confkv:n_high=64,int8=1", 7, datetime(2026, 1, 2, 3, 4, 5))
    assert path == Path("runs/miniwob-click-button-confkv-n_high=64-int8=1-7-20260102-030405")


def test_figure_has_the_expected_panels_and_turns() -> None:
    steps = [a_step(1, 0.5, 256)] * 3 + [a_step(2, 0.8, 128)] * 4
    drawn = figure.draw(decode_columns(steps), title="heading", tau=0.7)
    kept, confidence, held = drawn.axes
    assert [a.get_ylabel() for a in drawn.axes] == ["tokens (mean over layers)", "confidence", "KV, MB"]
    assert held.get_xlabel().startswith("decode step")
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in kept.get_lines()}
    assert lines["budget of the rest"].tolist() == [256.0] * 3 + [128.0] * 4
    assert lines["kept, pinned too"].tolist() == [100.5] * 7
    assert "threshold 0.7" in [line.get_label() for line in confidence.get_lines()]
    assert [t.get_text() for t in kept.texts] == ["turn 1", "turn 2"]
    assert "heading" in drawn.get_suptitle()


def test_figure_without_budget_or_steps(tmp_path: Path) -> None:
    drawn = figure.draw(decode_columns([a_step(1, 0.5, None)]), title="full", tau=None)
    assert "budget of the rest" not in [line.get_label() for line in drawn.axes[0].get_lines()]
    figure.write(tmp_path / "c.png", decode_columns([]), title="nothing", tau=None)
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_figure_thins_turn_labels() -> None:
    drawn = figure.draw(decode_columns([a_step(i, 0.5, 1) for i in range(60)]), title="x")
    assert len(drawn.axes[0].texts) <= figure.MAX_LABELS


def test_summary_names_what_matters() -> None:
    text = summary(an_episode(answer="42 apples"))
    assert "yes (raw reward 1; answer)" in text and "42 apples" in text
    assert "14.0 MB; full KV would have held 58.0 MB (4.1x less)" in text
    assert "4,210; 1,000 kept at the end" in text and "runs/x" in text
    assert "no (raw reward 1; error)" in summary(an_episode(success=False, stop_reason="error", error="boom"))


def test_readable_figures() -> None:
    assert [megabytes(b) for b in (812_000, 14e6, 1.25e9)] == ["812 kB", "14.0 MB", "1.25 GB"]
    assert [times(a, b) for a, b in ((58, 14), (10, 10), (10, 20), (0, 5))] == [
        "4.1x less",
        "about the same",
        "2.0x more",
        "",
    ]
    assert call_text({"name": "press", "args": {"key": "Enter", "id": None}}) == "press(key='Enter')"
    assert shorten("a\nb  c", 10) == "a b c" and shorten("abcdef", 4) == "abc…"


class _Env:
    """Two steps of a page, the second of which cannot be taken."""

    worker_pid = 7

    def reset(self, *, seed: int) -> tuple[dict[str, str], dict[str, Any]]:
        return {"goal": "buy", "text": "page", "url": "u0", "title": "t0"}, {
            "screenshot": PNG,
            "raw_reward": 0.0,
        }

    def step(self, action: Any) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        observation = {"text": "p1", "url": "u1", "title": "t1", "effect": "page changed", "error": ""}
        return observation, 1, True, False, {"screenshot": PNG, "raw_reward": 0.5, "seconds": 0.25}


def test_loop_events_become_step_lines(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    env = RecordedEnv(_Env(), folder)
    assert env.worker_pid == 7
    observation, _ = env.reset(seed=1)
    writer = StepWriter(folder, env, session_with([]))
    action = {"name": "click", "args": {"id": "e1"}}
    token = SimpleNamespace(text="cl", confidence=0.5, budget=1, kept=2.0)
    writer.event({"type": "turn_start", "turn": 1, "obs": observation, "prompt": "new"})
    writer.event({"type": "token", "token": token})
    writer.event({"type": "reply", "turn": 1, "text": "click(e1)", "actions": [action], "error": None})
    observation, reward, *_, info = env.step(action)
    writer.event({"type": "action", "turn": 1, "action": action, "obs": observation, "reward": reward, "info": info})
    writer.event({"type": "turn_end", "turn": 1, "stats": None})
    writer.event({"type": "turn_start", "turn": 2, "obs": observation, "prompt": ""})
    writer.event({"type": "token", "token": token})
    writer.flush(complete=False)
    folder.close()
    first, second = read_steps(tmp_path / "r")
    assert (first.screenshot, first.reply, first.complete, first.new_tokens) == (
        "screenshots/000.png",
        "click(e1)",
        True,
        1,
    )
    (acted,) = first.actions
    assert (acted.effect, acted.raw_reward, acted.screenshot) == ("page changed", 0.5, "screenshots/001.png")
    assert (first.tokens_seen, first.kept, first.peak_bytes, first.confidence_mean) == (50, 15.0, 9, 0.5)
    assert (second.turn, second.reply, second.complete) == (2, "cl", False)
    assert (env.goal, env.raw_reward, writer.actions, writer.turns) == ("buy", 0.5, 1, 2)


def play_events(view: Any) -> None:
    steps = [a_step(1, 0.8, 128)]
    view.attach(session_with(steps), lambda seen: seen * 10)
    page = {"title": "Shop", "url": "http://s/", "effect": "navigated to http://s/", "error": ""}
    view.event({"type": "turn_start", "turn": 1, "obs": page, "prompt": ""})
    view.event({"type": "token", "token": SimpleNamespace(text="go", confidence=0.8, budget=128, kept=15.0)})
    view.event({"type": "reply", "turn": 1, "text": "go", "actions": [], "error": None})
    view.event({"type": "action", "turn": 1, "action": {"name": "back", "args": {}}, "obs": page, "info": {}})
    view.event({"type": "turn_end", "turn": 1})


def test_plain_view_prints_one_line_a_turn() -> None:
    stream = io.StringIO()
    with PlainView("heading", 30, stream) as view:
        view.phase("loading tiny")
        play_events(view)
    heading, loading, turn = stream.getvalue().splitlines()
    assert (heading, loading) == ("heading", "... loading tiny")
    assert turn.startswith("turn 1: back() -> navigated to http://s/ | confidence 0.80 | tokens 15 kept of 50 seen")


def test_rich_view_shows_page_gauge_and_bytes() -> None:
    from rich.console import Console

    view = RichView("heading", 30)
    play_events(view)
    console = Console(file=io.StringIO(), width=110, force_terminal=True, color_system=None)
    console.print(view.render())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for wanted in (
        "heading",
        "1 of 30",
        "Shop",
        "back()",
        "0.80",
        "budget 128",
        "15 kept of 50 seen",
        "full would hold",
    ):
        assert wanted in text
