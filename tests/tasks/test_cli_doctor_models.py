"""confkv doctor and confkv models: what they print, exit codes, and the mend beside each thing missing."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from confkv.models import ALIASES, DEFAULT_ALIAS
from tasks import doctor
from tasks.cli.app import invoke


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no hub, and a browser that is a script which says its version."""
    monkeypatch.setenv("CONFKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("confkv.models.hub.cached", lambda hub_id: None)
    monkeypatch.setenv("CONFKV_CHROMIUM", str(script(tmp_path / "browser", "echo Chromium 1.2.3")))
    return tmp_path


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def checks(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    report = json.loads(capsys.readouterr().out)
    return {check["name"]: check for check in report["checks"]}


def test_doctor_names_each_package_and_the_command_for_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--json"]) == 0
    found = checks(capsys)
    assert {"python", "torch", "transformers", "playwright", "browsergym-core", "compute", "cache"} <= set(found)
    assert found["chromium"]["detail"] == "Chromium 1.2.3 (" + str(doctor.find_chromium()) + ")"
    model = found[f"model {DEFAULT_ALIAS}"]
    assert (model["ok"], model["needed"]) == (False, False)
    assert model["mend"] == f"confkv models --fetch {DEFAULT_ALIAS}"


def test_a_browser_that_is_missing_or_does_not_start_is_exit_2_with_the_mend(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONFKV_CHROMIUM", str(script(here / "broken", "echo libnss3 is missing >&2; exit 127")))
    assert invoke(["doctor"]) == 2
    out = capsys.readouterr().out
    assert "does not start (libnss3 is missing)" in out
    assert "apt-get install chromium" in out
    assert out.rstrip().endswith("1 missing: chromium")
    monkeypatch.setenv("CONFKV_CHROMIUM", str(here / "none"))
    assert invoke(["doctor", "--json"]) == 2
    chromium = checks(capsys)["chromium"]
    assert "CONFKV_CHROMIUM" in str(chromium["detail"]) and chromium["ok"] is False


def test_packages_that_are_absent_or_out_of_range_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor.metadata, "requires", lambda name: ["numpy<1", "confkv-no-such-package>=2", 'mypy; extra == "dev"']
    )
    found = {check.name: check for check in doctor._packages()}
    assert "outside <1" in found["numpy"].detail
    assert found["confkv-no-such-package"].detail == "not installed"
    assert found["confkv-no-such-package"].mend.endswith("pip install 'confkv-no-such-package>=2'")
    assert "mypy" not in found


def test_models_lists_every_alias_and_marks_what_is_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / "cache" / "models" / "smollm2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert invoke(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(ALIASES)
    assert [row["name"] for row in rows if row["default"]] == [DEFAULT_ALIAS]
    assert [row["path"] for row in rows] == [str(folder), None, None]
    assert invoke(["models"]) == 0
    out = capsys.readouterr().out
    assert f"ready in {folder}" in out
    assert "1.1 GB to fetch: confkv models --fetch qwen2.5-coder-1.5b" in out


def test_models_fetch_says_where_a_model_lies_and_refuses_unknown_names(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "cache" / "models" / DEFAULT_ALIAS
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert invoke(["models", "--fetch", "default"]) == 0
    assert capsys.readouterr().out == f"{DEFAULT_ALIAS} is ready in {folder}\n"
    assert invoke(["models", "--fetch", "smolm2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("confkv: unknown model 'smolm2'; did you mean smollm2?")
