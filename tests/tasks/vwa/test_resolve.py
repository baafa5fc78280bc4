"""Official tasks by their id: listed where there are sites, made where their own sites have addresses."""

from __future__ import annotations

import pytest

from tasks.errors import TaskError
from tasks.resolve import list_tasks, make_env
from tasks.vwa.sites import VARIABLES


def test_official_tasks_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert not any(name.startswith("visualwebarena/") for name, _ in list_tasks())
    with pytest.raises(TaskError, match=r"task 0 needs the site classifieds, .*export VWA_CLASSIFIEDS="):
        make_env("visualwebarena/0")
    monkeypatch.setenv("VWA_CLASSIFIEDS", "http://ads.test")
    listed = dict(list_tasks())
    assert sum(name.startswith("visualwebarena/") for name in listed) == 910
    assert listed["visualwebarena/0"].startswith("Find me the cheapest blue kayak")
    env = make_env("visualwebarena/0")
    assert env.task.config.start_urls == ["http://ads.test"] and env.max_repeats == 5
    env.close()
    with pytest.raises(TaskError, match="no task 'visualwebarena/910'"):
        make_env("visualwebarena/910")
