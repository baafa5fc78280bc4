"""Play BrowserGym's tasks in our own browser: find an id's class, set it up on a page, ask for the score."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envs.errors import EnvError
from envs.records import TaskSpec

INSTALL = "pip install --no-deps browsergym-core browsergym-miniwob, and pip install miniwob"
SUITES = ("miniwob", "webarena", "visualwebarena", "workarena", "assistantbench")


def miniwob_root() -> Path:
    """The folder of MiniWoB's pages.

    Raises:
        EnvError: the package that carries them is not installed.
    """
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise EnvError(f"the MiniWoB pages are not installed; {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations))) / "html" / "miniwob"


def gym_id(name: str) -> str:
    """``miniwob/click-button`` or ``browsergym/miniwob.click-button`` -> the latter."""
    short = name.removeprefix("browsergym/")
    suite, _, rest = short.partition("/")
    return "browsergym/" + (f"{suite}.{rest}" if rest else short)


def _register(suite: str) -> None:
    if suite == "miniwob":
        os.environ.setdefault("MINIWOB_URL", miniwob_root().as_uri() + "/")
    module = f"browsergym.{suite}" if suite in SUITES else "browsergym.core"
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise EnvError(f"{module} cannot be imported ({error}); {INSTALL}") from error


def list_ids(suite: str = "miniwob") -> list[str]:
    """The ids of a suite, e.g. ``browsergym/miniwob.click-button``."""
    import gymnasium

    _register(suite)
    return sorted(name for name in gymnasium.registry if name.startswith(f"browsergym/{suite}."))


def task_factory(name: str) -> Callable[..., Any]:
    """The callable that makes the task object of an id (called with ``seed=``).

    Raises:
        EnvError: the id or its suite is unknown.
    """
    import gymnasium

    full = gym_id(name)
    suite = full.removeprefix("browsergym/").partition(".")[0]
    _register(suite)
    spec = gymnasium.registry.get(full)
    if spec is None:
        raise EnvError(f"there is no BrowserGym task {full}; `confkv tasks` lists them")
    if "task_class" in spec.kwargs:
        return lambda seed: spec.kwargs["task_class"](seed=seed, **spec.kwargs.get("task_kwargs", {}))
    captured = inspect.getclosurevars(spec.entry_point).nonlocals if callable(spec.entry_point) else {}
    factory = captured.get("task_entrypoint")
    if factory is None:
        raise EnvError(f"{full} is not a BrowserGym task this version can play; check browsergym-core's version")
    return factory  # type: ignore[no-any-return]


class GymTask:
    """One BrowserGym task object, in the worker process."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = gym_id(name)
        self.task = task_factory(name)(seed=seed)
        self.chat: list[dict[str, str]] = []
        self.viewport: dict[str, int] = dict(self.task.viewport)
        self.timeout = float(self.task.timeout)
        self.file_root = miniwob_root().parent.as_posix() if ".miniwob" in "." + self.name.split("/")[-1] else None
        self.context_options = {
            key: value
            for key, value in (("locale", self.task.locale), ("timezone_id", self.task.timezone_id))
            if value is not None
        }

    def setup(self, page: Any) -> str:
        """Prepare the page and return the goal as text."""
        goal, _ = self.task.setup(page=page)
        if isinstance(goal, list):  # chat-style goals: keep their text parts
            goal = "\n".join(part.get("text", "") for part in goal if part.get("type") == "text")
        self.chat = [{"role": "user", "message": goal}]
        return str(goal)

    def validate(self, page: Any, answer: str | None) -> dict[str, Any]:
        """Score now: ``{"reward": raw reward, "done": bool}`` (MiniWoB's raw reward, not its sign)."""
        if answer is not None:
            self.chat.append({"role": "assistant", "message": answer})
        reward, done, message, info = self.task.validate(page, self.chat)
        if message:
            self.chat.append({"role": "user", "message": message})
        raw = info.get("RAW_REWARD_GLOBAL", reward) if isinstance(info, dict) else reward
        return {"reward": float(raw), "done": bool(done), "message": message or ""}

    def teardown(self) -> None:
        """Free what the task holds."""
        self.task.teardown()


class BrowserGymTask:
    """The parent's side: names the task; the page is scored in the worker."""

    def __init__(self, name: str) -> None:
        self.name = gym_id(name)

    def start(self, seed: int) -> TaskSpec:
        """See ``envs.records.Task``."""
        return {"browsergym": self.name, "seed": seed}

    def score(self, answer: str | None) -> None:
        """The worker asks the task."""
        return None

    def close(self) -> None:
        """Nothing is held here."""
