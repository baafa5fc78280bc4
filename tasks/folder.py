"""The folder of a run: checked before loading, filled while it plays, closed by ``episode.json``."""

from __future__ import annotations

import io
import re
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from tasks import figure
from tasks.errors import TaskError
from tasks.records import (
    DECODE_FILE,
    EPISODE_FILE,
    FIGURE_FILE,
    LOG_FILE,
    SCREENSHOTS,
    STEPS_FILE,
    Episode,
    StepLine,
    decode_columns,
    write_atomically,
)


def default_folder(task: str, policy: str, seed: int, now: datetime) -> Path:
    """``runs/<task>-<policy>-<seed>-<time>``, made of characters every file system takes."""
    name = re.sub(r"[^A-Za-z0-9._=+-]+", "-", f"{task}-{policy}-{seed}-{now:%Y%m%d-%H%M%S}").strip("-.")
    return Path("runs") / name[-200:]


def check_folder(path: Path) -> None:
    """Make sure that a run can be written to ``path``, without leaving anything there.

    Raises:
        TaskError: it is a file, or cannot be written.
    """
    try:
        if path.exists() and not path.is_dir():
            raise TaskError(f"--out {path} is a file; name a folder")
        parent = path.absolute()
        while not parent.exists():
            parent = parent.parent
        if not parent.is_dir():
            raise TaskError(f"--out {path} cannot be a folder: {parent} is a file; name another folder")
        with tempfile.TemporaryFile(dir=parent) as probe:
            probe.write(b"\0")
    except OSError as error:
        raise TaskError(f"cannot write to --out {path} ({error.strerror or error}); name another folder") from error


class RunFolder:
    """Writes one run. Nothing is created before ``open``; each line of ``steps.jsonl`` is flushed at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._steps: io.TextIOWrapper | None = None
        self._shots = 0

    @property
    def opened(self) -> bool:
        """Whether the folder has been created by this run."""
        return self._steps is not None

    def open(self) -> None:
        """Create the folder and remove what an earlier run left in it; called again, nothing happens.

        Raises:
            TaskError: it cannot be written.
        """
        if self._steps is not None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in (EPISODE_FILE, STEPS_FILE, DECODE_FILE, FIGURE_FILE, LOG_FILE):
                (self.path / name).unlink(missing_ok=True)
            for shot in (self.path / SCREENSHOTS).glob("[0-9][0-9][0-9]*.[jp][pn]g"):
                shot.unlink()
            self._steps = (self.path / STEPS_FILE).open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise self._unwritable(error) from error

    def screenshot(self, image: bytes | None) -> str | None:
        """Keep a PNG or JPEG under its number; the file's name within the folder, None without an image."""
        if not image:
            return None
        suffix = "jpg" if image.startswith(b"\xff\xd8") else "png"
        name = f"{SCREENSHOTS}/{self._shots:03d}.{suffix}"
        self._shots += 1
        try:
            (self.path / SCREENSHOTS).mkdir(exist_ok=True)
            (self.path / name).write_bytes(image)
        except OSError as error:
            raise self._unwritable(error) from error
        return name

    def step(self, line: StepLine) -> None:
        """Append one turn."""
        self.open()
        assert self._steps is not None
        try:
            self._steps.write(line.model_dump_json() + "\n")
            self._steps.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def finish(self, episode: Episode, steps: Sequence[Any], *, title: str, tau: float | None) -> None:
        """Write the decode table and the figure, then ``episode.json``: it is there only when all else is."""
        self.open()
        columns = decode_columns(steps)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **columns)  # type: ignore[arg-type]
        try:
            write_atomically(self.path / DECODE_FILE, buffer.getvalue())
            figure.write(self.path / FIGURE_FILE, columns, title=title, tau=tau)
            write_atomically(self.path / EPISODE_FILE, (episode.model_dump_json(indent=2) + "\n").encode())
        except OSError as error:
            raise self._unwritable(error) from error

    def log(self, text: str) -> None:
        """Keep what went wrong, tracebacks included, as ``error.txt``; no file where nothing did."""
        if text:
            (self.path / LOG_FILE).write_text(text, encoding="utf-8", errors="backslashreplace")

    def close(self) -> None:
        """Close ``steps.jsonl``."""
        if self._steps is not None:
            self._steps.close()

    def _unwritable(self, error: OSError) -> TaskError:
        why = error.strerror or error
        return TaskError(f"cannot write to {self.path} ({why}); free space or name another --out")


class RecordedEnv:
    """The environment as the loop sees it; times it and keeps its screenshots."""

    def __init__(self, env: Any, folder: RunFolder) -> None:
        self._env, self._folder = env, folder
        self.seconds = 0.0
        self.goal = ""
        self.raw_reward = 0.0
        self.score_reason = ""
        self.shot: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin the episode; the run's folder is created once the page is there."""
        start = time.perf_counter()
        observation, info = self._env.reset(**options)
        self.seconds += time.perf_counter() - start
        self.goal = str(observation.get("goal", ""))
        self._folder.open()
        self._keep(info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One action."""
        start = time.perf_counter()
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
        finally:
            self.seconds += time.perf_counter() - start
        self._keep(info)
        return observation, float(reward), terminated, truncated, info

    def finish(self, answer: str | None) -> tuple[float, str]:
        """The score at the end (``envs.browser.BrowserEnv.finish``); an environment without it has scored its steps."""
        finish = getattr(self._env, "finish", None)
        if finish is None:
            return self.raw_reward, ""
        start = time.perf_counter()
        try:
            raw, reason = finish(answer)
        finally:
            self.seconds += time.perf_counter() - start
        self.raw_reward, self.score_reason = float(raw), str(reason)
        return raw, reason

    def _keep(self, info: dict[str, Any]) -> None:
        self.raw_reward = float(info.get("raw_reward", 0.0))
        self.shot = self._folder.screenshot(info.get("image") or info.get("screenshot"))
