"""A gymnasium environment around a tool-use world."""

from __future__ import annotations

import time
from typing import Any, ClassVar, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec

from envs.browser.env import KEYS, Words
from envs.records import Action, Observation
from envs.tools.check import check_call
from envs.tools.world import CallError, World

#: The action that ends the agent's turn: ``{"name": "respond", "args": {"text": ...}}`` (tau-bench's name for it).
RESPOND = "respond"


class CallSpace(gymnasium.Space[Action]):
    """A call of any name with named arguments; samples say something and call nothing."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, mask: Any = None, probability: Any = None) -> Action:
        return {"name": RESPOND, "args": {"text": str(self.np_random.choice(["yes", "no"]))}}

    def contains(self, x: Any) -> bool:
        return isinstance(x, dict) and isinstance(x.get("name"), str) and isinstance(x.get("args"), dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallSpace)


class ToolEnv(gymnasium.Env[Observation, Action]):
    """Plays one world. An action is a call of a tool, or :data:`RESPOND`, which hands the turn back to the user.

    Observations have the keys of the browser's. ``text`` is the newest message: the user's, or what the call gave;
    ``effect`` is the latter alone; ``error`` says why a call was not carried out. ``url`` names the task and the
    user's turn, so that it changes only between turns. After a reset ``info`` has ``tools`` (function schemas) and
    ``system``. The episode's last step has the official reward, 0 or 1; ``finish`` tells it too, with the reason.

    Nothing in an action is evaluated: calls reach the world only with a name of its tools and JSON values.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    max_repeats = 20  # BFCL's limit of steps in a user's turn; a tool may well be asked the same thing twice

    def __init__(self, world: World) -> None:
        self.world = world
        self.spec = EnvSpec(
            "confkv/Tools-v0",
            entry_point=lambda: ToolEnv(world),
            nondeterministic=True,  # info tells seconds
            order_enforce=False,
            disable_env_checker=True,
        )
        self.observation_space = cast(Any, gymnasium.spaces.Dict({key: Words() for key in KEYS}))
        self.action_space = CallSpace()
        self.render_mode = None
        self._goal = ""
        self._playing = False
        self._verdict: tuple[float, str] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the task anew. Tasks have one form: the seed changes nothing."""
        super().reset(seed=seed)
        started = time.perf_counter()
        opening = self.world.start()
        self._goal, self._playing, self._verdict = opening.message, True, None
        info = self._info(0.0, started) | {"tools": list(opening.tools), "system": opening.system}
        return self._observation(opening.message), info

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out a call, or end the turn. A call that cannot be carried out leaves the world as it is.

        Raises:
            RuntimeError: no episode is under way.
        """
        if not self._playing:
            raise RuntimeError("reset the environment first")
        started = time.perf_counter()
        name, args = action.get("name"), action.get("args")
        effect = error = ""
        over = False
        if name == RESPOND:
            following = self.world.respond(str((args or {}).get("text", "")))
            text, over = following or "", following is None
        else:
            try:
                checked = check_call(name, args, self.world.tools, self.world.hidden)
                result = self.world.call(str(name), checked)
                text = effect = result.content
                over = result.over
            except CallError as problem:
                self.world.refused()
                text = error = str(problem)
        reward = self.finish(None)[0] if over else 0.0
        return self._observation(text, effect, error), reward, over, False, self._info(reward, started)

    def finish(self, answer: str | None) -> tuple[float, str]:
        """The official reward and why it is not 1; an episode that was not played to its end has 0."""
        if self._verdict is None:
            self._verdict = self.world.score()
        self._playing = False
        return self._verdict

    def close(self) -> None:
        """Free the world."""
        self._playing = False
        self.world.close()

    def _observation(self, text: str, effect: str = "", error: str = "") -> Observation:
        url = f"tools:{self.world.name}#{self.world.turn}"
        return {"goal": self._goal, "text": text, "url": url, "title": "", "error": error, "effect": effect}

    def _info(self, reward: float, started: float) -> dict[str, Any]:
        return {
            "screenshot": None,
            "raw_reward": reward,
            "seconds": time.perf_counter() - started,
            "lines": 0,
            "lines_shown": 0,
        }
