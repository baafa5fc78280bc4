"""Every kind of page in Chromium: all controls named, pictures described, one main heading, no sideways scrolling."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, sync_playwright

from envs.browser.tree import INTERACTIVE, parse
from envs.chromium import FLAGS, find_chromium
from tasks.sites import Sites

PATHS = {
    "home": ("/",),
    "shopping": ("/", "/c/kitchen?per=48", "/c/all?page=3", "/product/40", "/product/3/review", "/search?q=zzzz",
                 "/cart",
                 "/checkout", "/orders", "/orders/5", "/wishlist", "/help", "/contact", "/letters", "/nope"),
    "classifieds": ("/", "/c/vehicles", "/ads?q=red&per=48", "/ad/7", "/member/mira.holt", "/saved", "/mine", "/place",
                    "/inbox", "/sent", "/message/2", "/write/mira.holt", "/safety", "/nope"),
    "forum": ("/", "/b/bread", "/post/23", "/post/6", "/u/mira.holt", "/boards/mine", "/submit", "/inbox", "/sent",
              "/message/1", "/write/mira.holt", "/search?q=rye", "/nope"),
}  # fmt: skip
WIDTHS = (1280, 390)


pytestmark = pytest.mark.usefixtures("browser")


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    sites = Sites(0)
    rules = ", ".join(f"MAP {name} {target}" for name, target in sites.hosts.items())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=[*FLAGS, f"--host-resolver-rules={rules}"]
        )
        made = browser.new_context()
        made.route("**/*.png", lambda route: route.abort())  # their places are kept by width and height
        page = made.new_page()
        for site in ("shopping", "classifieds", "forum"):
            page.goto(f"http://{site}.test/login")
            page.get_by_label("User name").fill("mira.holt")
            page.get_by_label("Password").fill("lantern-42")
            page.get_by_role("button", name="Log in").click()
        page.goto("http://shopping.test/product/3")
        page.get_by_role("button", name="Add to cart").click()
        page.goto("http://shopping.test/product/3")
        page.get_by_role("button", name="Add to wish list").click()
        page.close()
        yield made
        browser.close()
    sites.close()


@pytest.mark.parametrize("site", list(PATHS))
def test_pages_can_be_used_without_seeing_them_and_on_a_telephone(context, site):
    page = context.new_page()
    for path in PATHS[site]:
        page.goto(f"http://{site}.test{path}")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{site}{path} is {wide} px wide at {width}"
        facts = page.evaluate(
            "() => [document.documentElement.lang, document.querySelectorAll('h1').length, document.title,"
            " [...document.images].filter(i => !i.alt).length, document.querySelectorAll('main').length]"
        )
        assert facts[0] == "en" and facts[1] == 1 and len(facts[2]) > 5 and facts[3] == 0 and facts[4] == 1, path
        nameless = [
            node.role for node in parse(page.aria_snapshot(mode="ai")) if node.role in INTERACTIVE and not node.name
        ]
        assert not nameless, f"{site}{path}: {nameless}"
        labels = page.evaluate(
            "() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(e => !e.labels.length && !e.getAttribute('aria-label')).length"
        )
        assert labels == 0, f"{site}{path} has fields without a label"
    page.close()


def test_pages_are_as_large_as_real_ones(context):
    page = context.new_page()
    sizes = {}
    for site, path in (("shopping", "/"), ("shopping", "/c/kitchen"), ("shopping", "/c/kitchen?per=48"),
                       ("shopping", "/product/40"), ("shopping", "/product/5"), ("classifieds", "/"), ("classifieds",
                        "/ads"),
                       ("classifieds", "/ad/7"), ("forum", "/"), ("forum", "/b/bread"), ("forum", "/post/23"),
                       ("forum", "/post/6")):  # fmt: skip
        page.goto(f"http://{site}.test{path}")
        text = re.sub(r" \[(ref|cursor)=\w+\]", "", page.aria_snapshot(mode="ai"))
        sizes[site + path] = len(text) // 4  # tokens, about
    page.close()
    assert 1000 <= statistics.median(sizes.values()) <= 4000, sizes
    assert max(sizes.values()) > 8000, sizes
