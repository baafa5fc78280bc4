"""The suite of ``fakes.py`` under its name, and ways to run a grid on it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.grid import suites
from tasks.grid.log import read_lines
from tasks.grid.records import RESULTS_FILE, Line
from tasks.grid.run import Options, prepare, run
from tasks.grid.summary import Summary

FAKES = Path(__file__).with_name("fakes.py")


@pytest.fixture(scope="session")
def fakes() -> Any:
    """The module, imported once."""
    spec = importlib.util.spec_from_file_location("grid_fakes", FAKES)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["grid_fakes"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fake_suite(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``--suite fake`` is known; ``opened`` lists its environments."""
    monkeypatch.setitem(suites.SUITES, "fake", fakes.FakeSuite)
    monkeypatch.setattr(fakes.FakeEnv, "opened", [])
    return fakes


Play = Callable[..., tuple[Summary, dict[tuple[str, str, int], Line]]]


@pytest.fixture
def play(fake_suite: Any, tmp_path: Path) -> Play:
    """Run a grid: its summary, and its lines by (task, policy, seed)."""

    def played(out: str = "out", **options: Any) -> tuple[Summary, dict[tuple[str, str, int], Line]]:
        asked = {"suite": "fake", "agent": "oracle", "out": tmp_path / out} | options
        summary = run(prepare(Options(**asked)), plain=True)
        lines = read_lines(asked["out"] / RESULTS_FILE)
        return summary, {(line.task, line.policy, line.seed): line for line in lines}

    return played
