"""The same grid on a Ray cluster: actors on any machine, each with a model and browsers of its own.

Machines need confkv and a browser, not a common disk: an actor sends an episode's line and its folder's bytes, and this
process alone writes to the grid's folder.
"""

from __future__ import annotations

import io
import os
import tempfile
import threading
import zipfile
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.bench.model import Model, load
from tasks.errors import TaskError
from tasks.grid.log import GridLog, begin_trace
from tasks.grid.play import Player, trace_name
from tasks.grid.progress import GridProgress
from tasks.grid.records import NO_CACHE, GridSettings, Key, Line
from tasks.grid.shared import SharedModel
from tasks.grid.suites import TaskInfo, suite
from tasks.grid.watch import off_the_terminal

if TYPE_CHECKING:
    from tasks.grid.run import Plan

TRIES = 2  # times an episode is begun on actors that die before it is counted as broken


class RemotePlayer:
    """What runs in an actor: loads what an episode needs when it comes, and plays it."""

    def __init__(self, settings: str, screenshots: bool, home: str) -> None:
        self._settings, self._screenshots = GridSettings.model_validate_json(settings), screenshots
        self._home = Path(home)
        self._suite = suite(self._settings.suite)
        self._suite.tasks()  # registers what the suite plays
        self._models: dict[str, SharedModel | None] = {}

    def ready(self) -> bool:
        """Answers once the actor is made."""
        return True

    def play(self, key: str, task: TaskInfo) -> tuple[str, bytes]:
        """An episode's line as JSON, and its folder as a zip file."""
        asked = Key.model_validate_json(key)
        model = self._model(asked.model)
        with tempfile.TemporaryDirectory(prefix="confkv-") as folder, off_the_terminal():
            out, stop = Path(folder), threading.Event()
            player = Player(
                self._suite, self._settings, out, model, stop, screenshots=self._screenshots, home=self._home
            )
            line = player.play(asked, task)
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted((out / line.trace).rglob("*")):
                    archive.write(path, path.relative_to(out / line.trace))
        return line.model_dump_json(), packed.getvalue()

    def _model(self, name: str) -> SharedModel | None:
        if name not in self._models:
            self._models.clear()  # one model in memory at a time
            self._models[name] = None if name == NO_CACHE else SharedModel(self._load(name))
        return self._models[name]

    def _load(self, name: str) -> Model:
        settings = self._settings
        return load(name, dtype=settings.dtype, device=settings.device, chunk=settings.chunk)


def play_on_ray(plan: Plan, keys: list[Key], log: GridLog, progress: GridProgress) -> None:
    """Play ``keys`` on as many actors as the grid has workers; ``--ray local`` starts a cluster of this machine.

    Raises:
        TaskError: Ray is not installed, there is no cluster at the address, or weights differ from those on file.
        KeyboardInterrupt: Ctrl-C; actors and their browsers are ended, episodes under way are dropped.
    """
    try:
        import ray
    except ImportError as error:
        raise TaskError(f"--ray needs Ray ({error}); pip install 'confkv[ray]'") from error
    count = min(plan.options.workers, len(keys))
    if not count:
        return
    address = plan.options.ray
    given: dict[str, Any] = {"num_cpus": count, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", **given)
    except (ConnectionError, ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0][:200]
        raise TaskError(f"no Ray cluster at {address} ({why}); start one with `ray start --head`") from error
    try:
        _Driver(ray, plan, keys, log, progress, count).run()
    finally:
        ray.shutdown()


class _Driver:
    """Keeps every actor busy and writes what comes back."""

    def __init__(self, ray: Any, plan: Plan, keys: list[Key], log: GridLog, progress: GridProgress, count: int) -> None:
        self._ray, self._plan, self._log, self._progress = ray, plan, log, progress
        self._left = deque(keys)
        self._tries: dict[str, int] = {}
        cuda = plan.settings.device.startswith("cuda")
        remote = ray.remote(num_cpus=1, num_gpus=int(cuda), max_restarts=-1)(RemotePlayer)
        settings = plan.settings.model_dump_json()
        home = str(plan.out)
        self._actors = [remote.remote(settings, plan.options.screenshots, home) for _ in range(count)]
        self._busy: dict[Any, tuple[int, Key]] = {}  # what is awaited -> (actor, episode)

    def run(self) -> None:
        try:
            self._ray.get([actor.ready.remote() for actor in self._actors])
        except self._ray.exceptions.RayActorError as error:
            why = str(error).strip().splitlines()[-1][:200]
            raise TaskError(
                f"a worker of the cluster cannot play {self._plan.suite.name} ({why}); see its machine"
            ) from error
        self._progress.started()
        for actor in range(len(self._actors)):
            self._next(actor)
        while self._busy:
            ready, _ = self._ray.wait(list(self._busy), timeout=1.0)
            for awaited in ready:
                actor, key = self._busy.pop(awaited)
                self._take(awaited, actor, key)
                self._next(actor)

    def _next(self, actor: int) -> None:
        if not self._left:
            return
        key = self._left.popleft()
        self._tries[key.id] = self._tries.get(key.id, 0) + 1
        self._progress.begin(actor, key)
        awaited = self._actors[actor].play.remote(key.model_dump_json(), self._plan.tasks[key.task])
        self._busy[awaited] = (actor, key)

    def _take(self, awaited: Any, actor: int, key: Key) -> None:
        try:
            text, packed = self._ray.get(awaited)
        except self._ray.exceptions.RayActorError as error:
            if self._tries[key.id] < TRIES:
                self._left.appendleft(key)
                return
            line, packed = _broken(key, self._plan.tasks[key.task], error), b""
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            raise cause from None  # what no later episode could be played after: no model, no disk
        else:
            line = Line.model_validate_json(text)
        if line.fingerprint and self._log.fingerprints(key.model) - {line.fingerprint, ""}:
            raise TaskError(f"{key.model} has other weights than the episodes on file; name another --out")
        _unpack(self._plan.out / line.trace, packed)
        self._log.add(line)
        self._progress.end(actor, line)


def _unpack(final: Path, packed: bytes) -> None:
    """The episode's folder, whole or not at all."""
    partial = begin_trace(final)
    partial.mkdir(parents=True)
    if packed:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            archive.extractall(partial)
    os.replace(partial, final)


def _broken(key: Key, task: TaskInfo, error: Exception) -> Line:
    """The line of an episode on which the actors died."""
    now = datetime.now(UTC)
    return Line(
        **key.model_dump(),
        site=task.site,
        difficulty=task.difficulty,
        success=False,
        reason="error",
        error=f"the worker's process died {TRIES} times: {' '.join(str(error).split())[:300]}",
        trace=trace_name(key),
        started_at=now,
        finished_at=now,
    )
