"""The grid on a cluster: a real one of this machine where Ray is installed, and the driver with actors that die."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import TaskError
from tasks.grid.log import read_lines
from tasks.grid.records import RESULTS_FILE, TRACES, Line
from tasks.grid.run import Options, prepare, run
from tasks.records import read_episode


class RayActorError(Exception):
    """The actor is gone."""


class RayTaskError(Exception):
    """The actor's method raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FakeRay(types.ModuleType):
    """As much of Ray as the driver uses: calls are carried out at once, in this process."""

    def __init__(self, before: Callable[[str, tuple[Any, ...]], None] = lambda name, arguments: None) -> None:
        super().__init__("ray")
        self.exceptions = types.SimpleNamespace(RayActorError=RayActorError, RayTaskError=RayTaskError)
        self.before, self.calls, self.up = before, [], False
        self.address: str | None = None

    def init(self, address: str, **options: Any) -> None:
        if address == "nowhere:1":
            raise ConnectionError("could not connect\nto nowhere")
        self.address, self.up = address, True

    def shutdown(self) -> None:
        self.up = False

    def remote(self, **options: Any) -> Any:
        def decorate(kind: Any) -> Any:
            return types.SimpleNamespace(remote=lambda *given: self._actor(kind(*given)))

        return decorate

    def _actor(self, made: Any) -> Any:
        def method(name: str) -> Any:
            def call(*given: Any) -> Any:
                try:
                    self.before(name, given)
                    done: Any = getattr(made, name)(*given)
                except RayActorError as error:
                    done = error
                except Exception as error:
                    done = RayTaskError(error)
                self.calls.append((name, done))
                return len(self.calls) - 1

            return types.SimpleNamespace(remote=call)

        return types.SimpleNamespace(play=method("play"), ready=method("ready"))

    def wait(self, awaited: list[int], timeout: float) -> tuple[list[int], list[int]]:
        return awaited[-1:], awaited[:-1]

    def get(self, awaited: Any) -> Any:
        if isinstance(awaited, list):
            return [self.get(one) for one in awaited]
        done = self.calls[awaited][1]
        if isinstance(done, Exception):
            raise done
        return done


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, fake_suite: Any, tmp_path: Path) -> Callable[..., list[Line]]:
    """Play on a fake cluster: its lines."""

    def played(ray: Any, address: str = "auto", **options: Any) -> list[Line]:
        monkeypatch.setitem(sys.modules, "ray", ray)
        given: dict[str, Any] = {"agent": "oracle", "workers": 2, "tasks": "ok breaks", "out": tmp_path / "out"}
        run(prepare(Options("fake", ray=address, **given | options)), plain=True)
        return read_lines(tmp_path / "out" / RESULTS_FILE)

    return played


def outcomes(lines: Any) -> list[Any]:
    return sorted((line.key.id, line.success, line.reason, line.error, line.turns, line.trace) for line in lines)


def test_it_is_the_same_grid(on: Any, play: Any, tmp_path: Path) -> None:
    ray = FakeRay()
    lines = on(ray, seeds=2)
    _, here = play("here", seeds=2, tasks="ok breaks")
    assert outcomes(lines) == outcomes(here.values()) and len(lines) == 8
    assert not ray.up and ray.address == "auto"
    names = sorted(path.name for path in (tmp_path / "out" / TRACES).iterdir())
    assert names == sorted(path.name for path in (tmp_path / "here" / TRACES).iterdir())
    episode = read_episode(tmp_path / "out" / lines[0].trace)
    assert episode.out == str(tmp_path / "out" / lines[0].trace)  # not where the actor has played it


def test_an_actor_that_dies_is_tried_again_and_then_told(on: Any) -> None:
    deaths: dict[str, int] = {}

    def before(name: str, given: tuple[Any, ...]) -> None:
        if name == "play" and "fake/ok" in given[0]:
            task = given[1].id
            deaths[task] = deaths.get(task, 0) + 1
            if task == "fake/ok-2" or (task == "fake/ok-1" and deaths[task] == 1):
                raise RayActorError("the machine\nwent away")

    lines = {line.task: line for line in on(FakeRay(before))}
    assert deaths == {"fake/ok-1": 2, "fake/ok-2": 2, "fake/ok-3": 1}
    assert (lines["fake/ok-1"].success, lines["fake/ok-3"].success) == (True, True)
    lost = lines["fake/ok-2"]
    assert (lost.success, lost.reason) == (False, "error")
    assert lost.error == "the worker's process died 2 times: the machine went away"
    assert len(lines) == 4


def test_what_no_episode_can_be_played_after_ends_the_grid(on: Any) -> None:
    def before(name: str, given: tuple[Any, ...]) -> None:
        if name == "play":
            raise TaskError("cannot write steps.jsonl (no space); free space")

    ray = FakeRay(before)
    with pytest.raises(TaskError, match="free space"):
        on(ray)
    assert not ray.up


def test_actors_that_cannot_be_made(on: Any, tmp_path: Path) -> None:
    def before(name: str, given: tuple[Any, ...]) -> None:
        raise RayActorError("The actor died\nEnvError: no Chromium found")

    with pytest.raises(TaskError, match=r"cannot play fake \(EnvError: no Chromium found\)"):
        on(FakeRay(before))
    assert read_lines(tmp_path / "out" / RESULTS_FILE) == []


def test_no_ray_and_no_cluster(on: Any) -> None:
    with pytest.raises(TaskError, match=r"pip install 'confkv\[ray\]'"):
        on(None)
    with pytest.raises(TaskError, match=r"no Ray cluster at nowhere:1 \(could not connect\)"):
        on(FakeRay(), address="nowhere:1", resume=True)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'confkv[ray]')")
@pytest.mark.usefixtures("browser")
def test_a_cluster_of_this_machine(tmp_path: Path) -> None:
    options: dict[str, Any] = {"agent": "oracle", "seeds": 3, "workers": 2}
    run(prepare(Options("demo", out=tmp_path / "here", **options)), plain=True)
    run(prepare(Options("demo", out=tmp_path / "there", ray="local", **options)), plain=True)
    here, there = (read_lines(tmp_path / name / RESULTS_FILE) for name in ("here", "there"))
    assert outcomes(here) == outcomes(there) and [line.success for line in there] == [True] * 3
    for line in there:
        assert (tmp_path / "there" / line.trace / "steps.jsonl").exists()
