"""An environment that scores at the end is asked exactly once, with an answer only where the agent gave one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.loop import run_episode

sys.path.insert(0, str(Path(__file__).parent))
from chat_templates import FAMILIES, family_tokenizer
from test_loop import FakeEnv, FakeSession


@dataclass
class LateEnv(FakeEnv):
    """Steps bring nothing; the answer "42", or what was done, is scored at the end."""

    asked: list[str | None] = field(default_factory=list)
    verdict: tuple[float, str] = (0.5, "half of it")

    def step(self, action: dict[str, Any]) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 0.0, terminated, truncated, info | {"raw_reward": 0.0}

    def finish(self, answer: str | None) -> tuple[float, str]:
        self.asked.append(answer)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return (1.0, "") if answer == "42" else self.verdict


def play(replies: list[Any], env: LateEnv, **limits: int) -> Any:
    family = FAMILIES[0]
    tokenizer = family_tokenizer(family)
    return run_episode(env, FakeSession(tokenizer, family.eos, replies), tokenizer, seed=0, **limits)


@pytest.mark.parametrize(
    ("replies", "limits", "reason", "asked"),
    [
        (['answer("42")'], {}, "answer", ["42"]),
        (['click("e1")', 'answer("")'], {}, "answer", [""]),
        (["No idea."] * 3, {}, "parse_failures", [None]),
        (['click("e1")'] * 3, {"max_turns": 2}, "step_limit", [None]),
        (['click("e2")'] * 9, {}, "repeated_action", [None]),
        (['click("e5")'], {}, "done", [None]),
        (['click("e6")'], {}, "error", []),
        (['click("e1")', KeyboardInterrupt()], {}, "interrupted", []),
    ],
)
def test_it_is_asked_once_whatever_ended_the_episode(
    replies: list[Any], limits: dict[str, int], reason: str, asked: list[str | None]
) -> None:
    env = LateEnv()
    result = play(replies, env, **limits)
    assert (result.stop_reason, env.asked) == (reason, asked)
    right = asked == ["42"]
    assert (result.success, result.reward) == (right, float(right))
    assert result.raw_reward == (1.0 if right else 0.5 if asked else 0.0)
    assert result.score_reason == ("half of it" if asked and not right else "")


def test_scoring_that_fails_is_an_error_and_no_success() -> None:
    result = play(['answer("7")'], LateEnv(verdict=OSError("gone")))  # type: ignore[arg-type]
    assert (result.stop_reason, result.success, result.error) == ("error", False, "OSError: gone")


def test_the_protocol_may_allow_more_repeats() -> None:
    result = play(['click("e2")'] * 9, LateEnv(), max_repeats=5)
    assert (result.stop_reason, result.turns) == ("repeated_action", 5)
