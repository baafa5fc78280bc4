"""Task files: all 910 official ones load; what is wrong with one is said with task and field."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import TaskError
from tasks.vwa.evaluators.functions import parse
from tasks.vwa.evaluators.verdict import CannotScore
from tasks.vwa.load import load_tasks, official_tasks


def task(**changes: Any) -> dict[str, Any]:
    """A small valid task."""
    base: dict[str, Any] = {
        "sites": ["shopping"],
        "task_id": 7,
        "require_login": False,
        "storage_state": None,
        "start_url": "__SHOPPING__ |AND| __HOMEPAGE__/list",
        "geolocation": None,
        "intent_template": "What does {{item}} cost?",
        "intent": "What does the lamp cost?",
        "instantiation_dict": {"item": "the lamp"},
        "require_reset": False,
        "eval": {
            "eval_types": ["string_match"],
            "reference_answers": {"must_include": ["12.50"]},
            "reference_url": "",
            "program_html": [],
        },
        "reasoning_difficulty": "easy",
        "visual_difficulty": "easy",
        "overall_difficulty": "easy",
        "image": None,
        "viewport_size": {"width": 430},
    }
    return base | changes


def write(folder: Path, *tasks: Any) -> Path:
    path = folder / "some.json"
    path.write_text(json.dumps(list(tasks)))
    return path


def test_all_official_tasks_load() -> None:
    tasks = official_tasks()
    assert len(tasks) == 910 and [each.task_id for each in tasks] == list(range(910))
    assert Counter(site for each in tasks for site in each.sites[:1]) == {
        "shopping": 468, "classifieds": 234, "reddit": 182, "wikipedia": 26,
    }  # fmt: skip
    kinds = Counter(kind for each in tasks for kind in each.eval.eval_types)
    assert kinds == {"program_html": 409, "string_match": 280, "url_match": 224, "page_image_query": 42}
    assert sum(bool(each.images) for each in tasks) == 321
    assert sum(len(each.start_urls) > 1 for each in tasks) == 62
    assert sum(each.require_login for each in tasks) == 661 and sum(each.require_reset for each in tasks) == 62
    assert sum(each.viewport_size is not None for each in tasks) == 69
    assert {each.overall_difficulty for each in tasks} == {"easy", "medium", "hard"}


def test_every_function_that_official_tasks_call_is_known() -> None:
    called = set()
    for each in official_tasks():
        for target in each.eval.program_html or []:
            called |= {parse(text)[0] for text in (target.url, target.locator) if text.startswith("func:")}
    assert len(called) == 14 and "shopping_get_order_product_option" in called


@pytest.mark.parametrize(
    "text", ["func:__import__('os')", "func:get_query_text(open('x'))", "func:1 + 1", "func:f(x=1)"]
)
def test_nothing_else_can_be_called(text: str) -> None:
    with pytest.raises(CannotScore):
        parse(text)


def test_placeholders_tabs_images_and_viewport(tmp_path: Path) -> None:
    found = load_tasks(write(tmp_path, task(image=["__HOMEPAGE__/images/a.png", ""])))[0]
    assert found.start_urls == ["__SHOPPING__", "__HOMEPAGE__/list"]
    here = found.resolved({"__SHOPPING__": "http://shop.test", "__HOMEPAGE__": "http://home.test"})
    assert here.start_urls == ["http://shop.test", "http://home.test/list"]
    assert here.images == ["http://home.test/images/a.png"]
    assert here.viewport_size is not None and (here.viewport_size.width, here.viewport_size.height) == (430, None)
    assert here.eval.program_html is None and here.eval.url_note == "EXACT"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task_id": "7"}, r"some\.json, task 7: task_id: .*integer"),
        ({"colour": "red"}, r"task 7: colour: Extra"),
        ({"overall_difficulty": "medum"}, r"task 7: overall_difficulty: "),
        ({"eval": {"eval_types": ["url_match"]}}, r"task 7: eval: .*url_match needs reference_url"),
        ({"eval": {"eval_types": ["guess"]}}, r"task 7: eval\.eval_types\.0: "),
        (
            {
                "eval": {
                    "eval_types": ["program_html"],
                    "program_html": [{"url": "last", "locator": "", "required_contents": {"must_includ": ["x"]}}],
                }
            },
            r"task 7: eval\.program_html\.0\.required_contents\.must_includ: ",
        ),
    ],
)
def test_a_wrong_task_is_one_line_with_task_and_field(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=said) as raised:
        load_tasks(write(tmp_path, task(task_id=3), task(**changes)))
    assert "\n" not in str(raised.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="task_id 7 is given to two"):
        load_tasks(write(tmp_path, task(), task()))
    with pytest.raises(TaskError, match="cannot read"):
        load_tasks(tmp_path / "absent.json")
    (tmp_path / "broken.json").write_text("[")
    with pytest.raises(TaskError, match="not JSON"):
        load_tasks(tmp_path / "broken.json")
    with pytest.raises(TaskError, match="entry 0: the task: "):
        load_tasks(write(tmp_path, "x"))
