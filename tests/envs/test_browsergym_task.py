"""MiniWoB pages played in our browser, scored by the task's raw reward."""

from __future__ import annotations

import re

import pytest

from envs.browser import BrowserEnv
from envs.browsergym_task import BrowserGymTask, gym_id, list_ids
from envs.errors import EnvError


def test_ids():
    assert gym_id("miniwob/click-button") == "browsergym/miniwob.click-button"
    assert gym_id("browsergym/miniwob.click-button") == "browsergym/miniwob.click-button"
    assert len(list_ids("miniwob")) >= 120


def test_click_button_right_and_wrong(make_player):
    player = make_player(BrowserEnv(BrowserGymTask("miniwob/click-button")))
    player.reset(seed=1)
    first = player.obs["text"]
    wanted = re.search(r'"(.*)"', player.obs["goal"])[1]
    shown = re.search(r"url: (\S+)", first)[1]
    assert "open already" in player.do("goto", url=shown) and player.obs["text"] == first
    player.do("click", f'button "{wanted}"')
    assert (player.reward, player.terminated, player.info["raw_reward"]) == (1.0, True, 1.0)
    player.reset(seed=1)
    assert player.obs["text"] == first
    wrong = next(b for b in re.findall(r'button "(.*?)"', first) if b != wanted)
    player.do("click", f'button "{wrong}"')
    assert (player.reward, player.terminated) == (0.0, True) and player.info["raw_reward"] < 0


def test_click_option_takes_several_steps(make_player):
    player = make_player(BrowserEnv(BrowserGymTask("miniwob/click-option")))
    player.reset(seed=3)
    wanted = re.search(r"Select (\S+) and", player.obs["goal"])[1]
    player.do("select_option", f'radio "{wanted}"', option=wanted)
    assert not player.terminated and player.line(wanted).endswith("(checked)")
    player.do("click", 'button "Submit"')
    assert (player.reward, player.terminated) == (1.0, True)


def test_an_unknown_task_is_one_line(make_player):
    player = make_player(BrowserEnv(BrowserGymTask("miniwob/no-such")))
    with pytest.raises(EnvError, match=r"no BrowserGym task browsergym/miniwob.no-such"):
        player.reset()
