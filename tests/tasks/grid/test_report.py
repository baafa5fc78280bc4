"""Figures of a grid: paired tests against known values, sums by hand, the page and its charts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tasks.cli import app
from tasks.errors import TaskError
from tasks.grid.charts import Bar, Series, bar_chart, line_chart, nice_step
from tasks.grid.mcnemar import compare, exact_p
from tasks.grid.progress import GridProgress, outcome, spoken
from tasks.grid.records import GridSettings, Key, Line, TurnLine
from tasks.grid.report import rebuild, share, write_report
from tasks.grid.summary import summarise
from tasks.records import KV, Seconds

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SETTINGS = GridSettings(
    suite="fake",
    tasks=["fake/a", "fake/b"],
    policies=["full", "window:512"],
    models=["tiny"],
    seeds=2,
    agent="model",
    histories=["persistent"],
    max_turns=30,
    max_new_tokens=256,
    temperature=0.0,
    dtype="fp32",
    device="cpu",
    chunk=512,
)


def line(task: str, policy: str, seed: int, success: bool, reason: str = "answer", turns: int = 2, **more: Any) -> Line:
    key = Key(
        suite="fake",
        task=task,
        policy=policy,
        model="tiny",
        seed=seed,
        agent="model",
        history=more.pop("history", "persistent"),
    )
    size = 100 if policy == "full" else 40
    return Line(
        **key.model_dump(),
        site="north" if task == "fake/a" else "south",
        difficulty="easy",
        success=success,
        reason=reason,
        turns=turns,
        tokens=1000,
        kv=KV(peak_bytes=size + seed, mean_bytes=size / 2, full_bytes=200),
        seconds=Seconds(total=3.0 + seed),
        per_turn=[
            TurnLine(turn=n, seconds=n + seed, first_token_seconds=n / 10, bytes=size * n, full_bytes=100 * n)
            for n in range(1, turns + 1)
        ],
        trace=f"traces/{key.id}",
        started_at=NOW,
        finished_at=NOW,
        **more,
    )


LINES = [
    line("fake/a", "full", 0, True),
    line("fake/b", "full", 0, True, turns=11),
    line("fake/a", "full", 1, True),
    line("fake/b", "full", 1, False, "step_limit"),
    line("fake/a", "window:512", 0, True),
    line("fake/b", "window:512", 0, False, "browser_lost", turns=1, error="<b>gone</b> & lost"),
    line("fake/a", "window:512", 1, False, "repeated_action"),
]


class TestStatistics:
    @pytest.mark.parametrize(
        ("b", "c", "p"),
        [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (1, 9, 22 / 1024), (9, 1, 22 / 1024), (3, 3, 1.0),
         (2, 8, 112 / 1024), (10, 20, 0.09873714670538902)],
    )  # fmt: skip
    def test_exact_p(self, b: int, c: int, p: float) -> None:
        assert exact_p(b, c) == pytest.approx(p, rel=1e-12)

    def test_pairs_are_matched_by_what_they_are_of(self) -> None:
        found = compare(
            {"x": True, "y": True, "z": False, "only": True}, {"x": True, "y": False, "z": False, "w": True}
        )
        assert found is not None
        assert (found.both, found.only_this, found.only_other, found.neither) == (1, 1, 0, 1)
        assert (found.pairs, found.p) == (3, 1.0)
        assert compare({"x": True}, {"y": True}) is None


class TestSummary:
    def test_sums_by_hand(self) -> None:
        summary = summarise(SETTINGS, LINES)
        assert (summary.planned, summary.played, summary.tasks) == (8, 7, 2)
        full, window = summary.groups
        assert (full.policy, full.success.solved, full.success.episodes, full.crashed) == ("full", 3, 4, 0)
        assert full.success.interval.low == pytest.approx(0.3006, abs=1e-4)  # Wilson, 3 of 4
        assert full.success.interval.high == pytest.approx(0.9544, abs=1e-4)
        assert full.against_full is None
        assert (window.success.solved, window.success.episodes, window.crashed) == (1, 3, 1)
        against = window.against_full
        assert against is not None
        # the three episodes both have played: a/0 both, b/0 and a/1 only under full
        assert (against.both, against.only_this, against.only_other, against.neither, against.p) == (1, 0, 2, 0, 0.5)
        assert (full.peak_bytes, full.mean_peak_bytes, full.mean_bytes, window.peak_bytes) == (101, 100.5, 50, 41)
        assert (full.seconds, full.turns, window.turns) == (3.5, 17 / 4, 5 / 3)
        assert list(window.reasons.items()) == [("answer", 1), ("browser_lost", 1), ("repeated_action", 1)]
        assert {site: (s.solved, s.episodes) for site, s in full.by_site.items()} == {"north": (2, 2), "south": (1, 2)}
        assert {key: s.episodes for key, s in window.by_difficulty.items()} == {"easy": 3}

    def test_curves_are_means_over_the_episodes_that_go_so_far(self) -> None:
        full, window = summarise(SETTINGS, LINES).groups
        assert [(p.turn, p.episodes) for p in full.per_turn] == [(1, 4), (2, 4), *((n, 1) for n in range(3, 12))]
        assert (full.per_turn[0].seconds, full.per_turn[1].bytes, full.per_turn[10].full_bytes) == (1.5, 200, 1100)
        assert [p.episodes for p in window.per_turn] == [3, 2]
        assert full.late_first_token_seconds == pytest.approx(1.05) and full.late_turns == 2  # turns 10 and 11
        assert window.late_first_token_seconds is None and window.first_token_seconds == pytest.approx(0.1)

    def test_a_scripted_grid_and_an_empty_one(self) -> None:
        assert summarise(SETTINGS, []).groups == []
        foreign = line("fake/zz", "full", 0, True)
        assert summarise(SETTINGS, [foreign]).played == 0

    def test_reprefilling_is_a_way_of_its_own(self) -> None:
        settings = SETTINGS.model_copy(update={"histories": ["persistent", "reprefill"]})
        summary = summarise(settings, [*LINES, line("fake/a", "full", 0, False, history="reprefill")])
        assert [(g.policy, g.history) for g in summary.groups] == [
            ("full", "persistent"), ("full", "reprefill"), ("window:512", "persistent")
        ]  # fmt: skip
        found = summary.groups[1].against_full
        assert found is not None and (found.only_other, found.pairs) == (1, 1)
        assert [group.late_ratio for group in summary.groups] == [None, None, None]  # it has no late turns
        slow = line("fake/b", "full", 0, True, turns=10, history="reprefill")
        slow.per_turn[9].first_token_seconds = 6.3
        assert summarise(settings, [*LINES, slow]).groups[1].late_ratio == pytest.approx(6.0)  # 6.3 s over 1.05 s

    def test_what_is_compared_is_played_close_together(self) -> None:
        keys = SETTINGS.episodes()
        assert [(k.seed, k.task, k.policy) for k in keys[:4]] == [
            (0, "fake/a", "full"), (0, "fake/a", "window:512"), (0, "fake/b", "full"), (0, "fake/b", "window:512")
        ]  # fmt: skip
        assert len({key.id for key in keys}) == 8

    def test_each_field_makes_another_episode(self) -> None:
        key = SETTINGS.episodes()[0]
        others = [key.model_copy(update={name: 7 if name == "seed" else "other"}) for name in Key.model_fields]
        assert len({key.id, *(other.id for other in others)}) == 8


class TestCharts:
    @pytest.mark.parametrize(
        ("span", "step"), [(1.0, 0.25), (10, 2.5), (7, 2), (0.9, 0.25), (4, 1), (1100, 500), (3e6, 1e6), (0, 1)]
    )
    def test_steps_are_round(self, span: float, step: float) -> None:
        assert nice_step(span) == pytest.approx(step)

    def test_a_line_is_where_its_values_are(self) -> None:
        svg = line_chart("Bytes", [Series("full", [(1, 0), (2, 2), (3, 4)], 0)], lambda v: f"{v:g}")
        points = re.search(r'<polyline points="([^"]+)"', svg)
        assert points is not None
        (x1, y1), (x2, y2), (x3, y3) = (map(float, pair.split(",")) for pair in points[1].split())
        assert x1 == 64 and x3 == 626 and x2 == (x1 + x3) / 2  # the edges of the plot
        assert y1 == 222 and y3 == 14 and y2 == (y1 + y3) / 2  # 0 at the bottom, the largest at the top
        assert "<title>full, turn 2: 2</title>" in svg and ">4</text>" in svg

    def test_bars_have_whiskers_and_nothing_is_drawn_of_nothing(self) -> None:
        svg = bar_chart("Success", [Bar('<"policy">', 0.5, 0.25, 0.75, "1 of 2", 0)])
        assert '<rect x="190" y="8" width="160.0"' in svg and 'x1="270.0" x2="430.0"' in svg
        assert '<"policy">' not in svg and "&lt;&quot;policy&quot;&gt;" in svg
        assert bar_chart("x", []) == "" and line_chart("x", [Series("a", [], 0)], str) == ""


class Page(HTMLParser):
    """What the tests look at: links, sources, tags left open, rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.rows = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.rows += tag == "tr"
        if tag == "a":
            self.links.append(str(given["href"]))
        self.loaded += [value for name, value in attrs if name in ("src", "xlink:href") and value]
        self.loaded += [str(given.get("href"))] if tag == "link" else []
        if tag not in ("meta", "input", "line", "polyline", "rect", "circle", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert not self.open or tag in ("line", "polyline", "rect", "circle") or self.open.pop() == tag, tag


class TestReport:
    @pytest.fixture
    def out(self, tmp_path: Path) -> Path:
        for one in LINES[:2]:
            (tmp_path / one.trace).mkdir(parents=True)
            (tmp_path / one.trace / "steps.jsonl").write_text("")
        (tmp_path / "grid.json").write_text(SETTINGS.model_dump_json())
        (tmp_path / "results.jsonl").write_text("".join(one.model_dump_json() + "\n" for one in LINES))
        return tmp_path

    def test_the_page_stands_alone_and_links_to_what_is_there(self, out: Path) -> None:
        rebuild(out)
        text = (out / "report.html").read_text()
        page = Page(text)
        assert page.open == [] and page.loaded == [] and "@import" not in text and "url(" not in text
        assert page.links == [f"{one.trace}/steps.jsonl" for one in LINES[:2]]
        assert all((out / link).exists() for link in page.links)
        assert "&lt;b&gt;gone&lt;/b&gt; &amp; lost" in text and "<b>gone" not in text
        assert text.count("<figure>") == 4 and "prefers-color-scheme: dark" in text

    def test_the_page_says_what_was_found(self, out: Path) -> None:
        rebuild(out)
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (out / "report.html").read_text()))
        assert "7 of 8 episodes played" in text and "1 of 8 episodes are still to be played" in text
        assert "3 of 4 75% 30% to 95%" in text and "+0 -2, p = 0.5" in text
        for word in ("Success by site", "Why episodes ended", "browser_lost", "step_limit", "First token by turn"):
            assert word in text
        assert "Success by difficulty" not in text  # all are easy

    def test_the_verb_rebuilds_and_prints(self, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert app.invoke(["report", str(out)]) == 0
        printed = capfd.readouterr().out
        assert re.search(r"window:512\s+1 of 3\s+6%-79%\s+\+0 -2, p = 0.5", printed)
        assert str(out) in printed
        assert app.invoke(["report", str(out), "--json"]) == 0
        told = json.loads(capfd.readouterr().out)
        assert told == json.loads((out / "summary.json").read_text()) == summarise(SETTINGS, LINES).model_dump()

    def test_what_is_no_grid(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert app.invoke(["report", str(tmp_path)]) == 2
        (told,) = capfd.readouterr().err.splitlines()
        assert "holds no grid" in told and "confkv eval" in told
        (tmp_path / "grid.json").write_text('{"schema_version": 9}')
        with pytest.raises(TaskError, match="another version"):
            rebuild(tmp_path)

    def test_an_empty_grid_has_a_page_too(self, out: Path) -> None:
        write_report(out, SETTINGS, [])
        assert "No episode is on file yet" in (out / "report.html").read_text()

    def test_shares_in_words(self) -> None:
        assert share(summarise(SETTINGS, LINES).groups[0].success) == "3 of 4 (30% to 95%)"


class TestProgress:
    def test_a_line_an_episode_and_the_time_left(self, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
        now = [100.0]
        monkeypatch.setattr("tasks.grid.progress.time.monotonic", lambda: now[0])
        with GridProgress(total=8, done=4, workers=2, plain=True) as progress:
            assert progress.left is None
            progress.begin(0, LINES[0].key)
            now[0] = 130.0
            progress.end(0, LINES[0])
            assert progress.left == 90.0  # 30 s an episode, 3 are left
            now[0] = 140.0
            progress.end(1, LINES[5])
            assert progress.left == 40.0
        first, second = capfd.readouterr().err.splitlines()
        assert first.startswith("[5 of 8] fake/a · tiny · full · seed 0: success, 2 turns, 3.0 s") and first.endswith(
            "about 2 min left"
        )
        assert "no success (browser_lost)" in second and "<b>gone</b>" in second and second.endswith("about 40 s left")

    @pytest.mark.parametrize(
        ("value", "words"), [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (11100, "3 h 05 min")]
    )
    def test_times_as_people_say_them(self, value: float, words: str) -> None:
        assert spoken(value) == words

    def test_the_bar_names_what_is_played(self) -> None:
        from io import StringIO

        from rich.console import Console

        progress = GridProgress(total=4, done=1, workers=1, stream=StringIO())
        progress.begin(0, LINES[0].key)
        progress.turn(0, 3)
        console = Console(file=StringIO(), width=140)
        console.print(progress._render())
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "1 of 4 episodes" in text and "fake/a · tiny · full · seed 0  turn 3" in text

    def test_an_outcome_in_one_line(self) -> None:
        assert outcome(LINES[3]) == "no success (step_limit), 2 turns, 4.0 s; peak KV 0 kB"


def test_a_grid_becomes_a_file_of_results(play: Any, tmp_path: Path) -> None:
    play(tasks="fake/ok-*", seeds=2)
    script = Path(__file__).resolve().parents[3] / "benchmarks" / "grid.py"
    done = subprocess.run([sys.executable, script, tmp_path / "out"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert (told["benchmark"], told["played"], told["planned"], told["models"]) == ("eval", 6, 6, [])
    assert told["command"].startswith("confkv eval --suite fake --tasks 'fake/ok-1 fake/ok-2 fake/ok-3' --agent oracle")
    (row,) = told["rows"]
    assert (row["solved"], row["episodes"], row["ended"], row["turns"]) == (6, 6, "answer 6", 2.0)
    assert row["wilson_95"] == "0.61 to 1.00"  # Wilson's lower limit is n / (n + 1.96^2)
