"""tau2 telecom solo on its own environment and evaluators."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

pytest.importorskip("tau2", reason="the extra `tools` is not installed; scripts/setup.sh does it")

from envs.tools import RESPOND, ToolEnv
from envs.tools.telecom import DONE, TRANSFER, TelecomWorld, load


def gold_broken_silent(play: Any, index: int) -> tuple[float, float, float]:
    """Rewards of the gold calls, of those with the last replaced by an unknown tool's, and of none but the last."""
    env = ToolEnv(TelecomWorld(index))
    gold = env.world.gold()
    broken = [*gold[:-2], {"name": "no_such_tool", "args": {}}, gold[-1]]
    rewards = play(env, gold), play(env, broken), play(env, gold[-1:])
    env.close()
    return rewards


@pytest.mark.parametrize("index", [0, 57, 113])
def test_gold_solves_and_neither_broken_nor_silent_does(play, index):
    assert gold_broken_silent(play, index) == (1.0, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_task(play):
    found = [gold_broken_silent(play, index) for index in range(len(load()))]
    assert found == [(1.0, 0.0, 0.0)] * 114


def test_twenty_tasks_want_a_transfer_and_nothing_else():
    worlds = [TelecomWorld(index) for index in range(len(load()))]
    assert sum(world.transfer_only for world in worlds) == 20


def test_an_agent_is_shown_ticket_policy_and_tools():
    env = ToolEnv(TelecomWorld(0))
    obs, info = env.reset(seed=0)
    assert obs["goal"].startswith("<ticket>") and "John Smith" in obs["goal"]
    assert "<policy>" in info["system"] and DONE in info["system"]
    names = [tool["function"]["name"] for tool in info["tools"]]
    assert len(names) == len(set(names)) == 44 and names[-1] == DONE and TRANSFER in names
    obs, reward, over, _, _ = env.step({"name": RESPOND, "args": {"text": "Hello?"}})
    assert "Nobody reads" in obs["text"] and (reward, over) == (0.0, False)
    env.close()


def test_what_means_harm_is_refused_and_changes_nothing():
    env = ToolEnv(TelecomWorld(0))
    env.reset(seed=0)
    inner = env.world._env
    before = inner.get_db_hash(), inner.get_user_db_hash()
    calls = [
        ("no_such_tool", {}),
        ("break_data_saver", {}),  # the task's own set-up
        ("toggle_airplane_mode", {"code": "__import__('os')"}),
        ("get_customer_by_phone", {"phone_number": "x" * 1_000_000}),
        ("get_customer_by_phone", {"tool_name": "toggle_airplane_mode"}),
    ]
    for name, args in calls:
        obs, reward, over, cut, _ = env.step({"name": name, "args": args})
        assert obs["error"] and (reward, over, cut) == (0.0, False, False)
    assert (inner.get_db_hash(), inner.get_user_db_hash()) == before
    env.close()


def test_new_bills_get_the_same_ids_in_the_evaluators_replay():
    env = ToolEnv(TelecomWorld(0))
    env.reset(seed=0)
    # A customer without a draft bill: refuelling makes one, whose random id the replay would not meet again.
    for line, customer in (("L1004", "C1002"), ("L1006", "C1003")):
        args = {"customer_id": customer, "line_id": line, "gb_amount": 1.0}
        env.step({"name": "refuel_data", "args": args})
        env.step({"name": "get_bills_for_customer", "args": {"customer_id": customer}})
    env.step({"name": DONE, "args": {}})
    assert env.finish(None) == (0.0, "the final state is not as the ticket asks")


def test_it_is_a_gymnasium_environment():
    env = ToolEnv(TelecomWorld(0))
    check_env(env, skip_render_check=True)
    env.close()
