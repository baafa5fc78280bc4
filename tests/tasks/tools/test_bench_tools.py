"""The teacher-forced bench: what is fed, and what agreement means."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.bench import tools
from tasks.bench.forced import agreement
from tasks.cli import app
from tasks.tools.gold import Call, Fed, call_text, pick, script


def test_agreement_of_known_distributions():
    full = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    own = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.2, 0.7]]).log()
    found = agreement(full, own, [0, 1])
    assert found.same == [False, True] and found.rank == [2, 2]
    kl = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert found.kl == pytest.approx([kl, 0.0], abs=1e-6)
    assert found.logp == pytest.approx([math.log(0.25), math.log(0.2)], abs=1e-6)


def episode(task: str, tokenizer: Any, *, pin_tools: bool) -> list[Fed | Call]:
    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    tools_segment = "system" if pin_tools else "text"
    return [
        Fed(ids("You call tools."), "system"),
        Fed(ids("Tools: " + "look, take, drop, " * 8), tools_segment),
        Fed(ids(f"Go {task}."), "goal"),
        Call(ids("look(1)")),
        Fed(ids("A room with a table. " * 6), "observation"),
        Call(ids("take(2)")),
    ]


def test_a_table_is_made_and_a_second_start_measures_nothing(
    bench_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(tools, "script", episode)
    monkeypatch.setattr(tools, "pick", lambda episodes, below: ["north", "south"][:episodes])
    arguments = ["bench", "tools", "--model", str(bench_model), "--out", str(tmp_path / "out"), "--json"]
    arguments += ["--policies", "full window:48 confkv-recall", "--episodes", "2"]
    assert app.invoke(arguments) == 0
    first = json.loads(capfd.readouterr().out)
    rows = {row["policy"]: row for row in first["rows"]}
    assert rows["full"]["agreement"] == 1.0 and rows["full"]["kl"] == 0.0 and rows["full"]["share"] == 1.0
    assert rows["full"]["tokens"] == 28 and rows["full"]["episodes"] == 2
    window = rows["window:n=48"] if "window:n=48" in rows else rows["window:48"]
    assert window["share"] < 1 and window["kl"] > 0 and window["agreement"] < 1
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert app.invoke(arguments) == 0
    assert json.loads(capfd.readouterr().out)["rows"] == first["rows"]
    assert (tmp_path / "out" / "results.jsonl").read_text().splitlines() == lines


def test_a_gold_episode_as_it_is_fed(bench_model: Path):
    pytest.importorskip("bfcl_eval", reason="the extra `tools` is not installed; scripts/setup.sh does it")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bench_model)
    steps = script("bfcl/long_context_39", tokenizer, pin_tools=False)
    assert [step.segment for step in steps[:3] if isinstance(step, Fed)] == ["system", "text", "goal"]
    calls = [tokenizer.decode(step.ids) for step in steps if isinstance(step, Call)]
    assert calls and all(json.loads(text.split("\n")[1])["name"] for text in calls)
    assert call_text({"name": "cd", "args": {"folder": "a"}}) == (
        '<tool_call>\n{"name": "cd", "arguments": {"folder": "a"}}\n</tool_call>'
    )
    after = [steps[index + 1] for index, step in enumerate(steps) if isinstance(step, Call)]
    assert all(isinstance(step, Fed) and step.segment == "observation" for step in after)
    assert len(pick(20, 12_000)) == len(set(pick(20, 12_000))) == 20
