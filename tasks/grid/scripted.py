"""An episode without a model: one action a turn, told to the listener as the agent's loop tells its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from agent.actions import format_action
from agent.records import ActionRecord, EpisodeResult, StopReason, TurnRecord
from tasks.grid.agents import ScriptedAgent

_log = logging.getLogger("agent.scripted")


class NoCache:
    """Stands where the episode of a model has its session."""

    def __init__(self) -> None:
        from confkv.telemetry import SessionStats

        self.stats = SessionStats(0, [], {}, 0, 0, 0.0, 0, 0, 0, 0)
        self.steps: list[Any] = []


def play(
    env: Any,
    agent: ScriptedAgent,
    *,
    seed: int,
    max_turns: int,
    on_event: Callable[[dict[str, Any]], None],
    clock: Callable[[], float] = time.perf_counter,
) -> EpisodeResult:
    """Play one episode. An error of the environment's reset is raised; a later one is in the result.

    ``env.finish`` is asked once at the end, with the answer if there is one.
    """
    result = EpisodeResult()
    obs, _ = env.reset(seed=seed)
    result.goal = str(obs["goal"])
    try:
        result.stop_reason = _turns(env, agent, obs, result, max_turns, on_event, clock)
        if result.stop_reason != "error":
            result.scored(*env.finish(result.answer))
    except Exception as error:
        _log.exception("the episode failed")
        result.stop_reason, result.error = "error", f"{type(error).__name__}: {error}".replace("\n", " ")
    return result


def _turns(
    env: Any,
    agent: ScriptedAgent,
    obs: Any,
    result: EpisodeResult,
    max_turns: int,
    emit: Callable[[dict[str, Any]], None],
    clock: Callable[[], float],
) -> StopReason:
    for number in range(1, max_turns + 1):
        started = clock()
        record = TurnRecord(number, str(obs["url"]), str(obs["title"]), str(obs["text"]))
        result.turn_records.append(record)
        emit({"type": "turn_start", "turn": number, "obs": obs, "prompt": ""})
        action = agent.act(obs)
        record.reply = format_action(action)
        emit({"type": "reply", "turn": number, "text": record.reply, "actions": [action], "error": None})
        obs, reward, terminated, truncated, info = env.step(action)
        raw = float(info.get("raw_reward", reward))
        record.actions.append(ActionRecord(dict(action), str(obs["effect"]), str(obs["error"]), float(reward), raw))
        result.reward, result.raw_reward, result.success = float(reward), raw, float(reward) >= 1.0
        emit({"type": "action", "turn": number, "action": action, "obs": obs, "reward": reward, "info": info})
        record.seconds, record.complete = clock() - started, True
        emit({"type": "turn_end", "turn": number})
        if action["name"] == "answer":
            result.answer = str(action["args"].get("text", ""))
            return "answer"
        if truncated and not terminated:
            result.error = str(obs["error"]) or "the environment gave up"
            return "error"
        if terminated:
            return "done"
    return "step_limit"
