"""Replies as models write them, and what must come out of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.actions import ACTIONS, MAX_ACTIONS, format_action
from agent.parser import parse_reply


def click(element: str = "e5") -> dict[str, Any]:
    return {"name": "click", "args": {"id": element}}


def fill(text: str, element: str = "e5") -> dict[str, Any]:
    return {"name": "fill", "args": {"id": element, "text": text}}


def answer(text: str) -> dict[str, Any]:
    return {"name": "answer", "args": {"text": text}}


def select(option: str | list[str]) -> dict[str, Any]:
    return {"name": "select_option", "args": {"id": "e5", "option": option}}


@pytest.mark.parametrize(
    "reply",
    [
        'click("e5")',
        "click('e5')",
        "click(e5)",
        "click([e5])",
        'click(["e5"])',
        "click(“e5”)",
        "click(‘e5’)",
        "click(`e5`)",
        'click(ref="e5")',
        "click(ref=e5)",
        "click(id=e5)",
        'click(id: "e5")',
        'click({"id": "e5"})',
        'click("[e5]")',
        'click("ref=e5")',
        'click([e5] button "OK")',
        'click("e5",)',
        "click( e5 )",
        'click("e5"',
        'click("e5)',
        "Click(e5)",
        "click e5",
        "click [e5]",
        'page.click("e5")',
        '<tool_call>\n{"name": "click", "arguments": {"id": "e5"}}\n</tool_call>',
        '```json\n{"action": "click", "ref": "e5"}\n```',
        'I press it.\n```\nclick("e5")\n```',
        'I press it.\n```python\nclick("e5")\n```\nThen it opens.',
        '```click("e5")```',
        '```python\nclick("e5"\n```',
        'Action: click("e5")',
        '**Action:** `click("e5")`',
        'Next action: click("e5")',
        '1. click("e5")',
        '- click("e5")',
        'click("e5"), which opens the dialog (I hope).',
        'click("e5")  # the button',
        "I will click(e5) now.",
        'I thought of click(e9) but no.\nclick("e5")',
        '<think>click("e9")</think>\nclick("e5")',
        'the prompt opened it: click("e9")</think>click("e5")',
        'Thought(s): it must be this one\nclick("e5")',
    ],
)
def test_one_click_however_it_is_written(reply: str) -> None:
    parsed = parse_reply(reply)
    assert (parsed.actions, parsed.error) == ([click()], None)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ('fill("e5", "two words")', "two words"),
        ("fill(e5, two words)", "two words"),
        ('fill("e5", "line\nline")', "line\nline"),
        ('fill("e5", "line\\nline")', "line\nline"),
        ("fill('e5', 'It's fine')", "It's fine"),
        ("fill(e5, John's book)", "John's book"),
        ('fill("e5", "say "hi" twice")', 'say "hi" twice'),
        ('fill("e5", "a\\"b")', 'a"b'),
        ('fill("e5", “smart”)', "smart"),
        ('fill("e5", """a\n"b" c""")', 'a\n"b" c'),
        ('fill("e5", "")', ""),
        ('fill("e5", 007)', "007"),
        ('fill("e5", text="x")', "x"),
        ('fill(text="x", ref="e5")', "x"),
        ('fill("e5", value="x", )', "x"),
        ('fill("e5", "C:\\dir\\q")', "C:\\dir\\q"),
        ('fill("e5", "f(x), g(y)")', "f(x), g(y)"),
        ('fill(\n  "e5",\n  "x"\n)', "x"),
        ('fill("e5", "```")', "```"),
        ('fill("e5", "\\ud83d\\ude00")', "😀"),
        ('fill("e5", "http://a.b/?q=1")', "http://a.b/?q=1"),
        ('fill("e5", "__import__(\'os\').getcwd()")', "__import__('os').getcwd()"),
        ('fill("e5", r"a\\\\b")', "a\\b"),
    ],
)
def test_text_comes_out_as_it_was_meant(reply: str, text: str) -> None:
    parsed = parse_reply(reply)
    assert (parsed.actions, parsed.error) == ([fill(text)], None)


@pytest.mark.parametrize(
    "reply",
    [
        'fill("e5", "x")\nclick("e6")',
        'fill("e5", "x"); click("e6")',
        'fill("e5", "x"), click("e6")',
        'fill("e5", "x") and then click("e6")',
        'fill("e5", "x"\nclick("e6"',
        '```\nfill("e5", "x")\n\nclick("e6")\n```',
        '```\nfill("e5", "x")\n```\nThen:\n```\nclick("e6")\n```',
        'First fill("e5", "x"), then click("e6").',
    ],
)
def test_several_actions_keep_their_order(reply: str) -> None:
    assert parse_reply(reply).actions == [fill("x"), click("e6")]


def test_only_so_many_actions_and_none_after_an_answer() -> None:
    many = [click(f"e{n}") for n in range(1, MAX_ACTIONS + 3)]
    parsed = parse_reply("\n".join(map(format_action, many)))
    assert (parsed.actions, parsed.extra, parsed.error) == (many[:MAX_ACTIONS], many[MAX_ACTIONS:], None)
    assert parse_reply('click("e5")\nanswer("7")\nclick("e6")').actions == [click(), answer("7")]


def test_the_thought_is_what_stands_before_the_actions() -> None:
    parsed = parse_reply('<think>deep</think>The button is e5.\n```python\nclick("e5")\n```')
    assert parsed.thought == "deep\nThe button is e5."


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ('answer("42")', answer("42")),
        ("answer(42)", answer("42")),
        ("answer(Hello, world: it costs $5)", answer("Hello, world: it costs $5")),
        ('answer("The price is 5" (five))', answer('The price is 5" (five)')),
        ('select_option("e5", ["a", "b"])', select(["a", "b"])),
        ("selectOption(e5, Dark red)", select("Dark red")),
        ('check("e5")', {"name": "check", "args": {"id": "e5"}}),
        ('check("e5", false)', {"name": "check", "args": {"id": "e5", "checked": False}}),
        ('press("Enter")', {"name": "press", "args": {"key": "Enter"}}),
        ('press("e5", "Enter")', {"name": "press", "args": {"key": "Enter", "id": "e5"}}),
        ('press("Control+a", "e5")', {"name": "press", "args": {"key": "Control+a", "id": "e5"}}),
        ("scroll(DOWN)", {"name": "scroll", "args": {"direction": "down"}}),
        ('scroll("e5", "up")', {"name": "scroll", "args": {"direction": "up", "id": "e5"}}),
        ("goto(http://a.b/c?d=1)", {"name": "goto", "args": {"url": "http://a.b/c?d=1"}}),
        ("back()", {"name": "back", "args": {}}),
        ("new_tab()", {"name": "new_tab", "args": {}}),
        ("new_tab(None)", {"name": "new_tab", "args": {}}),
        ("switch_tab(1)", {"name": "switch_tab", "args": {"index": 1}}),
        ('switch_tab("1")', {"name": "switch_tab", "args": {"index": 1}}),
        ("wait(0.5)", {"name": "wait", "args": {"seconds": 0.5}}),
        ("wait(2s)", {"name": "wait", "args": {"seconds": 2}}),
        ("wait()", {"name": "wait", "args": {}}),
    ],
)  # fmt: skip
def test_every_action_has_its_own_types(reply: str, action: dict[str, Any]) -> None:
    parsed = parse_reply(reply)
    assert (parsed.actions, parsed.error) == ([action], None)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("<think>I should", "thoughts but no action"),
        ("<think>done</think>\n", "thoughts but no action"),
        ("I do not know.", "No action was found"),
        ('clik("e5")', 'no action clik. Did you mean click("e5")?'),
        ('type("e5", "x")', 'Did you mean fill("e5", "some text")?'),
        ('tyep("e5", "x")', 'Did you mean fill("e5", "some text")?'),
        ('zzzzzz("e5")', "The actions are click, fill"),
        ("click(5)", "id must be an id from the page such as \"e5\", not '5'"),
        ('click("the button")', 'Write it as click("e5")'),
        ("click()", "click needs id"),
        ('click("e5", "e6")', "takes 1 argument(s) and got 2"),
        ('click("e5", force=True)', "takes no force"),
        ('fill("e5")', 'fill needs text. Write it as fill("e5", "some text")'),
        ('fill(id="e5", ref="e6", text="x")', "given twice"),
        ('scroll("sideways")', "one of up, down, left, right"),
        ('check("e5", "maybe")', "True or False"),
        ("switch_tab(first)", "a whole number"),
        ("switch_tab(1.5)", "a whole number"),
        ("wait(-1)", "a number of seconds"),
        ("wait(1e999)", "a number of seconds"),
        ("wait(10**9)", "a number of seconds"),
        ('select_option("e5", [])', "option must be"),
        ('press("")', "must not be empty"),
        ('answer("half of a sent', "never closed"),
        ('click(["e5", "e6"])', "not a list of 2"),
        ('select_option("e5", [["a"]])', "brackets do not match"),
        ('select_option("e5", ["a"', "never closed"),
    ],
)
def test_what_is_wrong_is_said_with_the_right_form(reply: str, said: str) -> None:
    parsed = parse_reply(reply)
    assert parsed.actions == []
    assert parsed.error is not None and said in parsed.error
    assert "\n" not in parsed.error


def test_actions_before_a_faulty_one_are_kept_with_its_error() -> None:
    parsed = parse_reply('click("e5")\nsubmit("e6")\nclick("e7")')
    assert parsed.actions == [click()]
    assert parsed.error == 'There is no action submit. Did you mean click("e6")?'


TEXT = st.text(max_size=60)
IDS = st.from_regex(r"(f[1-9])?e[1-9][0-9]{0,3}", fullmatch=True)
LINE = TEXT.map(str.strip).filter(bool)
ARGS = {
    "id": IDS,
    "text": TEXT,
    "option": st.one_of(TEXT, st.lists(TEXT.filter(bool), min_size=1, max_size=3)),
    "flag": st.booleans(),
    "key": LINE,
    "direction": st.sampled_from(["up", "down", "left", "right"]),
    "url": LINE,
    "index": st.integers(0, 99),
    "seconds": st.one_of(st.integers(0, 60), st.floats(0, 60)),
}


@st.composite
def actions(draw: st.DrawFn) -> dict[str, Any]:
    spec = ACTIONS[draw(st.sampled_from(sorted(ACTIONS)))]
    chosen = [p for p in spec.params if not p.optional or draw(st.booleans())]
    return {"name": spec.name, "args": {p.name: draw(ARGS[p.kind]) for p in chosen}}


FRAMES = ["{}", "So:\n```python\n{}\n```", "Go.\n{}"]


@settings(max_examples=300, deadline=None)
@given(st.lists(actions(), min_size=1, max_size=4), st.sampled_from(FRAMES))
@example([answer('", "')], "{}")
@example([answer("\n```\nclick(e1)")], "{}")
@example([fill("\\"), fill('it\'s "so"')], "{}")
@example([answer("</think>")], "{}")
def test_any_action_survives_being_written_and_read(wanted: list[dict[str, Any]], frame: str) -> None:
    upto = next((n + 1 for n, action in enumerate(wanted) if action["name"] == "answer"), len(wanted))
    parsed = parse_reply(frame.format("\n".join(format_action(action) for action in wanted)))
    assert (parsed.actions, parsed.error) == (wanted[:upto], None)


PIECES = st.sampled_from([
    "click", "fill", "answer", "(", ")", "[", "]", "{", "}", '"', "'", '"""', "`", "```", "\n", "\\", "\\u",
    ",", "=", ":", "e5", "<think>", "</think>", " ", "“", "”", "\ud800", "\0", "é", "#", "1", "-", "wait",
    "select_option", "None", '{"name": ', '"args": {"id": ',
])  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.one_of(TEXT, st.lists(PIECES, max_size=40).map("".join)))
def test_no_text_at_all_makes_the_parser_raise(text: str) -> None:
    parsed = parse_reply(text)
    assert parsed.actions or parsed.error
    assert len(parsed.actions) <= MAX_ACTIONS
    for action in parsed.actions:
        spec = ACTIONS[action["name"]]
        assert set(action["args"]) <= {p.name for p in spec.params}
        assert {p.name for p in spec.params if not p.optional} <= set(action["args"])
        format_action(action).encode()


NONSENSE = [
    "click(" * 3000,
    '"' * 20_000,
    "fill(e5, '" + "' " * 10_000,
    "[" * 20_000,
    "<think>" * 5000,
    "select_option(e5, " + "[" * 9000,
    "wait(" + "9" * 5000 + ")",
    "fill(e5, '" + "' \n" * 5000,
    "a" * 20_000 + "(" + " " * 20_000,
]


@pytest.mark.parametrize("text", NONSENSE, ids=range(len(NONSENSE)))
@pytest.mark.timeout(20)
def test_long_nonsense_is_read_in_time(text: str) -> None:
    parsed = parse_reply(text)
    assert parsed.actions or parsed.error


def test_every_example_and_signature_is_true() -> None:
    for spec in ACTIONS.values():
        parsed = parse_reply(spec.example)
        assert parsed.error is None
        assert [format_action(action) for action in parsed.actions] == [spec.example]
    assert ACTIONS["press"].signature == "press(key, id?)"
    assert math.isclose(parse_reply("wait(1.0)").actions[0]["args"]["seconds"], 1.0)
