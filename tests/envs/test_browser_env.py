"""BrowserEnv with a real browser on local pages: reading, acting, errors, tabs, the cap."""

from __future__ import annotations

import pytest
from gymnasium.utils.env_checker import check_env

from envs.browser import BrowserEnv


def test_gymnasium_accepts_it(site, page_task):
    env = BrowserEnv(page_task(site + "/"))
    check_env(env, skip_render_check=True)
    env.close()


def test_a_page_reads_as_a_flat_list(player):
    text = player.reset("/")
    assert text.splitlines()[1:] == [
        "title: Home",
        'heading "Home"',
        'link "To the form" [e1]',
        'link "Long" [e2]',
        'link "Form in a tab" [e3]',
        "Plain words",
    ]
    assert player.obs["goal"] == "look around" and player.obs["error"] == "" and player.obs["effect"] == ""


def test_a_page_seen_twice_reads_the_same(player):
    first = player.reset("/twice")
    assert 'link "Same" [e1]' in first and 'link "Same" [e2]' in first
    assert "A | B" in first.splitlines() and "1 | 2" in first.splitlines() and 'button "In" [e3]' in first
    assert player.do("click", 'link "Same" [e2]').startswith("navigated to ")
    assert player.do("back") == f"navigated to {player.obs['url']}"
    assert player.obs["text"] == first
    assert player.reset("/twice") == first


def test_filling_and_typing(player):
    player.reset("/form")
    assert player.do("fill", 'textbox "Name"', text="Ann") == "page changed"
    assert player.line('textbox "Name"').endswith('value "Ann" (focused)')
    assert player.do("press", 'textbox "Name"', key="enter") == "page changed"
    assert "entered Ann" in player.obs["text"]
    player.do("fill", 'textbox "Secret"', text="hunter2")
    assert "hunter2" not in player.obs["text"] and 'value "(hidden)"' in player.line("Secret")
    player.do("fill", 'textbox "Day"', text="3/9/2024")
    assert 'value "2024-03-09"' in player.line("Day")
    assert "YYYY-MM-DD" in player.do("fill", 'textbox "Day"', text="tomorrow")
    assert "not a text field" in player.do("fill", 'link "Back home"', text="x")


def test_choosing_and_checking(player):
    player.reset("/form")
    assert 'combobox "Fruit" [e7] value "Apple" options: Apple | Pear | Red plum' in player.line("Fruit")
    player.do("select_option", 'combobox "Fruit"', option="pear")
    assert 'value "Pear"' in player.line("Fruit")
    error = player.do("select_option", 'combobox "Fruit"', option="Kiwi")
    assert "no option 'Kiwi'" in error and "'Apple', 'Pear', 'Red plum'" in error
    player.do("select_option", 'listbox "Many"', option=["One", "Three"])
    assert "(selected)" in player.line('option "One"') and "(selected)" in player.line('option "Three"')
    assert "(selected)" not in player.line('option "Two"')
    player.do("check", 'checkbox "Tea"')
    assert player.line("Tea").endswith("(checked)")
    player.do("check", 'checkbox "Tea"', checked=False)
    assert "(checked)" not in player.line("Tea")
    assert "chose" in player.do("select_option", 'radio "Small"', option="Large")
    assert player.line("Large").endswith("(checked)") and "(checked)" not in player.line("Small")


def test_what_goes_wrong_is_said(player):
    player.reset("/form")
    error = player.do("click", id="e999")
    assert "no element 'e999'" in error and 'button "Go" [e13]' in error
    assert "disabled" in player.do("click", 'button "Locked"')
    assert player.do("click", 'button "Idle"') == "nothing changed"
    assert 'dialog "Sure?"' in player.do("click", 'button "Ask"') and "confirmed true" in player.obs["text"]
    assert "no action dance" in player.do("dance") and "needs text" in player.do("fill", "Name")
    stale = player.id('link "Back home"')
    player.do("click", id=stale)
    assert "no longer on this page" in player.do("click", id=stale)
    assert "may be opened" in player.do("goto", url="file:///etc/passwd")
    assert "may be opened" in player.do("goto", url="chrome://version")
    assert not player.terminated and not player.truncated


def test_a_span_with_a_listener_can_be_clicked(player):
    player.reset("/form")
    assert player.line("Bare span").startswith('link "Bare span" [')
    assert player.do("click", "Bare span") == "page changed"
    assert "bare" in player.obs["text"].splitlines()


def test_a_covered_button_names_its_cover(player):
    player.reset("/cover")
    assert "covered" in player.do("click", 'button "Under"') and "veil" in player.obs["error"]


def test_tabs(player, site):
    player.reset("/")
    assert "new tab" in player.do("click", 'link "Form in a tab"')
    assert player.obs["text"].startswith("tabs: 0: Home | 1: Form (current)")
    assert "tab 7" in player.do("switch_tab", index=7)
    player.do("switch_tab", index=0)
    assert player.obs["title"] == "Home"
    player.do("new_tab", url=site + "/long")
    assert "2: Long (current)" in player.obs["text"]
    assert player.do("close_tab") == "a tab was closed"
    player.do("switch_tab", index=1)
    player.do("close_tab")
    assert player.obs["title"] == "Home" and "tabs:" not in player.obs["text"]
    assert "only tab" in player.do("close_tab")


def test_a_long_page_is_cut_and_scrolling_reaches_the_rest(player):
    text = player.reset("/long")
    assert "scroll down to see them)" in text.splitlines()[-1]
    assert player.info["lines"] == 400 and len(text) / 4 < 420
    seen = set()
    for _ in range(60):
        seen |= {line for line in player.obs["text"].splitlines() if line.startswith("line ")}
        if "scroll down" not in player.obs["text"]:
            break
        assert player.do("scroll", direction="down") == "scrolled down"
    assert seen == {f"line {n}" for n in range(200)}
    assert "scroll up to see them" in player.obs["text"]


def test_answers_end_the_episode(player):
    player.reset("/")
    player.do("answer", text="no")
    assert (player.reward, player.terminated) == (0.0, True)
    with pytest.raises(RuntimeError, match="reset"):
        player.do("wait", seconds=0)
    player.reset("/")
    player.do("answer", text="yes")
    assert (player.reward, player.terminated, player.info["raw_reward"]) == (1.0, True, 1.0)
    assert player.info["answer"] == "yes"
