"""The demo shop: solved by who carries the code, not by who does not."""

from __future__ import annotations

import re

import pytest

from tasks.demo.catalogue import catalogue
from tasks.errors import TaskError
from tasks.resolve import list_tasks, make_env


def _id(obs, words):
    return re.search(re.escape(words) + r" \[(\w+)\]", obs["text"])[1]


def _play(env, seed, code=None, product=None):
    obs, _ = env.reset(seed=seed)
    seen = re.search(r"pickup code is (\w+)", obs["text"])[1]
    wanted = product or re.search(r"Order the (.*?) with", obs["goal"])[1]
    result = None
    for name, words, more in (
        ("click", f'link "{wanted}"', {}),
        ("click", 'link "Order this"', {}),
        ("fill", 'textbox "Pickup code"', {"text": code or seen}),
        ("click", 'button "Place order"', {}),
    ):
        assert name != "fill" or f"code is {seen}" not in obs["text"]  # only the home page shows it
        result = env.step({"name": name, "args": {"id": _id(obs, words), **more}})
        obs = result[0]
    return result


@pytest.fixture(scope="module")
def env():
    made = make_env("demo/shop", seed=0)
    yield made
    made.close()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_right_order_scores_one(env, seed):
    obs, reward, terminated, truncated, info = _play(env, seed)
    assert (reward, terminated, truncated, info["raw_reward"]) == (1.0, True, False, 1.0)
    assert "Thank you!" in obs["text"] and obs["url"].startswith("http://shop.example/done/")


def test_a_wrong_code_is_refused_and_said(env):
    obs, reward, terminated, _, _ = _play(env, 1, code="maple0")
    assert (reward, terminated) == (0.0, False) and "maple0 is not the pickup code" in obs["text"]


def test_the_wrong_product_scores_nothing(env):
    stock = catalogue(1)
    other = next(item.name for item in stock.products if item != stock.wanted)
    _, reward, terminated, _, _ = _play(env, 1, product=other)
    assert (reward, terminated) == (0.0, True)


def test_doing_nothing_or_claiming_success_scores_nothing(env):
    env.reset(seed=1)
    _, reward, terminated, _, _ = env.step({"name": "wait", "args": {"seconds": 0}})
    assert (reward, terminated) == (0.0, False)
    _, reward, terminated, _, _ = env.step({"name": "answer", "args": {"text": "ordered"}})
    assert (reward, terminated) == (0.0, True)


def test_seeds_decide_everything(env):
    first, again, other = env.reset(seed=5)[0], env.reset(seed=5)[0], env.reset(seed=6)[0]
    assert first == again and first["goal"] != other["goal"]
    assert len({catalogue(seed).code for seed in range(20)}) > 10


def test_unknown_tasks_name_the_closest():
    with pytest.raises(TaskError, match="demo/shop"):
        make_env("demo/shap")
    with pytest.raises(TaskError, match="miniwob/click-button"):
        make_env("miniwob/click-buton")
    names = [name for name, _ in list_tasks()]
    assert names[0] == "demo/shop" and "miniwob/click-button" in names
