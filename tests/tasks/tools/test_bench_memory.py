"""The memory probe: where facts are told, what is fed and asked, and the table by age."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("bfcl_eval", reason="the extra `tools` is not installed; scripts/setup.sh does it")

from tasks.bench.memory import AgeGroup, group_name
from tasks.cli import app
from tasks.tools import memory
from tasks.tools.memory import SCENARIOS, Conversation, Question, load, locate, right


def test_every_question_of_the_benchmark_and_where_it_is_answered():
    told = [load(name) for name in SCENARIOS]
    assert [len(one.messages) for one in told] == [24, 47, 35, 109, 108]
    assert [len(one.questions) for one in told] == [25, 25, 25, 30, 50]
    located = [q for one in told for q in one.questions if q.message is not None]
    assert len(located) == 142
    first = told[3].questions[0]
    assert first.text == "What is my first name?" and "Michael" in told[3].messages[first.message]
    assert right("Your name is Michael.", first) and not right("Your name is Michaela.", first)


def test_a_source_is_found_by_its_parts():
    messages = ("I like tea.", "I live in Ulm, near the river, in a flat.")
    assert locate("I live in Ulm... in a flat", messages) == 1
    assert locate("I live in Bonn...", messages) is None and locate("", messages) is None


def test_names_of_groups():
    assert group_name(AgeGroup(low=500, high=2000, questions=1, accuracy=0, logp=0)) == "500 to 2,000"
    assert group_name(AgeGroup(low=8000, high=None, questions=1, accuracy=0, logp=0)) == "from 8,000"


def test_a_table_by_age_and_a_second_start_measures_nothing(
    bench_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    said = ("My name is Ada.", *(f"It rained for {n} hours." for n in range(12)), "I live in Ulm.")
    asked = (
        Question("q0", "Name?", ("Ada",), 0),
        Question("q1", "Town?", ("Ulm",), 13),
        Question("q2", "Age?", ("35",), None),
    )
    monkeypatch.setattr(memory, "load", lambda name: Conversation(name, "You help.", said, asked))
    out = tmp_path / "out"
    arguments = ["bench", "memory", "--model", str(bench_model), "--out", str(out), "--json", "--new-tokens", "4"]
    arguments += ["--policies", "full window:64", "--scenarios", "finance"]
    assert app.invoke(arguments) == 0
    printed = json.loads(capfd.readouterr().out)
    full, window = printed["rows"]
    assert (full["questions"], full["share"]) == (3, 1.0) and window["share"] < 1
    assert full["logp"] < 0 and full["logp"] != window["logp"]
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    first = lines[0]
    assert first["age_turns"] == [14, 1, None] and first["age_tokens"][2] is None
    # One token a byte: the last message is as old as the reply to it.
    assert first["age_tokens"][1] == len("Noted.") and first["age_tokens"][0] > 500
    assert [(group["low"], group["questions"]) for group in full["ages"]] == [(0, 1), (500, 1)]
    assert app.invoke(arguments) == 0
    assert json.loads(capfd.readouterr().out)["rows"] == printed["rows"]
    assert len((out / "results.jsonl").read_text().splitlines()) == 2


def test_an_unknown_conversation_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert app.invoke(["bench", "memory", "--scenarios", "diary", "--out", str(tmp_path / "out")]) == 2
    assert "notetaker" in capfd.readouterr().err
