"""Look at pages when an episode is over, in a tab of its own: the agent's tabs stay as the agent left them."""

from __future__ import annotations

import base64
import contextlib
from typing import Any
from urllib.parse import unquote_to_bytes

from playwright.sync_api import BrowserContext, Error, Page

from envs.browser.tree import first_line
from envs.errors import ProbeError

OPEN_TIMEOUT = 20_000
QUIET_TIMEOUT = 4_000  # pages that fill themselves by script are given this long to fall silent


class Scoring:
    """One scoring tab of a context; it stays on its page until another is asked for."""

    def __init__(self, context: BrowserContext, last: Page) -> None:
        self._context, self._last = context, last
        self._tab: Page | None = None
        self._shown = ""

    @property
    def url(self) -> str:
        """Address of the agent's page."""
        return self._last.url

    def content(self, url: str | None) -> str:
        """HTML of a page (None: the agent's).

        Raises:
            ProbeError: it cannot be opened or read.
        """
        page = self._page(url)
        try:
            return page.content()
        except Error as error:
            raise ProbeError(f"{page.url} cannot be read ({first_line(error.message)[:160]})") from error

    def evaluate(self, url: str | None, script: str, argument: Any = None) -> Any:
        """What a JavaScript function gives on a page (None: the agent's); None where it throws.

        Raises:
            ProbeError: the page cannot be opened.
        """
        page = self._page(url)
        try:
            return page.evaluate(script, argument)
        except Error:
            return None  # the page does not have what the script reaches for

    def fetch(self, url: str) -> bytes:
        """What an address serves, asked by the browser itself: with its cookies and its host rules.

        Raises:
            ProbeError: nothing is served there.
        """
        if url.startswith("data:"):
            head, _, body = url.partition(",")
            return base64.b64decode(body) if head.endswith(";base64") else unquote_to_bytes(body)
        tab = self._own()
        self._shown = ""
        try:
            response = tab.goto(url, wait_until="commit", timeout=OPEN_TIMEOUT)
            if response is None or not response.ok:
                raise ProbeError(f"{url} serves nothing (status {response.status if response else 'none'})")
            return response.body()
        except Error as error:
            raise ProbeError(f"{url} cannot be fetched ({first_line(error.message)[:160]})") from error

    def close(self) -> None:
        """Close the tab."""
        if self._tab is not None and not self._tab.is_closed():
            with contextlib.suppress(Error):  # the browser may be gone, and the tab with it
                self._tab.close()
        self._tab = None

    def _own(self) -> Page:
        if self._tab is None or self._tab.is_closed():
            self._tab, self._shown = self._context.new_page(), ""
        return self._tab

    def _page(self, url: str | None) -> Page:
        if url is None:
            return self._last
        tab = self._own()
        if url == self._shown:
            return tab
        try:
            tab.goto("about:blank")  # an address that differs by its fragment only would not load again
            tab.goto(url, wait_until="domcontentloaded", timeout=OPEN_TIMEOUT)
        except Error as error:
            raise ProbeError(f"{url} cannot be opened ({first_line(error.message)[:160]})") from error
        with contextlib.suppress(Error):  # a page that never falls silent is read as it is
            if tab.evaluate("() => document.scripts.length"):
                tab.wait_for_load_state("networkidle", timeout=QUIET_TIMEOUT)
        self._shown = url
        return tab
