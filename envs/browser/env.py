"""A gymnasium environment around a real browser that lives in another process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, ClassVar, cast, get_args

import gymnasium
from gymnasium.envs.registration import EnvSpec

from envs.browser.captions import Captioner, Captions
from envs.browser.marks import draw
from envs.browser.probe import RemoteProbe
from envs.browser.process import BrowserProcess, WorkerLost
from envs.browser.window import Window
from envs.chromium import find_chromium
from envs.errors import EnvError, ProbeError
from envs.records import ACTIONS, Action, EndScored, Info, Mode, Observation, Task, complete

KEYS = ("goal", "text", "url", "title", "error", "effect")


def _quarter(text: str) -> int:
    return (len(text) + 3) // 4


class Words(gymnasium.Space[str]):
    """Any text (gymnasium's own Text space is limited to a small character set)."""

    def __init__(self) -> None:
        super().__init__((), None)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "".join(self.np_random.choice(list("abc xyz"), size=4))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Words)


class ActionSpace(gymnasium.Space[Action]):
    """The closed action set; samples are harmless (wait, scroll)."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, mask: Any = None, probability: Any = None) -> Action:
        if self.np_random.random() < 0.5:
            return {"name": "wait", "args": {"seconds": 0.0}}
        return {"name": "scroll", "args": {"direction": str(self.np_random.choice(["down", "up"]))}}

    def contains(self, x: Any) -> bool:
        return isinstance(x, dict) and x.get("name") in ACTIONS and isinstance(x.get("args"), dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActionSpace)


class BrowserEnv(gymnasium.Env[Observation, Action]):
    """One browser, one context an episode, a hard deadline on every reset and step.

    Args:
        task: what is played (``envs.records.Task``).
        seed: the episode's seed where ``reset`` is given none; further resets without one count on from it.
        headed: show the browser window.
        screenshots: put a PNG of the page into every step's info.
        observation: ``aria`` (text), ``aria+captions`` (with a line for each picture that the text leaves out),
            ``screenshot`` or ``som`` (the text, and in ``info["image"]`` a PNG; ``som`` marks it with the text's ids).
        captioner: says what a picture shows, for the goal's pictures and for ``aria+captions``.
        count_tokens: tokens of a text, for the cap; by default a quarter of its characters.
        max_tokens: cap of one observation.
        reset_deadline, step_deadline: seconds until the browser is killed and started anew.

    Raises:
        EnvError: at construction when there is no browser, at ``reset`` when it or the task cannot start.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 1}

    def __init__(
        self,
        task: Task,
        *,
        seed: int = 0,
        headed: bool = False,
        screenshots: bool = False,
        observation: Mode = "aria",
        captioner: Captioner | None = None,
        count_tokens: Callable[[str], int] | None = None,
        max_tokens: int = 1500,
        reset_deadline: float = 90.0,
        step_deadline: float = 40.0,
    ) -> None:
        self.task, self.seed = task, seed
        self.spec = EnvSpec(
            "confkv/Browser-v0",
            entry_point=lambda: BrowserEnv(task, seed=seed, headed=headed, max_tokens=max_tokens),
            nondeterministic=True,  # pages have clocks, and info tells seconds
            order_enforce=False,
            disable_env_checker=True,
        )
        self.observation_space = cast(Any, gymnasium.spaces.Dict({key: Words() for key in KEYS}))
        self.action_space = ActionSpace()
        self.render_mode = None
        if observation not in get_args(Mode):
            raise EnvError(f"there is no observation {observation!r}; use one of {', '.join(get_args(Mode))}")
        self.observation = observation
        self._captions = Captions(captioner)
        self._config = {
            "chromium": find_chromium(),
            "headed": headed,
            "screenshots": screenshots,
            "observation": observation,
        }
        self._window = Window(max_tokens, count_tokens or _quarter)
        self._deadlines = {"reset": reset_deadline, "step": step_deadline}
        self._process: BrowserProcess | None = None
        self._goal = ""
        self._last: dict[str, Any] = {}
        self._playing = False
        self._resets = 0
        self._raw = 0.0
        self._verdict: tuple[float, str] | None = None

    @property
    def max_repeats(self) -> int | None:
        """How often an agent may repeat itself in vain by the task's protocol; None where it says nothing of that."""
        return getattr(self.task, "max_repeats", None)

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, None while there is none."""
        return self._process.pid if self._process and self._process.alive else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; the same seed begins the same one."""
        super().reset(seed=seed)
        start = time.perf_counter()
        if seed is not None:
            self.seed, self._resets = seed, 0
        spec = dict(self.task.start(self.seed + self._resets))
        self._resets += 1
        self._window.reset()
        try:
            reply = self._ask({"op": "reset", "spec": spec}, "reset")
        except WorkerLost as first:
            try:
                reply = self._ask({"op": "reset", "spec": spec}, "reset")
            except WorkerLost as second:
                raise EnvError(f"the task's page cannot be opened: {second}; run `confkv doctor`") from first
        images = reply.pop("input_images")
        self._goal = "\n".join([reply["goal"], *self._captions.of_inputs(images)])
        self._playing, self._verdict = True, None
        info = self._info(reply, 0.0, start)
        if images:
            info["input_images"] = images
        return self._observe(reply), cast(dict[str, Any], info)

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out one action; ``obs["error"]`` says what went wrong, a lost browser truncates."""
        if not self._playing:
            raise RuntimeError("call reset() before step()")
        start = time.perf_counter()
        name, args, problem = complete(action)
        if problem:
            reply = self._last | {"error": problem, "effect": "nothing changed", "scored": None}
            return (
                self._observe(reply),
                0.0,
                False,
                False,
                cast(dict[str, Any], self._info(reply, 0.0, start)),
            )
        moved = name == "scroll" and args["id"] is None and self._window.scroll(str(args["direction"]))
        try:
            reply = self._ask({"op": "step", "name": name, "args": args}, "step")
        except (WorkerLost, EnvError) as error:
            self._playing = False
            reply = self._last | {"error": f"{error}; the browser was closed", "effect": "", "scored": None}
            info = self._info(reply, 0.0, start)
            info["worker_restarted"] = True
            return self._observe(reply), 0.0, False, True, cast(dict[str, Any], info)
        if moved:
            reply["effect"] = f"scrolled {args['direction']}"
        raw, done = self._score(name, args, reply)
        self._playing = not done
        info = self._info(reply, raw, start)
        if name == "answer":
            info["answer"] = str(args["text"])
        reward = 1.0 if raw == 1 else 0.0
        return self._observe(reply), reward, done, False, cast(dict[str, Any], info)

    def finish(self, answer: str | None) -> tuple[float, str]:
        """Score the episode, which is over: raw reward, and in one line why it is not 1 ("" where nothing is to tell).

        Tasks that are scored at every step have been: theirs is the last step's. Asked again, the verdict is the same.

        Args:
            answer: what the agent answered; None where it gave none.
        """
        if self._verdict is None:
            self._playing = False
            if isinstance(self.task, EndScored):
                probe = RemoteProbe(self._look)
                self._verdict = self.task.finish(answer, probe)
                with contextlib.suppress(ProbeError):  # a lost browser has lost its tabs as well
                    probe.close()
            else:
                self._verdict = self._raw, ""
        return self._verdict

    def _look(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._process is None or not self._process.alive:
            raise ProbeError("the browser was closed")
        return self._process.ask(request, self._deadlines["step"])

    def _score(self, name: str, args: dict[str, Any], reply: dict[str, Any]) -> tuple[float, bool]:
        answer = str(args["text"]) if name == "answer" else None
        scored = self.task.score(answer)
        if scored is None and reply["scored"]:
            scored = reply["scored"]["reward"], reply["scored"]["done"]
        raw, done = scored or (0.0, False)
        return float(raw), bool(done) or answer is not None

    def _ask(self, request: dict[str, Any], kind: str) -> dict[str, Any]:
        if self._process is None or not self._process.alive:
            self._process = BrowserProcess(self._config)
        return self._process.ask(request, self._deadlines[kind])

    def _observe(self, reply: dict[str, Any]) -> Observation:
        self._last = reply
        if pictures := reply.pop("pictures", None):
            reply["lines"] = reply["lines"] + self._captions.of_page(pictures, RemoteProbe(self._look).fetch)
        return {
            "goal": self._goal,
            "text": self._window.show(reply["head"], reply["lines"], reply["url"]),
            "url": reply["url"],
            "title": reply["title"],
            "error": reply["error"],
            "effect": reply["effect"],
        }

    def _info(self, reply: dict[str, Any], raw: float, start: float) -> Info:
        self._raw = raw
        info: Info = {
            "screenshot": reply["screenshot"],
            "raw_reward": raw,
            "seconds": time.perf_counter() - start,
            "lines": len(reply["lines"]),
            "lines_shown": self._window.shown,
        }
        if self.observation in ("screenshot", "som"):
            info["image"] = reply["screenshot"]
            if self.observation == "som" and reply["screenshot"]:
                info["image"] = draw(reply["screenshot"], reply["boxes"], reply["width"])
        return info

    def render(self) -> None:
        """Nothing to draw here: screenshots are in the info of each step."""

    def close(self) -> None:
        """End the browser and free the task."""
        self._playing = False
        if self._process is not None:
            self._process.close()
            self._process = None
        self.task.close()
