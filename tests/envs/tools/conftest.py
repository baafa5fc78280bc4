"""How a tool-use episode is played to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from envs.tools import ToolEnv


@pytest.fixture
def play() -> Callable[[ToolEnv, list[Any]], float]:
    """The reward of an episode whose last action ends it."""

    def played(env: ToolEnv, actions: list[Any]) -> float:
        env.reset(seed=0)
        reward, over = 0.0, False
        for action in actions:
            _, reward, over, _, _ = env.step(action)
        assert over
        return reward

    return played
