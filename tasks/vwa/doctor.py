"""``confkv doctor --vwa``: which of the official VisualWebArena sites answer, and what is missing to play on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from tasks.doctor import Check
from tasks.errors import TaskError
from tasks.vwa.fetch import FetchError, status
from tasks.vwa.load import INSTALL, official_root, official_tasks
from tasks.vwa.schema import VwaTaskConfig
from tasks.vwa.sites import RESET_TOKEN, VARIABLES, needed_sites

SECONDS = 5.0  # that a site is given to answer
CONTAINERS = "start its container (github.com/web-arena-x/visualwebarena, environment_docker)"


def examine(environment: Mapping[str, str] | None = None) -> Iterator[Check]:
    """All checks; the sites are asked at the same time, each for at most ``SECONDS``."""
    given = os.environ if environment is None else environment
    try:
        tasks = official_tasks()
        yield Check("tasks", True, f"{len(tasks)} official tasks ({official_root()})")
    except TaskError as error:
        tasks = []
        yield Check("tasks", False, str(error), INSTALL)
    answering = set()
    with ThreadPoolExecutor(len(VARIABLES)) as pool:
        for site, check in zip(VARIABLES.values(), pool.map(lambda name: _site(name, given), VARIABLES), strict=True):
            if check.ok:
                answering.add(site)
            yield check
    token = bool(given.get(RESET_TOKEN))
    resets = sum(task.require_reset for task in tasks)
    detail = "set" if token else f"not set; {resets} tasks need classifieds to be reset"
    yield Check(
        RESET_TOKEN, token, detail, "" if token else f"export {RESET_TOKEN}=... (the container's)", needed=False
    )
    if tasks:
        yield from _playable(tasks, answering)


def _site(variable: str, given: Mapping[str, str]) -> Check:
    url = given.get(variable, "")
    if not url:
        return Check(variable, False, "not set", f"export {variable}=http://HOST:PORT, or {CONTAINERS}")
    try:
        code = status(url, timeout=SECONDS)
    except FetchError as error:
        return Check(variable, False, str(error), f"{CONTAINERS}, or correct {variable}")
    if code >= 500:
        return Check(variable, False, f"{url} answers with status {code}", "look at the container's log")
    return Check(variable, True, f"{url} answers")


def _playable(tasks: list[VwaTaskConfig], answering: set[str]) -> Iterator[Check]:
    """How many tasks these sites suffice for, and how many need a model to be scored."""
    enough = sum(answering.issuperset(needed_sites(task)) for task in tasks)
    yield Check("playable", enough == len(tasks), f"{enough} of {len(tasks)} tasks", needed=False)
    judged = sum(needs_judge(task) for task in tasks)
    asked = sum(any(query.eval_vqa for query in task.eval.page_image_query or []) for task in tasks)
    detail = f"{judged} tasks may need a judge and {asked} a model that sees, else they count as 0"
    yield Check(
        "scoring", True, f"{len(tasks) - judged - asked} tasks are scored without a model; {detail}", needed=False
    )


def needs_judge(task: VwaTaskConfig) -> bool:
    """Whether a text may have to be judged to score the task."""
    answers, targets = task.eval.reference_answers, task.eval.program_html or []
    if "string_match" in task.eval.eval_types and answers is not None and answers.fuzzy_match is not None:
        return True
    return any(target.required_contents.fuzzy_match is not None for target in targets)
