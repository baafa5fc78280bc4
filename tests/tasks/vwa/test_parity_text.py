"""string_match and url_match against the official evaluators, over all official tasks that need no judge."""

from __future__ import annotations

import json
import random
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tasks.vwa.evaluators import words
from tasks.vwa.evaluators.string_match import string_match
from tasks.vwa.evaluators.url_match import url_match
from tasks.vwa.evaluators.verdict import Helpers
from tasks.vwa.load import official_tasks
from tasks.vwa.schema import OR, VwaTaskConfig

sys.path.insert(0, str(Path(__file__).parent))
import official

GLUE = [
    " ", ", ", ". ", ": ", "; ", "/", "-", '"', "(", ")", " and ", "’", "‘", "%", "$", "", "\n", "...", " -- ", "*",
    "&", "=", "<b>", "!", "? ", "'s ", "’s ", "n't ", "_", "|", "+", "#", " '", "' ",
]  # fmt: skip


@pytest.fixture(scope="module")
def theirs() -> Any:
    return official.load()


def tasks_of(kind: str) -> list[VwaTaskConfig]:
    return [task.resolved(official.PLACEHOLDERS) for task in official_tasks() if kind in task.eval.eval_types]


def without_listed_differences(text: str) -> str:
    """The text where "full-stop" and "outer-space" make no difference: full stops stand apart, no space around it."""
    return re.sub(r"(?<=[^\s.])\.(?=['\s])", " . ", text.strip())


def right_answer(task: VwaTaskConfig, choose: random.Random) -> str:
    """An answer that meets every reference."""
    reference = task.eval.reference_answers
    assert reference is not None
    if reference.exact_match is not None:
        return reference.exact_match
    if reference.fuzzy_match is not None:
        return "N/A"
    parts = [choose.choice(each.split(OR)) for each in reference.must_include or []]
    return "; ".join([*parts, *(reference.one_of or [])[:1]])


def mutated(answer: str, choose: random.Random) -> list[str]:
    """The answer with something about it changed: most are wrong, some are still right."""
    at = choose.randrange(len(answer))
    return [
        answer.upper(),
        f"The answer is: {answer}",
        f"{answer}, I think",
        f'"{answer}"',
        f" {answer}\n",
        answer[:at] + answer[at + 1 :],
        answer[:at] + choose.choice("abc159.-") + answer[at:],
        answer.replace(";", "").replace(" ", ""),
        f"{choose.choice(GLUE)}{answer}{choose.choice(GLUE)}",
        " ".join(reversed(answer.split())),
        answer.split(";")[0],
    ]


def test_string_match_agrees_on_right_wrong_and_mutated_answers(
    theirs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theirs, "llm_ua_match", lambda pred, ref, intent: 0.0)  # asked where white space matters to it
    choose = random.Random(1)
    tasks = tasks_of("string_match")
    answers = [right_answer(task, choose) for task in tasks]
    evaluator, compared, passed, judged, listed = theirs.StringEvaluator(), 0, 0, 0, 0
    for task, right in zip(tasks, answers, strict=True):
        reference = task.eval.reference_answers
        assert reference is not None
        config = json.loads(task.model_dump_json(exclude_none=True))
        path = official.write(config, tmp_path / "task.json")
        for answer in [right, *mutated(right, choose), *choose.sample(answers, 10), "", "I do not know"]:
            if reference.fuzzy_match is not None and not words.exact_match("N/A", answer):
                judged += 1  # the reason would have to be judged
                continue
            if reference.one_of is not None and answer != right:
                continue  # the listed difference "one-of-words"
            ours = string_match(task, answer, Helpers())
            if ours.score != evaluator(official.trajectory(answer), path, None):
                apart = without_listed_differences(answer)
                assert ours.score == evaluator(official.trajectory(apart), path, None), (task.task_id, answer, ours)
                listed += 1
            compared, passed = compared + 1, passed + int(ours.score)
        assert string_match(task, right, Helpers()).score == 1.0, (task.task_id, right)
    print(len(tasks), compared, passed, judged, listed)
    assert len(tasks) == 280 and compared > 5000 and passed > 1200 and judged > 600
    assert 0 < listed < compared / 50


def test_words_agree_on_references_glued_into_sentences(theirs: Any) -> None:
    choose, held, listed = random.Random(2), 0, 0
    references = set()
    for task in official_tasks():
        given = [task.eval.reference_answers, *(each.required_contents for each in task.eval.program_html or [])]
        for each in given:
            lists = (each.must_include or []) + (each.must_exclude or []) if each is not None else []
            references |= {alternative for entry in lists for alternative in entry.split(OR)}
    short = sorted(each for each in references if len(each) < 30)
    assert len(references) > 900
    for _ in range(6_000):
        reference = choose.choice(short)
        other = choose.choice(short) if choose.random() < 0.3 else reference
        before, after = (
            choose.choice(["", "the ", "It is", "x", "5"]),
            choose.choice(["", "the ", "ok", "Ok then.", "7"]),
        )
        text = before + choose.choice(GLUE) + other + choose.choice(GLUE) + after
        apart = without_listed_differences(words.clean(text))
        ours = words.includes(reference, text)
        includes, excludes = theirs.StringEvaluator.must_include, theirs.StringEvaluator.must_exclude
        if ours != bool(includes(reference, words.clean(text))):
            assert ours == bool(includes(reference, apart)), (reference, text)
            assert ours != bool(excludes(reference, apart)), (reference, text)
            listed += 1
        held += ours
    print(held, listed)
    assert 1_500 < held < 4_500 and 0 < listed < 100


def test_url_match_agrees(theirs: Any, tmp_path: Path) -> None:
    choose = random.Random(3)
    tasks = tasks_of("url_match")
    evaluator, compared, passed = theirs.URLExactEvaluator(), 0, 0
    every = [choose.choice((task.eval.reference_url or "").split(OR)) for task in tasks]
    for task, right in zip(tasks, every, strict=True):
        path = official.write(json.loads(task.model_dump_json(exclude_none=True)), tmp_path / "task.json")
        changed = [
            right + "/",
            right + "?page=2",
            right + "#top",
            right[:-1],
            "http://localhost/x",
            right + "/comment/5",
        ]
        for url in [right, *changed, *choose.sample(every, 5)]:
            page = types.SimpleNamespace(url=url)
            ours = url_match(task, url)
            raw = type(evaluator).__call__.__wrapped__  # without the check that the page is Playwright's
            assert ours.score == raw(evaluator, [], path, page), (task.task_id, url)
            compared, passed = compared + 1, passed + int(ours.score)
        assert url_match(task, right).score == 1.0
    assert len(tasks) == 224 and compared == 224 * 12 and passed > 448
