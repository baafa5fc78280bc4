"""A suite without a browser, whose tasks succeed, fail and break on demand; run as a script it is ``confkv eval``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tasks.grid import suites
from tasks.grid.agents import ScriptedAgent, action, element
from tasks.grid.suites import TaskInfo

TASKS = [
    TaskInfo("fake/ok-1", "north", "easy"),
    TaskInfo("fake/ok-2", "north", "hard"),
    TaskInfo("fake/no-start", "south", "easy"),
    TaskInfo("fake/no-reset", "south", "easy"),
    TaskInfo("fake/breaks", "south", "hard"),
    TaskInfo("fake/lost", "south", "hard"),
    TaskInfo("fake/script", "west", "hard"),
    TaskInfo("fake/scoring", "west", "hard"),
    TaskInfo("fake/ok-3", "west", "easy"),
]
CRASHES = {
    "fake/no-start": "start_failed",
    "fake/no-reset": "start_failed",
    "fake/breaks": "env_error",
    "fake/lost": "browser_lost",
    "fake/script": "agent_error",
    "fake/scoring": "env_error",
}
DELAY = 0.0  # seconds a step takes


class FakeEnv:
    """Two pages, a word on the first; the second asks for it. ``finish`` scores, where the task has it so."""

    opened: list[FakeEnv] = []  # noqa: RUF012 - the test's own register

    def __init__(self, task: str, seed: int) -> None:
        if task == "fake/no-start":
            raise ConnectionError("the site is down")
        self.task, self.seed, self.page, self.closed, self.answers = task, seed, 0, False, 0
        FakeEnv.opened.append(self)
        if task == "fake/scoring":
            self.finish: Callable[[str | None], tuple[float, str]] = self._broken_finish
        if task == "fake/ok-3":
            self.finish = self._finish

    def _broken_finish(self, answer: str | None) -> tuple[float, str]:
        raise RuntimeError("the scoring page is gone")

    def _finish(self, answer: str | None) -> tuple[float, str]:
        self.answers += 1
        return float(answer == f"word{self.seed}" and self.answers == 1), "compared"

    def _obs(self, effect: str = "", error: str = "") -> dict[str, str]:
        text = f'The word is word{self.seed}.\nlink "Next" [e1]' if self.page == 0 else 'textbox "Word" [e2]'
        return {
            "goal": f"Say the word of {self.task}.",
            "text": text,
            "url": f"http://fake.test/{self.page}",
            "title": "Fake",
            "error": error,
            "effect": effect,
        }

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, str], dict[str, Any]]:
        if self.task == "fake/no-reset":
            raise TimeoutError("the page did not\nanswer")
        self.seed = self.seed if seed is None else seed
        return self._obs(), {}

    def step(self, given: dict[str, Any]) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        time.sleep(DELAY)
        if self.task == "fake/breaks":
            raise RuntimeError("the task's server fell over")
        if self.task == "fake/lost":
            return self._obs(error="the browser process ended; the browser was closed"), 0.0, False, True, {
                "worker_restarted": True
            }  # fmt: skip
        if given["name"] == "answer":
            raw = float(given["args"]["text"] == f"word{self.seed}") if not hasattr(self, "finish") else 0.0
            return self._obs("answered"), raw, True, False, {"raw_reward": raw}
        self.page = 1
        return self._obs("page changed"), 0.0, False, False, {"raw_reward": 0.0}

    def close(self) -> None:
        self.closed = True


class FakeOracle:
    """Reads the word, goes on, says it."""

    def __init__(self, task: str) -> None:
        self._task, self._word = task, ""

    def act(self, observation: Any) -> Any:
        if self._task == "fake/script":
            element(observation["text"], "button", "Missing")
        if "The word is" in observation["text"]:
            self._word = observation["text"].split("The word is ")[1].split(".")[0]
            return action("click", id=element(observation["text"], "link", "Next"))
        return action("answer", text=self._word)


class FakeSuite:
    name = "fake"

    def tasks(self) -> Sequence[TaskInfo]:
        return TASKS

    def make_env(self, task_id: str, *, seed: int, **options: Any) -> Any:
        return FakeEnv(task_id, seed)

    def oracle(self, task_id: str, seed: int) -> ScriptedAgent | None:
        return FakeOracle(task_id)


def main() -> None:
    """``python fakes.py DELAY eval ...``"""
    global DELAY
    from tasks.cli.app import invoke

    DELAY = float(sys.argv.pop(1))
    suites.SUITES["fake"] = FakeSuite
    sys.exit(invoke())


if __name__ == "__main__":
    main()
