"""What the model is told."""

from __future__ import annotations

from agent import prompts
from agent.actions import ACTIONS
from agent.parser import parse_reply
from agent.records import ActionRecord


def test_the_system_prompt_names_every_action_and_is_short() -> None:
    text = prompts.system_prompt()
    assert all(spec.signature in text for spec in ACTIONS.values())
    assert len(text) < 500 * 4, "about 500 tokens"
    assert text == prompts.system_prompt()


def test_the_worked_example_is_a_reply_that_parses() -> None:
    example = prompts.system_prompt().rsplit("Reply:", 1)[1]
    parsed = parse_reply(example)
    assert parsed.error is None and parsed.actions and parsed.thought


def test_an_observation_tells_what_happened_before_it_shows_the_page() -> None:
    done = [
        ActionRecord({"name": "click", "args": {"id": "e5"}}, effect="page changed"),
        ActionRecord({"name": "fill", "args": {"id": "e6", "text": "x"}}, "nothing changed", "it is disabled"),
    ]
    text = prompts.observation(
        {"text": "PAGE"},
        actions=done,
        skipped=[{"name": "back", "args": {}}],
        problem="PROBLEM",
        warning="WARNING",
        turns_left=1,
    )
    parts = ['click("e5"): page changed', 'fill("e6", "x"): failed: it is disabled', "back()", "PROBLEM",
             "WARNING", "last turn", "PAGE"]  # fmt: skip
    at = [text.index(part) for part in parts]
    assert at == sorted(at)


def test_the_same_page_twice_gives_the_same_text() -> None:
    obs = {"text": 'button "No" [e5]'}
    assert prompts.observation(obs, turns_left=9) == prompts.observation(obs, turns_left=4)
    assert "(the page is empty)" in prompts.observation({"text": " "})
