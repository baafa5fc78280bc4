"""The grammar of the action block: what fits the page can be written, anything else cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.actions import ACTIONS, MAX_ACTIONS, format_action
from agent.grammar import Grammar, block_of
from agent.parser import parse_reply

PAGE = """\
heading "Keys [e99]"
link "Home" [e1]
textbox "Room" [e2] value "x" (focused)
combobox "Size" [e3] value "S" options: S | M
checkbox [e4] (checked)
button "Ask" [f1e5]"""
GRAMMAR = Grammar(PAGE)


def whole(grammar: Grammar, calls: str) -> bool:
    """Whether each prefix is accepted, and the end too."""
    block = f"\n{calls}\n```"
    return all(grammar.accepts(block[:end]) for end in range(len(block) + 1)) and grammar.complete(f"\n{calls}")


@pytest.mark.parametrize(
    "call",
    [
        'click("e1")', 'click("f1e5")', 'fill("e2", "12")', 'fill("e3", "M")', 'fill("e2", "")',
        'fill("e2", "say \\"hi\\" (a, b) [e1]")', 'fill("e2", "\u6f22 \u00e9")', 'select_option("e3", "M")',
        'select_option("e3", ["S", "M"])', 'check("e4")', 'check("e4", False)', 'hover("e1")', 'press("Enter")',
        'press("Enter", "e2")', 'scroll("down")', 'scroll("up", "e1")', 'goto("http://a.test/")', "back()",
        "forward()", "new_tab()", 'new_tab("http://a.test/")', "switch_tab(1)", "close_tab()", "wait()", "wait(1.5)",
        'answer("42")',
    ],
)  # fmt: skip
def test_calls_that_fit_the_page(call: str) -> None:
    assert whole(GRAMMAR, call) and whole(GRAMMAR, f'{call}\nclick("e1")')
    read = parse_reply(f"```\n{call}\n```")
    assert read.error is None and len(read.actions) == 1


@pytest.mark.parametrize(
    "call",
    [
        'click("e9")', 'click("e99")', 'fill("e1", "12")', 'fill("e4", "12")', 'fill("f1e5", "x")', 'check("e1")',
        'select_option("e2", "M")', "click(e1)", "click()", 'submit("e1")', 'scroll("left-ish")', "switch_tab(x)",
        'goto("")', 'fill("e2", "two\nlines")', 'import os', 'click("e1");click("e1")',
    ],
)  # fmt: skip
def test_calls_that_do_not_fit(call: str) -> None:
    assert not whole(GRAMMAR, call)


def test_actions_without_an_element_to_take_are_not_offered() -> None:
    links = Grammar('link "Home" [e1]')
    assert not links.accepts("\nfill(") and not links.accepts("\ncheck(") and links.accepts('\nclick("e1")')
    empty = Grammar("(the page is empty)")
    assert not empty.accepts("\nclick(") and whole(empty, "back()") and whole(empty, 'press("Enter")')


def test_the_line_of_the_fence_and_the_number_of_calls() -> None:
    assert GRAMMAR.accepts("python\n") and GRAMMAR.accepts("") and not GRAMMAR.accepts("\n```")
    many = "\n".join(['click("e1")'] * MAX_ACTIONS)
    assert whole(GRAMMAR, many) and not whole(GRAMMAR, many + '\nclick("e1")')
    assert not GRAMMAR.complete('\nclick("e1')


def test_where_the_block_begins() -> None:
    assert block_of("A thought.") is None and block_of("<think>```\nclick") is None
    assert block_of("A thought.\n```") == "" and block_of("A.\n```py\nback()") == "py\nback()"
    assert block_of("<think>```\nx\n```</think>Now.\n```\nclick") == "\nclick"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=40))
def test_any_text_can_be_filled_in(text: str) -> None:
    call = format_action({"name": "fill", "args": {"id": "e2", "text": text}})
    assert whole(GRAMMAR, call)
    assert parse_reply(f"```\n{call}\n```").actions == [{"name": "fill", "args": {"id": "e2", "text": text}}]


def test_every_action_has_a_way_to_be_written() -> None:
    assert all(any(GRAMMAR.accepts(f"\n{name}{end}") for end in ("(", "()")) for name in ACTIONS)
