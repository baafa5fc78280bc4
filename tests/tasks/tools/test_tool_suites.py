"""Suites of tool use in the grid, and their tasks by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("bfcl_eval", reason="the extra `tools` is not installed; scripts/setup.sh does it")
pytest.importorskip("tau2", reason="the extra `tools` is not installed; scripts/setup.sh does it")

from tasks.cli import app
from tasks.errors import TaskError
from tasks.grid.log import read_lines
from tasks.grid.suites import suite
from tasks.resolve import list_tasks, make_env
from tasks.tools.suites import length_group
from tasks.tools.tasks import gold_tokens


def test_the_suites_have_every_task_of_the_benchmarks():
    found = {name: suite(name).tasks() for name in ("bfcl-multi-turn", "bfcl-long-context", "tau2-telecom")}
    assert {name: len(tasks) for name, tasks in found.items()} == {
        "bfcl-multi-turn": 600,
        "bfcl-long-context": 200,
        "tau2-telecom": 114,
    }
    assert Counter(task.site for task in found["tau2-telecom"]) == {"solve": 94, "transfer": 20}
    assert found["bfcl-multi-turn"][0].id == "bfcl/base_0"
    lengths = Counter(task.difficulty for task in found["bfcl-long-context"])
    assert lengths["32k+"] == 42 and sum(lengths.values()) == 200
    assert len(suite("bfcl-long-context-8k").tasks()) == 120
    assert len(suite("bfcl-long-context-12k").tasks()) == 158
    short = [task.id for task in suite("bfcl-long-context-12k").tasks()]
    assert (
        max(gold_tokens()[task] for task in short)
        < 12_000
        <= min(count for task, count in gold_tokens().items() if task not in short)
    )


@pytest.mark.parametrize(("tokens", "group"), [(7_999, "0k-8k"), (8_000, "8k-12k"), (32_000, "32k+")])
def test_groups_of_lengths(tokens, group):
    assert length_group(tokens) == group


@pytest.mark.parametrize("agent", ["oracle", "noop", "random"])
def test_a_grid_plays_them(agent: str, tmp_path: Path):
    for name, tasks in (("bfcl-multi-turn", "bfcl/miss_func_0,bfcl/base_3"), ("tau2-telecom", "tau2/telecom_57")):
        out = tmp_path / name
        arguments = ["eval", "--suite", name, "--tasks", tasks, "--agent", agent, "--out", str(out)]
        assert app.invoke(arguments) == 0
        lines = read_lines(out / "results.jsonl")
        assert lines and {line.success for line in lines} == {agent == "oracle"}
        assert {line.raw_reward for line in lines} == {float(agent == "oracle")}
        if agent == "noop":
            assert all(line.score_reason for line in lines)


def test_tasks_are_known_by_name():
    names = [name for name, _ in list_tasks()]
    assert sum(name.startswith("bfcl/") for name in names) == 800
    assert sum(name.startswith("tau2/") for name in names) == 114
    env = make_env("bfcl/long_context_3", seed=0)
    obs, info = env.reset(seed=0)
    assert obs["goal"] and info["tools"]
    env.close()
    for wrong in ("bfcl/base_200", "bfcl/none_0", "tau2/telecom_114", "tau2/airline_0", "bfcl/"):
        with pytest.raises(TaskError, match="there is no task"):
            make_env(wrong)
    with pytest.raises(TaskError, match="text only"):
        suite("bfcl-multi-turn").make_env("bfcl/base_0", seed=0, observation="som")
