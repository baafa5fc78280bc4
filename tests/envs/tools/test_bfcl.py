"""BFCL multi-turn on its own executor and checker: gold, broken and silent agents, and calls that mean harm."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

pytest.importorskip("bfcl_eval", reason="the extra `tools` is not installed; scripts/setup.sh does it")

from envs.tools import RESPOND, ToolEnv
from envs.tools.bfcl import CATEGORIES, BfclWorld, call_source, gold_action, load

#: Entries whose last gold call is redundant: without it the official checker still finds all right.
REDUNDANT = {"multi_turn_base_139", "multi_turn_miss_func_139", "multi_turn_miss_param_139"}


def instances() -> list[str]:
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    return [name for name in vars(multi_turn_utils) if name.endswith("_instance")]


def state(env: ToolEnv) -> dict[str, dict[str, Any]]:
    """What the simulated interfaces of an episode hold."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    owner = env.world._owner
    kept = {name: vars(item) for name, item in vars(multi_turn_utils).items() if name.startswith(owner)}
    return copy.deepcopy({name: {k: repr(v) for k, v in values.items()} for name, values in kept.items()})


def gold_broken_silent(play: Any, entry: str) -> tuple[float, float, float]:
    """Rewards of the gold calls, of those with the last replaced by an unknown tool's, and of no call at all."""
    env = ToolEnv(BfclWorld(entry))
    gold = env.world.gold()
    last = max(index for index, action in enumerate(gold) if action["name"] != RESPOND)
    broken = [*gold[:last], {"name": "no_such_tool", "args": {}}, *gold[last + 1 :]]
    silent = [action for action in gold if action["name"] == RESPOND]
    rewards = play(env, gold), play(env, broken), play(env, silent)
    env.close()
    return rewards


@pytest.mark.parametrize("category", CATEGORIES)
def test_gold_solves_and_neither_broken_nor_silent_does(play, category):
    for entry in list(load(category))[::67]:
        assert gold_broken_silent(play, entry) == (1.0, 0.0, 0.0), entry
    assert instances() == []


@pytest.mark.slow
@pytest.mark.parametrize("category", CATEGORIES)
def test_every_entry(play, category):
    found = {entry: gold_broken_silent(play, entry) for entry in load(category)}
    assert len(found) == 200
    assert [entry for entry, (gold, _, _) in found.items() if gold != 1] == []
    assert {entry for entry, (_, broken, _) in found.items() if broken} == {
        entry for entry in REDUNDANT if entry in found
    }
    assert [entry for entry, (_, _, silent) in found.items() if silent] == []


def test_it_is_a_gymnasium_environment():
    env = ToolEnv(BfclWorld("multi_turn_base_0"))
    check_env(env, skip_render_check=True)
    env.close()


def test_a_turn_hands_over_to_the_user_and_the_reason_counts_the_turns_that_are_right():
    env = ToolEnv(BfclWorld("multi_turn_base_0"))
    obs, info = env.reset(seed=0)
    assert obs["text"] == obs["goal"] and "final_report.pdf" in obs["text"]
    names = [tool["function"]["name"] for tool in info["tools"]]
    assert "mv" in names and "post_tweet" in names
    assert {tool["function"]["parameters"]["type"] for tool in info["tools"]} == {"object"}
    for action in env.world.gold()[:3]:
        obs, reward, over, _, _ = env.step(action)
        assert obs["url"].endswith("#0") and obs["text"] == obs["effect"] and (reward, over) == (0.0, False)
    obs, _, _, _, _ = env.step({"name": RESPOND, "args": {"text": "Done."}})
    assert obs["url"].endswith("#1") and "grep" in obs["text"] and obs["effect"] == ""
    assert env.world.turns_ok() == 1
    for _ in range(3):
        obs, reward, over, _, _ = env.step({"name": RESPOND, "args": {"text": ""}})
    assert (reward, over) == (0.0, True)
    raw, reason = env.finish(None)
    assert raw == 0.0 and reason == "turns_ok 1 of 4: multi_turn:empty_turn_model_response"
    with pytest.raises(RuntimeError, match="reset"):
        env.step({"name": RESPOND, "args": {}})
    env.close()


def test_an_episode_that_is_not_played_to_its_end_has_nothing():
    env = ToolEnv(BfclWorld("multi_turn_base_0"))
    env.reset(seed=0)
    for action in env.world.gold()[:-1]:
        env.step(action)
    assert env.finish(None) == (0.0, "turns_ok 3 of 4: not played to its end")
    env.close()


