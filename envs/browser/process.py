"""The parent's handle on the browser process: start it, ask it with a deadline, kill all it started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]

from envs.errors import EnvError

ROOT = Path(__file__).resolve().parents[2]


class WorkerLost(Exception):
    """The worker did not answer in time, or died; it and its browser are gone."""


class BrowserProcess:
    """A worker process in its own session (Ctrl-C does not reach it), spoken to over a socket pair."""

    def __init__(self, config: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", "envs.browser.worker", str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        self._pipe.send(config)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Send a request and wait at most ``deadline`` seconds for its reply.

        Raises:
            WorkerLost: no answer in time, or the process died; it has been killed.
            EnvError: the worker says that the environment cannot work (no browser, no such task).
        """
        try:
            self._pipe.send(request)
            if not self._pipe.poll(deadline):
                self.kill()
                raise WorkerLost(f"the page did not answer within {deadline:g} seconds")
            reply: dict[str, Any] = self._pipe.recv()
        except (EOFError, OSError) as error:
            tail = self.tail()
            self.kill()
            raise WorkerLost("the browser process ended" + (f" ({tail})" if tail else "")) from error
        except KeyboardInterrupt:
            self.kill()  # the reply under way would be taken for the next request's
            raise
        if "failed" in reply:
            if reply["user_facing"]:
                raise EnvError(reply["failed"])
            self.kill()
            raise WorkerLost(reply["failed"].splitlines()[0][:300])
        return reply

    def tail(self) -> str:
        """The last line the worker wrote."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

    def kill(self) -> None:
        """Kill the worker and all it started (driver, browser, renderers)."""
        try:
            family = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        self._process.kill()
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family, timeout=5)
        self._process.wait(timeout=5)
        self._release()

    def close(self, deadline: float = 10.0) -> None:
        """End in order if it still answers, else by force."""
        if self.alive and not self._pipe.closed:
            try:
                self.ask({"op": "close"}, deadline)
                self._process.wait(timeout=5)
            except (WorkerLost, EnvError, subprocess.TimeoutExpired):
                self.kill()
        self._release()

    def _release(self) -> None:
        self._pipe.close()
        self._log.close()
