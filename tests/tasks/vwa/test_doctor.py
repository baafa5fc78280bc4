"""confkv doctor --vwa: which sites answer, what is missing, and the next step."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.cli.app import invoke
from tasks.vwa.doctor import examine, needed_sites, needs_judge
from tasks.vwa.load import official_tasks
from tasks.vwa.sites import RESET_TOKEN, VARIABLES

sys.path.insert(0, str(Path(__file__).parent))
from small_site import SmallSite


@pytest.fixture(scope="module")
def here() -> Iterator[str]:
    site = SmallSite()
    yield f"http://127.0.0.1:{site.port}"
    site.close()


def test_what_answers_and_what_does_not(here: str) -> None:
    given = {"VWA_SHOPPING": here, "VWA_CLASSIFIEDS": here + "/away", "VWA_REDDIT": "http://127.0.0.1:9"}
    found = {check.name: check for check in examine(given)}
    assert found["tasks"].ok and found["tasks"].detail.startswith("910 official tasks")
    assert (found["VWA_SHOPPING"].ok, found["VWA_SHOPPING"].detail) == (True, f"{here} answers")
    assert found["VWA_CLASSIFIEDS"].ok  # a page that is not there is an answer
    assert not found["VWA_REDDIT"].ok and "127.0.0.1:9 does not answer" in found["VWA_REDDIT"].detail
    assert found["VWA_WIKIPEDIA"].detail == "not set" and "export VWA_WIKIPEDIA=" in found["VWA_WIKIPEDIA"].mend
    assert found[RESET_TOKEN].needed is False and "62 tasks" in found[RESET_TOKEN].detail
    tasks = official_tasks()
    enough = sum(set(needed_sites(task)) <= {"shopping", "classifieds"} for task in tasks)
    assert found["playable"].detail == f"{enough} of 910 tasks" and 400 < enough < 700
    assert found["scoring"].detail.startswith("839 tasks are scored without a model; 49 tasks may need a judge and 22 ")
    assert sum(map(needs_judge, tasks)) == 49


def test_the_command(here: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable in [*VARIABLES, RESET_TOKEN]:
        monkeypatch.delenv(variable, raising=False)
    assert invoke(["doctor", "--vwa"]) == 2
    out = capsys.readouterr().out
    assert "mend: export VWA_SHOPPING=http://HOST:PORT" in out and "5 missing: VWA_CLASSIFIEDS, VWA_SHOPPING" in out
    assert out.rstrip().endswith("confkv eval --suite vwa-mini plays on sites that are part of confkv.")
    for variable in VARIABLES:
        monkeypatch.setenv(variable, here)
    assert invoke(["doctor", "--vwa", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and {"VWA_REDDIT", "playable"} <= {check["name"] for check in report["checks"]}
    assert invoke(["doctor", "--vwa"]) == 0
    assert "All sites answer" in capsys.readouterr().out
