"""Deadlines, crashes, and no browser left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from envs.browser import BrowserEnv
from envs.errors import EnvError


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _gone(processes: list[psutil.Process], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes if _exists(p)):
            return True
        time.sleep(0.1)
    return False


def _exists(process: psutil.Process) -> bool:
    try:
        process.status()
    except psutil.NoSuchProcess:
        return False
    return True


def test_a_page_that_hangs_ends_within_the_deadline(site, page_task, make_player):
    player = make_player(BrowserEnv(page_task(site + "/hang"), step_deadline=6.0))
    player.reset()
    family = _family(player.env.worker_pid)
    assert any("chrom" in p.name() for p in family)
    start = time.monotonic()
    message = player.do("click", "Freeze")
    assert time.monotonic() - start < 12
    assert player.truncated and "did not answer within 6 seconds" in message
    assert _gone(family)
    assert "Freeze" in player.reset() and player.obs["error"] == ""


def test_a_killed_browser_is_an_observation_and_the_next_reset_works(site, page_task, make_player):
    player = make_player(BrowserEnv(page_task(site + "/")))
    player.reset()
    psutil.Process(player.env.worker_pid).kill()
    player.do("click", "To the form")
    assert player.truncated and "ended" in player.obs["error"]
    assert "To the form" in player.reset()


def test_close_leaves_nothing(site, page_task):
    env = BrowserEnv(page_task(site + "/"))
    env.reset()
    family = _family(env.worker_pid)
    env.close()
    assert _gone(family)


PARENT = """
import sys, time
sys.path[:0] = sys.argv[2].split(":")
from envs.browser import BrowserEnv
class Task:
    def start(self, seed): return {"url": sys.argv[1], "goal": "", "seed": seed}
    def score(self, answer): return 0.0, False
    def close(self): pass
env = BrowserEnv(Task()); obs, _ = env.reset()
print(env.worker_pid, flush=True)
if "Freeze" in obs["text"]: env.step({"name": "click", "args": {"id": "e1"}})
time.sleep(60)
"""


@pytest.mark.parametrize("path", ["/", "/hang"])
def test_killing_the_parent_leaves_no_browser(site, path):
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", PARENT, site + path, root]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    family = _family(int(parent.stdout.readline()))
    assert len(family) > 3
    if path == "/hang":
        time.sleep(1.0)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert _gone(family)


def test_no_browser_is_one_line(monkeypatch, tmp_path, page_task):
    monkeypatch.setenv("CONFKV_CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(EnvError, match=r"CONFKV_CHROMIUM=.*playwright install.*apt-get install chromium"):
        BrowserEnv(page_task("about:blank"))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CONFKV_CHROMIUM", str(broken))
    env = BrowserEnv(page_task("about:blank"))
    with pytest.raises(EnvError, match="does not start") as caught:
        env.reset()
    assert len(str(caught.value).splitlines()) == 1
    env.close()
    monkeypatch.delenv("CONFKV_CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(EnvError, match="no Chromium found"):
        BrowserEnv(page_task("about:blank"))
