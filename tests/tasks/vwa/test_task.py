"""A task from its start to its score in a real browser: tabs, log-in, pictures, looks from a tab of their own."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from envs.browser import BrowserEnv
from envs.errors import EnvError
from tasks.errors import TaskError
from tasks.vwa.logins import EMBEDDED_FORM, Account, login
from tasks.vwa.schema import VwaTaskConfig
from tasks.vwa.sites import SiteMap, embedded_sites, official_sites
from tasks.vwa.task import VwaTask

sys.path.insert(0, str(Path(__file__).parent))
from small_site import PASSWORD, USERNAME, SmallSite, picture


def config(**changes: Any) -> VwaTaskConfig:
    evaluation = {"eval_types": ["string_match"], "reference_answers": {"must_include": ["5"]}}
    base: dict[str, Any] = {
        "sites": ["shopping"],
        "task_id": 1,
        "require_login": False,
        "start_url": "__SHOPPING__/",
        "intent_template": "",
        "intent": "Order a lamp.",
        "instantiation_dict": {},
        "require_reset": False,
        "eval": evaluation,
        "reasoning_difficulty": "easy",
        "visual_difficulty": "easy",
        "overall_difficulty": "easy",
        "viewport_size": {"width": 640, "height": 480},
    }
    return VwaTaskConfig.model_validate(base | changes)


def program(*targets: dict[str, Any]) -> dict[str, Any]:
    return {"eval_types": ["program_html"], "program_html": list(targets)}


ORDERED = program(
    {
        "url": "__SHOPPING__/orders",
        "locator": "document.querySelector('.order').textContent",
        "required_contents": {"exact_match": "lamp"},
    },
    {"url": "last", "locator": "func:get_query_text(__page__, 'h1')", "required_contents": {"must_include": ["Small"]}},
)


@pytest.fixture(scope="module")
def site() -> Iterator[SmallSite]:
    made = SmallSite()
    yield made
    made.close()


@pytest.fixture(scope="module")
def sites(site: SmallSite, tmp_path_factory: pytest.TempPathFactory) -> SiteMap:
    folder = tmp_path_factory.mktemp("logins")
    found = embedded_sites(site, Account(USERNAME, PASSWORD))
    return replace(found, login=lambda name, url: login(name, url, Account(USERNAME, PASSWORD), EMBEDDED_FORM, folder))


class Play:
    """Plays tasks in one environment; elements are named by what their line says."""

    def __init__(self, sites: SiteMap) -> None:
        self.sites, self.env = sites, BrowserEnv(VwaTask(config(), sites))
        self.obs: dict[str, Any] = {}
        self.info: dict[str, Any] = {}

    def begin(self, sites: SiteMap | None = None, **changes: Any) -> str:
        """Reset to a task; the text of its page."""
        self.env.task = VwaTask(config(**changes), sites or self.sites)
        self.obs, self.info = self.env.reset(seed=0)
        return str(self.obs["text"])

    def act(self, name: str, words: str = "", **args: Any) -> str:
        """One action; the text of the page after it."""
        if words:
            found = re.search(re.escape(words) + r" \[(\w+)\]", self.obs["text"])
            assert found, self.obs["text"]
            args["id"] = found[1]
        self.obs, *_, self.info = self.env.step({"name": name, "args": args})
        return str(self.obs["text"])

    def order(self, what: str) -> str:
        """Fill in the order form and send it."""
        self.act("fill", 'textbox "What"', text=what)
        return self.act("click", 'button "Order"')

    def finish(self, answer: str | None = None) -> tuple[float, str]:
        """The score."""
        return self.env.finish(answer)


@pytest.fixture(scope="module")
def play(sites: SiteMap) -> Iterator[Play]:
    made = Play(sites)
    yield made
    made.env.close()


def test_an_answer_is_scored_once_and_only_if_it_is_one(play: Play) -> None:
    play.begin()
    _, reward, terminated, _, info = play.env.step({"name": "answer", "args": {"text": "There are 5. Ok"}})
    assert (reward, terminated, info["raw_reward"]) == (0.0, True, 0.0)  # not scored yet
    assert play.finish("There are 5. Ok") == (1.0, "")
    assert play.finish(None) == (1.0, "")  # asked again, the verdict is the same
    play.begin()
    assert play.finish(None) == (0.0, "string_match: no answer was given")
    with pytest.raises(RuntimeError, match="reset"):
        play.env.step({"name": "wait", "args": {}})


def test_what_the_agent_did_is_found_in_a_tab_of_its_own(play: Play, site: SmallSite) -> None:
    play.begin(eval=ORDERED)
    assert "RESET" in site.requests and site.orders == []
    before = play.order("lamp")
    assert play.finish() == (1.0, "")
    tabs = play.env._look({"op": "probe", "name": "evaluate", "args": [None, "() => document.title"]})
    assert tabs == {"value": "/orders"} and "tabs:" not in before
    play.begin(eval=ORDERED)
    play.order("lamps")
    assert play.finish("lamp") == (0.0, "program_html: http://small.test/orders has 'lamps', not 'lamp'")
    play.begin(eval=ORDERED)
    assert play.finish()[1] == "program_html: http://small.test/orders has '', not 'lamp'"


def test_a_page_that_asks_and_opens_others_is_read_all_the_same(play: Play) -> None:
    price = {"required_values": [">= 1200", "< 1201"]}
    target = {
        "url": "__SHOPPING__/asks",
        "locator": "func:get_query_text(__page__, '.price')",
        "required_contents": price,
    }
    last = {
        "url": "last",
        "locator": "func:get_query_text(__page__, 'title')",
        "required_contents": {"exact_match": "/"},
    }
    play.begin(eval=program(target, last, target))
    assert play.finish(None) == (1.0, "")


def test_what_cannot_be_scored_is_zero_and_says_why(play: Play) -> None:
    fuzzy = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": "N/A"}, "string_note": "no lamps"}
    play.begin(eval=fuzzy)
    score, reason = play.finish("There is none")
    assert score == 0.0 and reason.startswith("cannot be scored: an answer other than N/A needs a judge")
    play.begin(eval=fuzzy)
    assert play.finish("n/a") == (1.0, "")
    gone = {"url": "http://127.0.0.1:9/", "locator": "", "required_contents": {"must_include": ["x"]}}
    play.begin(eval=program(gone))
    score, reason = play.finish(None)
    assert score == 0.0 and reason.startswith("cannot be scored: http://127.0.0.1:9/ cannot be opened")
    play.begin(eval=ORDERED)
    play.env._process.kill()
    assert play.finish("lamp") == (0.0, "cannot be scored: the browser was closed")
    play.begin()  # and the next episode starts clean
    assert play.finish("5") == (1.0, "")


def test_start_tabs_viewport_and_input_images(play: Play) -> None:
    text = play.begin(
        start_url="__SHOPPING__/orders |AND| __SHOPPING__/pictures",
        image=["__HOMEPAGE__/images/kayak.png", "__HOMEPAGE__/images/plain.png"],
        viewport_size={"width": 430, "height": 932},
    )
    assert text.startswith("tabs: 0: /orders (current) | 1: /pictures\nurl: http://small.test/orders")
    assert play.obs["goal"] == "Order a lamp.\nImage 1: a drawing of a kayak\nImage 2: (no description)"
    assert play.info["input_images"] == [picture("kayak"), picture("plain")]
    assert play.env._look({"op": "probe", "name": "evaluate", "args": [None, "() => [innerWidth, innerHeight]"]}) == {
        "value": [430, 932]
    }
    with pytest.raises(EnvError, match=r"images/none\.png cannot be fetched \(.*RESPONSE_CODE_FAILURE"):
        play.begin(image="__HOMEPAGE__/images/none.png")


def test_where_the_browser_says_it_is(play: Play, site: SmallSite, sites: SiteMap) -> None:
    here = replace(sites, urls={"shopping": f"http://127.0.0.1:{site.port}"})  # only a safe address is told
    play.begin(here, geolocation={"latitude": 40.5, "longitude": -80.0})
    asks = "() => new Promise(say => navigator.geolocation.getCurrentPosition(place => say(place.coords.latitude)))"
    assert play.env._look({"op": "probe", "name": "evaluate", "args": [None, asks]}) == {"value": 40.5}


def test_an_account_logs_in_once_and_again_when_the_site_has_forgotten_it(
    play: Play, site: SmallSite, sites: SiteMap
) -> None:
    def logins() -> int:
        return sum(request.startswith("POST /login") for request in site.requests)

    text = play.begin(require_login=True)
    assert 'button "Log out"' in text and logins() == 1
    text = play.begin(require_login=True, storage_state="./.auth/shopping_state.json")
    assert 'button "Log out"' in text and logins() == 1
    text = play.begin()
    assert 'link "Log in"' in text
    site.session += 1
    text = play.begin(require_login=True)
    assert 'button "Log out"' in text and logins() == 2
    state = Path(sites.login("shopping", "http://small.test")["state"])
    assert state.stat().st_mode & 0o077 == 0
    state.write_text("{broken")
    text = play.begin(require_login=True)
    assert 'button "Log out"' in text and logins() == 3


def test_a_login_that_fails_names_the_account(play: Play, sites: SiteMap, tmp_path: Path) -> None:
    wrong = Account(USERNAME, "wrong")
    bad = replace(sites, login=lambda name, url: login(name, url, wrong, EMBEDDED_FORM, tmp_path))
    with pytest.raises(EnvError, match=r"mira\.holt \(shopping\) cannot log in.*check the account"):
        play.begin(bad, require_login=True)
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_compared_and_asked_about(play: Play) -> None:
    alike = {
        "eval_image_url": "last",
        "eval_image_class": ".photos",
        "eval_fuzzy_image_match": "__HOMEPAGE__/images/kayak.png",
    }
    unlike = alike | {"eval_fuzzy_image_match": "__HOMEPAGE__/images/lamp.png", "eval_image_class": ".photos > img"}
    kind, start = {"eval_types": ["page_image_query"]}, "__SHOPPING__/pictures"
    play.begin(start_url=start, eval=kind | {"page_image_query": [alike]})
    assert play.finish(None) == (1.0, "")
    for queries in ([unlike, alike], [alike, unlike]):  # whichever comes last
        play.begin(start_url=start, eval=kind | {"page_image_query": queries})
        score, reason = play.finish(None)
        assert score == 0.0 and "no picture looks like the one wanted" in reason
    missing = alike | {
        "eval_fuzzy_image_match": "__HOMEPAGE__/images/none.png |OR| absent.png |OR| __HOMEPAGE__/images/kayak.png"
    }
    play.begin(start_url=start, eval=kind | {"page_image_query": [missing]})
    assert play.finish(None) == (1.0, "")
    play.begin(
        start_url=start,
        eval=kind | {"page_image_query": [alike | {"eval_fuzzy_image_match": "absent.png"}]},
    )
    assert play.finish(None) == (
        0.0,
        "cannot be scored: no reference picture can be had (absent.png is not an address)",
    )
    asks = {"eval_image_url": "last", "eval_image_class": "", "eval_vqa": [{"question": "Is it red?", "answer": "yes"}]}
    play.begin(start_url=start, eval=kind | {"page_image_query": [asks]})
    assert play.finish(None)[1].startswith("cannot be scored: page_image_query needs a model")


@pytest.mark.parametrize("mode", ["aria+captions", "screenshot", "som"])
def test_observation_modes(mode: str, sites: SiteMap) -> None:
    captioner = None if mode != "aria+captions" else lambda image: f"drawing of {len(image)} bytes"
    env = BrowserEnv(VwaTask(config(start_url="__SHOPPING__/pictures"), sites), observation=mode, captioner=captioner)
    try:
        observation, info = env.reset(seed=0)
        lines = observation["text"].splitlines()
        assert 'image "A red kayak"' in lines
        if mode == "aria+captions":
            assert lines[-3:] == [
                "Pictures:",
                f'image 1 "A red kayak": drawing of {len(picture("kayak"))} bytes',
                f'image 2 "": drawing of {len(picture("plain"))} bytes',
            ]
            assert "image" not in info
            return
        shot = Image.open(io.BytesIO(info["image"])).convert("RGB")
        assert shot.size == (640, 480)
        if mode == "som":  # the marks are the text's ids, drawn over the same page
            boxes = env._last["boxes"]
            assert set(boxes) == set(re.findall(r"\[(e\d+)\]", observation["text"])) and len(boxes) == 2
            plain = Image.open(io.BytesIO(info["screenshot"])).convert("RGB")
            x, y, _, height = boxes["e2"]
            corner = (round(x), round(y + height) - 1)
            assert shot.getpixel(corner) == (31, 119, 180) != plain.getpixel(corner)
    finally:
        env.close()


def test_official_sites_come_from_variables() -> None:
    sites = official_sites({"VWA_SHOPPING": "http://shop.test:7770/", "VWA_CLASSIFIEDS": "http://ads.test"})
    assert sites.urls == {"shopping": "http://shop.test:7770", "classifieds": "http://ads.test"}
    state = "./.auth/shopping_state.json"
    task = VwaTask(config(require_login=True, storage_state=state, viewport_size=None), sites)
    spec = task.start(0)
    assert spec["url"] == "http://shop.test:7770/" and spec["viewport"] == {"width": 1280, "height": 2048}
    assert [each["name"] for each in spec["logins"]] == ["emma.lopez@gmail.com (shopping)"]
    assert spec["logins"][0]["check_url"] == "http://shop.test:7770/wishlist/"
    with pytest.raises(TaskError, match=r"task 1 needs the site reddit, .*VWA_REDDIT.*doctor --vwa"):
        VwaTask(config(start_url="__REDDIT__/f/food"), sites)
    with pytest.raises(TaskError, match="VWA_CLASSIFIEDS_RESET_TOKEN"):
        VwaTask(config(sites=["classifieds"], require_reset=True), sites).start(0)


def test_official_classifieds_is_reset_with_its_token(site: SmallSite) -> None:
    here = f"http://127.0.0.1:{site.port}"
    sites = official_sites({"VWA_CLASSIFIEDS": here, "VWA_SHOPPING": here, "VWA_CLASSIFIEDS_RESET_TOKEN": "t&1"})
    VwaTask(config(sites=["classifieds"], require_reset=True), sites).start(0)
    assert site.requests[-1] == "POST /index.php?page=reset token=t%261"
