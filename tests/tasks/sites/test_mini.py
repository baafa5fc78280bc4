"""The suite's file: what its script makes, with the mixture that was asked for, and answers that the sites give."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tasks.sites.mini import CARRIES, FILE
from tasks.sites.mini.build import records, text
from tasks.sites.oracle.player import SCRIPTS
from tasks.sites.pictures import picture
from tasks.vwa.load import load_tasks

TASKS = load_tasks(FILE)
BY_ID = {task.task_id: task for task in TASKS}


def _answer(task_id: int) -> list[str]:
    return BY_ID[task_id].eval.reference_answers.must_include


def _wanted(task_id: int, look: int) -> dict:
    return BY_ID[task_id].eval.program_html[look].required_contents.model_dump(exclude_none=True)


def test_the_file_is_what_its_script_makes():
    assert FILE.read_text(encoding="utf-8") == text()
    assert json.loads(text()) == records()


def test_the_mixture():
    assert Counter(task.sites[0] for task in TASKS) == {"classifieds": 25, "shopping": 25, "forum": 25}
    assert set(Counter(task.overall_difficulty for task in TASKS)) == {"easy", "medium", "hard"}
    assert min(Counter(task.overall_difficulty for task in TASKS).values()) >= 15
    assert sum((task.comments or "").startswith(CARRIES) for task in TASKS) >= 25
    assert sum(bool(task.images) for task in TASKS) == 15
    assert sum(bool(task.eval.string_note) for task in TASKS) == 5
    kinds = Counter(kind for task in TASKS for kind in task.eval.eval_types)
    assert kinds["string_match"] >= 20 and kinds["program_html"] >= 20 and kinds["url_match"] >= 1
    assert len({task.intent for task in TASKS} | {str(task.images) for task in TASKS if task.images}) >= 75


@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task.task_id))
def test_each_task_is_whole(task):
    assert "{{" not in task.intent and task.intent_template_id in SCRIPTS
    assert all(f"{{{{{name}}}}}" in task.intent_template for name in task.instantiation_dict)
    assert all(picture(re.search(r"/images/(.*)\.png$", address)[1]) for address in task.images)
    for look in task.eval.program_html or []:
        assert look.locator.startswith("document.") and task.require_login | ("/cart" in look.url)
    if task.eval.string_note:
        assert task.eval.reference_answers.fuzzy_match == "N/A"
    # An answer that stands in the intent would be no answer.
    reference = task.eval.reference_answers
    for answer in (reference.must_include or []) if reference else []:
        choice = task.intent_template_id in (204, 304)  # one of those named
        assert choice or answer.split(" |OR| ")[0] not in task.intent


def test_answers_are_those_of_the_pages(client):
    """What the pages say, found in their HTML without the queries that made the file."""
    shop = client("shopping")
    shop.get("/search?q=" + BY_ID[201].instantiation_dict["product"].replace(" ", "+"))
    shop.get(re.search(r'<h2><a href="(/product/\d+)"', shop.html)[1])
    assert [re.search(r'id="sku">(.*?)<', shop.html)[1]] == _answer(201)
    shop.get("/c/lighting?kind=lamp&sort=price-up&stock=1")
    name, price = re.search(
        r'<h2><a href="/product/\d+">(.*?)</a></h2>.*?class="price">\$(.*?)<', shop.html, re.S
    ).groups()
    assert [name, price] == _answer(204)
    market = client("classifieds")
    place = BY_ID[102].instantiation_dict
    market.get(f"/c/{place['category'].lower()}?town={place['town'].replace(' ', '+')}&sort=price-up")
    market.get(re.search(r'<h2><a href="(/ad/\d+)"', market.html)[1])
    assert _answer(102) == [re.search(r"CM-\d+", market.html)[0]]
    market.get("/")
    code = re.search(r"free stall is <b>(.*?)</b>", market.html)[1]
    assert _wanted(115, 2) == {"exact_match": f"Stall code {code}"}
    pond = client("forum")
    board = BY_ID[303].instantiation_dict["board"]
    slug = re.search(rf'href="/b/([\w-]+)">{board}<', pond.get("/"))[1]
    pond.get(f"/b/{slug}?sort=top")
    states = re.findall(r"(-?\d+) votes, (\d+) comments", pond.html)
    assert _answer(303) == [max(states, key=lambda state: int(state[0]))[1]]
