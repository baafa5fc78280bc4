"""The grammar of WebArena beside ours: the same actions, whatever the text in the brackets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.official import read_official
from agent.parser import parse_reply

LINE = st.text(st.characters(blacklist_characters="`", blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)
TEXT = LINE.map(str.strip).filter(lambda text: bool(text) and "think>" not in text)  # a thought ends where it says so
NUMBER = st.integers(0, 99_999)


def call(name: str, **args: object) -> dict[str, object]:
    return {"name": name, "args": args}


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        ("click [12]", [call("click", id="e12")]),
        ("click [e12]", [call("click", id="e12")]),
        ("hover [7]", [call("hover", id="e7")]),
        ("clear [7]", [call("fill", id="e7", text="")]),
        ("type [12] [red lamp] [1]", [call("fill", id="e12", text="red lamp"), call("press", key="Enter", id="e12")]),
        ("type [12] [red lamp] [0]", [call("fill", id="e12", text="red lamp")]),
        ("type [12] [red lamp]", [call("fill", id="e12", text="red lamp"), call("press", key="Enter", id="e12")]),
        ("type [12] [see [a] and click(now)] [0]", [call("fill", id="e12", text="see [a] and click(now)")]),
        ("press [ctrl+a]", [call("press", key="ctrl+a")]),
        ("scroll [down]", [call("scroll", direction="down")]),
        ("scroll [direction=up]", [call("scroll", direction="up")]),
        ("scroll up", [call("scroll", direction="up")]),
        ("new_tab", [call("new_tab")]),
        ("tab_focus [1]", [call("switch_tab", index=1)]),
        ("close_tab", [call("close_tab")]),
        ("goto [http://shop.test/a?b=[1]]", [call("goto", url="http://shop.test/a?b=[1]")]),
        ("go_back", [call("back")]),
        ("go_forward", [call("forward")]),
        ("stop [It costs $5.]", [call("answer", text="It costs $5.")]),
        ("stop", [call("answer", text="")]),
    ],
)
def test_each_command(command: str, actions: list[dict[str, object]]) -> None:
    sentence = "Let's think. The lamp is on this page."
    reply = parse_reply(f"{sentence} In summary, the next action I will perform is ```{command}```")
    assert (reply.actions, reply.error) == (actions, None)
    assert reply.thought == f"{sentence} In summary, the next action I will perform is"
    assert parse_reply(f"{sentence}\n```\n{command}\n```").actions == actions
    assert parse_reply(command).actions == actions


def test_ours_comes_first_and_prose_is_no_command() -> None:
    assert parse_reply('I could click [12].\n```\nclick("e5")\n```').actions == [call("click", id="e5")]
    assert parse_reply('```\nfill("e5", "stop [now]")\n```').actions == [call("fill", id="e5", text="stop [now]")]
    for text in ("I will stop here", "click the link [12] now", "Please type [it] in", "stop it [12]"):
        assert parse_reply(text).actions == [] and "No action was found" in (parse_reply(text).error or "")


def test_several_commands_and_what_follows_an_answer() -> None:
    reply = parse_reply("```\nclick [3]\ntype [4] [x] [0]\nstop [done]\nclick [5]\n```")
    assert [action["name"] for action in reply.actions] == ["click", "fill", "answer"]


def test_text_in_brackets_that_looks_like_a_call_of_ours_is_text() -> None:
    for text in ("HOVER(", 'click("e5")', "fill(e1, x)"):
        assert parse_reply(f"```stop [{text}]```").actions == [call("answer", text=text)]
        assert parse_reply(f"```\ntype [3] [{text}] [0]\n```").actions == [call("fill", id="e3", text=text)]


@given(NUMBER, TEXT, st.sampled_from(["[0]", "[1]"]))
def test_any_text_can_be_typed(number: int, text: str, enter: str) -> None:
    actions, _ = read_official(f"```type [{number}] [{text}] {enter}```")
    assert actions[0] == call("fill", id=f"e{number}", text=text)
    assert len(actions) == 1 + (enter == "[1]")


@given(TEXT)
def test_any_text_can_be_answered(text: str) -> None:
    assert parse_reply(f"```stop [{text}]```").actions == [call("answer", text=text)]


@given(st.text())
def test_nothing_is_raised(text: str) -> None:
    for action in [*read_official(text)[0], *parse_reply(f"type [3] [{text}]").actions]:
        assert action["name"] in {
            "click", "hover", "fill", "press", "scroll", "goto", "switch_tab", "new_tab", "close_tab", "back",
            "forward", "answer", "check", "select_option", "wait",
        }  # fmt: skip
