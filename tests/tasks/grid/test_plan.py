"""What a grid may be asked for, and what is said where it may not; agents without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from envs.records import complete
from tasks.cli import app
from tasks.demo.oracle import ShopOracle
from tasks.errors import TaskError
from tasks.grid import suites
from tasks.grid.agents import NoopAgent, RandomAgent, element
from tasks.grid.play import trace_name
from tasks.grid.run import Options, choose, prepare, specs
from tasks.grid.suites import TaskInfo, suite
from tasks.resolve import make_env
from tasks.vwa.sites import VARIABLES

PAGE = {
    "goal": "g",
    "url": "u",
    "title": "t",
    "error": "",
    "effect": "",
    "text": "\n".join(
        [
            "Notice: nothing",
            'link "Keys" [e1]',
            'textbox "Room" [e2] value "12"',
            'checkbox "One" [e3]',
            'combobox "Size" [e4] value "S" options: S | M | L',
            'button "Locked" [e5] (disabled)',
            "img [e6]",
        ]
    ),
}


class TestChoice:
    TASKS: ClassVar = [TaskInfo(f"s/{site}-{n}", site) for site in ("a", "b", "c") for n in range(4)]

    @pytest.mark.parametrize(
        ("words", "limit", "ids"),
        [
            ("", 0, [t.id for t in TASKS]),
            ("", 5, ["s/a-0", "s/a-1", "s/b-0", "s/b-1", "s/c-0"]),
            ("a-", 2, ["s/a-0", "s/a-1"]),
            ("c-3 A-1", 0, ["s/a-1", "s/c-3"]),
            ("s/*-2", 0, ["s/a-2", "s/b-2", "s/c-2"]),
            ("c-3,s/a-1", 0, ["s/a-1", "s/c-3"]),
            ("s/b-1", 9, ["s/b-1"]),
        ],
    )
    def test_words_and_limits(self, words: str, limit: int, ids: list[str]) -> None:
        assert [task.id for task in choose(self.TASKS, words, limit)] == ids

    def test_an_exact_id_is_that_task_alone(self) -> None:
        tasks = [TaskInfo("m/click"), TaskInfo("m/click-link")]
        assert [task.id for task in choose(tasks, "m/click", 0)] == ["m/click"]

    def test_a_word_that_names_nothing(self) -> None:
        with pytest.raises(TaskError, match=r"--tasks zebra names no task .* such as s/a-0"):
            choose(self.TASKS, "a-1 zebra", 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("full window:512", ["full", "window:512"]),
        ("full,window:512,h2o,confkv-l", ["full", "window:512", "h2o", "confkv-l"]),
        ("confkv:tau=0.5,n_low=256,full h2o:64", ["confkv:tau=0.5,n_low=256", "full", "h2o:64"]),
        ("full,confkv-recall:gate=random,rate=.5,h2o:n=9", ["full", "confkv-recall:gate=random,rate=.5", "h2o:n=9"]),
        (" , full,, ", ["full"]),
    ],
)
def test_blanks_or_commas_separate_policies(text: str, found: list[str]) -> None:
    assert specs(text) == found


BAD = {
    "suite": (["--suite", "webarena"], "webarena"),
    "agent": (["--agent", "ghost"], "ghost"),
    "history": (["--history", "persistent forgetful", "--model", "./model"], "forgetful"),
    "seeds": (["--seeds", "0"], "--seeds"),
    "workers": (["--workers", "0"], "--workers"),
    "limit": (["--limit", "-1"], "--limit"),
    "tasks": (["--tasks", "no-such"], "no-such"),
    "policy": (["--policies", "full confkw", "--model", "./model"], "confkw"),
    "no policy": (["--policies", " ", "--model", "./model"], "--policies"),
    "model": (["--model", "./no/such/model"], "no/such/model"),
    "resume": (["--resume", "--agent", "noop"], "--out"),
    "dtype": (["--dtype", "fp12"], "fp12"),
    "temperature": (["--temperature", "-1"], "--temperature"),
    "observation": (["--observation", "smell"], "aria, aria+captions, screenshot, som"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_code_2_and_no_files(
    case: str, tmp_path: Path, fake_suite: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, named = BAD[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CONFKV_CACHE", str(tmp_path))
    given = ["--suite", "fake", *arguments] if "--suite" not in arguments else arguments
    assert app.invoke(["eval", *given]) == 2
    out, err = capfd.readouterr()
    (line,) = err.splitlines()
    assert out == "" and line.startswith("confkv: ") and named in line
    assert list(tmp_path.iterdir()) == []


def test_a_suite_without_an_oracle_says_so(fake_suite: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fake_suite.FakeSuite, "oracle", lambda self, task, seed: None)
    with pytest.raises(TaskError, match="fake/ok-1 has no oracle; use --agent model, noop or random"):
        prepare(Options(suite="fake", agent="oracle", out=tmp_path / "out"))


def test_policies_are_blank_separated_and_each_is_played_once(fake_suite: Any, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    policies = ["full confkv:tau=0.5,n_low=300", "full window:512"]
    options = Options(suite="fake", policies=policies, models=[str(tmp_path / "model")], out=tmp_path / "out")
    specs = prepare(options).settings.policies
    assert len(specs) == 3 and specs[0] == "full" and specs[2] == "window:512"
    assert "tau=0.5" in specs[1] and "n_low=300" in specs[1]
    assert not (tmp_path / "out").exists()


def test_what_a_scripted_agent_has_no_use_for_is_said(
    fake_suite: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", "--suite", "fake", "--agent", "noop", "--tasks", "ok", "--policies", "full confkv"]
    assert app.invoke([*arguments, "--out", str(tmp_path / "out")]) == 0
    out, err = capfd.readouterr()
    assert "agent noop has no model; --policies, --model and --history are not used" in err
    assert "3 of 3 episodes" in out and "[3 of 3]" in err


def test_a_suite_named_by_its_place_is_imported_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suites.SUITES, "late", "tasks.grid.suites:_demo")
    assert suite("late").name == "demo"


def test_folders_have_names_of_their_own(fake_suite: Any, tmp_path: Path) -> None:
    plan = prepare(Options(suite="fake", agent="noop", seeds=3, out=tmp_path / "out"))
    names = [trace_name(key) for key in plan.settings.episodes()]
    assert len(set(names)) == len(names) == 27
    assert names[0].startswith("traces/fake-ok-1-none-s0-")


class TestVisualWebArena:
    def test_only_tasks_whose_sites_have_addresses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(TaskError, match="no site of VisualWebArena has an address; export VWA_CLASSIFIEDS"):
            suite("visualwebarena")
        monkeypatch.setenv("VWA_REDDIT", "http://127.0.0.1:9")
        found = suite("visualwebarena").tasks()
        # 170 tasks list this site alone; half of them name the home page's address too.
        assert len(found) == 85
        for task in found:
            make_env(task.id).close()
        monkeypatch.setenv("VWA_HOMEPAGE", "http://127.0.0.1:10")
        assert len(suite("visualwebarena").tasks()) == 85 + 84
        assert {task.site for task in found} == {"reddit"}
        assert {task.difficulty for task in found} == {"easy", "medium", "hard"}
        assert found[0].id.startswith("visualwebarena/")


class TestAgents:
    def test_elements_are_found_by_role_and_name(self) -> None:
        assert element(PAGE["text"], "textbox", "Room") == "e2"
        assert element(PAGE["text"], "img", "") == "e6"
        with pytest.raises(LookupError, match='no button "Keys"'):
            element(PAGE["text"], "button", "Keys")

    def test_noop_answers_nothing(self) -> None:
        assert NoopAgent().act(PAGE) == {"name": "answer", "args": {"text": ""}}  # type: ignore[arg-type]

    def test_random_actions_are_valid_seeded_and_of_every_kind(self) -> None:
        def acts(task: str, seed: int) -> list[Any]:
            agent = RandomAgent(task, seed)
            return [agent.act(PAGE) for _ in range(300)]  # type: ignore[arg-type]

        drawn = acts("t", 0)
        assert [complete(act)[2] for act in drawn] == [""] * 300
        assert drawn == acts("t", 0) and drawn != acts("t", 1) and drawn != acts("u", 0)
        kinds = {act["name"] for act in drawn}
        assert kinds == {"answer", "back", "scroll", "wait", "click", "fill", "check", "select_option"}
        assert {act["args"]["id"] for act in drawn if "id" in act["args"]} == {"e1", "e2", "e3", "e4", "e6"}
        assert {act["args"]["option"] for act in drawn if act["name"] == "select_option"} == {"S", "M", "L"}
        assert 10 <= sum(act["name"] == "answer" for act in drawn) <= 60

    def test_the_shop_oracle_says_what_it_misses(self) -> None:
        with pytest.raises(LookupError, match='no textbox "Pickup code"'):
            ShopOracle().act(PAGE)  # type: ignore[arg-type]