def test_tools_that_come_later_are_told_with_the_message():
    env = ToolEnv(BfclWorld("multi_turn_miss_func_0"))
    _, info = env.reset(seed=0)
    assert "sort" not in {tool["function"]["name"] for tool in info["tools"]}
    for _ in range(3):
        obs, *_ = env.step({"name": RESPOND, "args": {"text": "I cannot sort."}})
    first = json.loads(obs["text"].splitlines()[0])
    assert first["function"]["name"] == "sort" and "updated some more functions" in obs["text"]
    obs, *_ = env.step({"name": "sort", "args": {"file_name": "nothing.txt"}})
    assert obs["error"] == "" and "nothing.txt" in obs["text"]
    env.close()


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("no_such_tool", {}, "There is no tool 'no_such_tool'"),
        ("__import__('os').system", {"command": "true"}, "There is no tool"),
        ("mkdir(dir_name='x') or mkdir", {"dir_name": "y"}, "There is no tool"),
        ("_load_scenario", {"scenario": {}}, "There is no tool"),
        ("mkdir", {"dir_name='x', **__import__('os').environ or dir_name": "y"}, "has no argument"),
        ("mkdir", {}, "mkdir needs dir_name"),
        ("mkdir", ["x"], "must be a JSON object"),
        ("echo", {"content": "x" * 1_000_000}, "1,000,"),
        ("echo", {"content": float("nan")}, "finite"),
        ("echo", {"content": 10**5000}, "too large"),
        ("echo", {"content": {1, 2}}, "JSON values"),
        ("echo", {"content": {"a": open}}, "JSON values"),
    ],
)
def test_what_means_harm_is_refused_and_changes_nothing(name, args, said):
    env = ToolEnv(BfclWorld("multi_turn_base_0"))
    env.reset(seed=0)
    env.step({"name": "mkdir", "args": {"dir_name": "kept"}})
    before = state(env)
    assert before
    obs, reward, over, cut, _ = env.step({"name": name, "args": args})
    assert said in obs["error"] and len(obs["error"]) < 3000
    assert (reward, over, cut) == (0.0, False, False) and state(env) == before
    env.close()


def test_code_in_an_argument_stays_text(monkeypatch):
    import os

    ran: list[str] = []
    monkeypatch.setattr(os, "system", ran.append)
    env = ToolEnv(BfclWorld("multi_turn_base_0"))
    env.reset(seed=0)
    names = ["__import__('os').system('true')", "sort(x)", "a'b c(d", "{x}\n()", "f'{1}'"]
    for name in names:
        obs, *_ = env.step({"name": "touch", "args": {"file_name": name}})
        assert obs["error"] == "" and "Error during execution" not in obs["text"], name
    obs, *_ = env.step({"name": "ls", "args": {}})
    assert set(names) <= set(json.loads(obs["text"])["current_directory_content"])
    for text in (r"a\(b", r"sort(\\(", "\\x28", "'''"):
        obs, *_ = env.step({"name": "echo", "args": {"content": text}})
        assert json.loads(obs["text"]) == {"terminal_output": text}
    assert ran == []
    env.close()


def test_a_call_is_written_as_literals():
    args = {"text": "f(x)", "flag": True, "none": None, "items": [1, -2.5, {"k": "(v)"}]}
    source = call_source("tool", args)
    assert source == r"tool(text='f\x28x)', flag=True, none=None, items=[1, -2.5, {'k': '\x28v)'}])"
    tool = {"function": {"name": "tool", "parameters": {"properties": dict.fromkeys(args)}}}
    assert gold_action(source, [tool]) == {"name": "tool", "args": args}


def test_arithmetic_that_would_not_end_is_refused():
    entry = next(name for name, (item, _) in load("base").items() if "MathAPI" in item["involved_classes"])
    env = ToolEnv(BfclWorld(entry))
    env.reset(seed=0)
    calls = [
        ("power", {"base": 10, "exponent": 10**9}, "too large"),
        ("logarithm", {"value": 2, "base": 10, "precision": 10**9}, "at most 1000"),
        ("round_number", {"number": 5, "decimal_places": -(10**9)}, "at most 1000"),
    ]
    for name, args, said in calls:
        obs, *_ = env.step({"name": name, "args": args})
        assert said in obs["error"]
    obs, *_ = env.step({"name": "power", "args": {"base": 2, "exponent": 10}})
    assert json.loads(obs["text"]) == {"result": 1024}
    env.close()


def test_two_episodes_share_nothing():
    one, two = (ToolEnv(BfclWorld("multi_turn_base_0")) for _ in range(2))
    one.reset(seed=0)
    two.reset(seed=0)
    one.step({"name": "mkdir", "args": {"dir_name": "only_here"}})
    assert "only_here" in one.step({"name": "ls", "args": {}})[0]["text"]
    assert "only_here" not in two.step({"name": "ls", "args": {}})[0]["text"]
    one.reset(seed=0)
    assert "only_here" not in one.step({"name": "ls", "args": {}})[0]["text"]
    one.close()
    assert instances()
    two.close()
    assert instances() == []
