"""The pages of one episode: the current one, what they said in dialogs, and how the current one reads."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Dialog, Error, FileChooser, Page, Request

from envs.browser.clickables import WATCH, marked_snapshot
from envs.browser.ids import Ids
from envs.browser.snapshot import LINE, Element, render
from envs.browser.tree import Node, clean, first_line, nameless, parse

SNAPSHOT_TIMEOUT = 5_000
MAX_TABS = 8
MAX_ICONS = 30
HINT = """el => {
  const said = el.getAttribute('aria-label') || el.getAttribute('title') || el.getAttribute('data-tooltip');
  if (said) return said;
  const fill = el.getAttribute('fill') || el.style.fill;
  if (el.namespaceURI === 'http://www.w3.org/2000/svg')
    return [/^[a-z]+$/.test(fill) && fill !== 'none' ? fill : '', el.tagName].join(' ').replace(/ (path|g)$/, '');
  const inner = el.querySelector('i[class], span[class], svg[class]');
  const noise = new Set(['ui', 'btn', 'button', 'icon', 'widget', 'corner', 'all', 'state', 'default', 'fa', '']);
  const words = `${el.getAttribute('class') || ''} ${inner ? inner.getAttribute('class') : ''} ${el.id}`;
  return [...new Set(words.split(/[-_\\s]+/))].filter(w => !noise.has(w)).slice(0, 3).join(' ');
}"""


@dataclass
class View:
    """How the current page reads: header lines, page lines, address and title."""

    head: list[str]
    lines: list[str]
    url: str
    title: str

    @property
    def signature(self) -> tuple[str, ...]:
        """What makes two views the same; where the cursor stands does not."""
        lines = (line.replace(" (focused)", "").replace(", focused", "") for line in self.lines)
        return (*self.head, *lines, self.url)

    @property
    def focus(self) -> str:
        """The line of the field that has the cursor, "" if there is none."""
        return next((line for line in self.lines if LINE.match(line) and line.endswith("focused)")), "")


@dataclass
class _Traffic:
    """Requests on their way that an action may have to wait for."""

    navigations: set[Request] = field(default_factory=set)
    calls: set[Request] = field(default_factory=set)


class Tabs:
    """Watches a browser context; follows new tabs, answers dialogs, renders the current page."""

    def __init__(self, context: BrowserContext) -> None:
        self.context, self.ids = context, Ids()
        self.elements: dict[str, Element] = {}
        self.dialogs: list[str] = []
        self.crashed: set[Page] = set()
        self.opened = self.closed = 0
        self.hidden: set[Page] = set()  # tabs that are not the agent's
        self.hiding = False  # tabs that open now are not
        self._traffic = _Traffic()
        self._current: Page | None = None
        context.add_init_script(WATCH)
        context.on("page", self._on_page)
        context.on("dialog", self._on_dialog)
        context.on("request", self._on_request)
        context.on("requestfinished", self._on_request_end)
        context.on("requestfailed", self._on_request_end)
        self.open()

    # events

    def _on_page(self, page: Page) -> None:
        if self.hiding:
            self.hidden.add(page)
            return
        if len(self.context.pages) > MAX_TABS:
            page.close()
            return
        page.on("filechooser", self._on_file_chooser)
        page.on("crash", lambda crashed: self.crashed.add(crashed))
        self.opened += 1
        self._current = page

    def _on_dialog(self, dialog: Dialog) -> None:
        kind = "question" if dialog.type in ("confirm", "prompt") else dialog.type
        self.dialogs.append(f'the page showed a {kind} dialog "{clean(dialog.message)[:500]}"; it was accepted')
        dialog.accept(dialog.default_value if dialog.type == "prompt" else None)

    def _on_file_chooser(self, chooser: FileChooser) -> None:
        self.dialogs.append("the page asked for a file; files cannot be chosen here")

    def _on_request(self, request: Request) -> None:
        if request.is_navigation_request():
            self._traffic.navigations.add(request)
        elif request.resource_type in ("xhr", "fetch"):
            self._traffic.calls.add(request)

    def _on_request_end(self, request: Request) -> None:
        self._traffic.navigations.discard(request)
        self._traffic.calls.discard(request)

    # tabs

    @property
    def pages(self) -> list[Page]:
        return [page for page in self.context.pages if not page.is_closed() and page not in self.hidden]

    @property
    def current(self) -> Page:
        """The tab acted on; the last one left when it was closed, a new one when none is left."""
        if self._current is None or self._current.is_closed():
            pages = self.pages
            self._current = pages[-1] if pages else self.open()
        return self._current

    def open(self) -> Page:
        """Open an empty tab and make it the current one."""
        self._current = self.context.new_page()
        return self._current

    def switch(self, index: int) -> None:
        """Make tab ``index`` the current one."""
        self._current = self.pages[index]
        self._current.bring_to_front()

    # reading

    def settle(self, quiet: float = 0.06, limit: float = 8.0) -> None:
        """Wait for what an action set off: navigations (up to ``limit`` s), then background calls (1.5 s)."""
        start = time.monotonic()
        page = self.current
        page.wait_for_timeout(quiet * 1000)
        while self._traffic.navigations and time.monotonic() - start < limit:
            self.current.wait_for_timeout(30)
        page = self.current
        left = max(0.1, limit - (time.monotonic() - start))
        with contextlib.suppress(Error):  # still loading then: it is shown as far as it has come
            page.wait_for_load_state("domcontentloaded", timeout=left * 1000)
        start = time.monotonic()
        while self._traffic.calls and time.monotonic() - start < 1.5:
            self.current.wait_for_timeout(30)
        self._traffic.navigations.clear()
        self._traffic.calls.clear()

    def observe(self) -> View:
        """Read the current page and remember its elements for the next action."""
        page = self.current
        self.elements = {}
        if page in self.crashed:
            return View(self._head(page, ""), ["(this page has crashed; open another with goto)"], page.url, "")
        try:
            title = clean(page.title())[:200]
            snapshot, marked = marked_snapshot(page, SNAPSHOT_TIMEOUT)
            nodes = parse(snapshot)
            self._name_icons(page, nodes)
            lines, self.elements = render(nodes, self.ids.page(page.url), marked)
            self._hide_passwords(page, lines)
        except Error as error:
            title, lines = "", self._fallback(page, error)
        return View(self._head(page, title), lines or ["(the page is empty)"], page.url, title)

    @staticmethod
    def _name_icons(page: Page, nodes: list[Node]) -> None:
        """Controls that say nothing (icon buttons, shapes) are named by what their mark-up says of them."""
        for node in nameless(nodes)[:MAX_ICONS]:
            with contextlib.suppress(Error):  # replaced meanwhile: it stays without a name
                node.name = clean(page.locator(f"aria-ref={node.ref}").evaluate(HINT, timeout=500))[:60]

    def _hide_passwords(self, page: Page, lines: list[str]) -> None:
        """Replace the values of password fields; only fields with a value are asked for their type."""
        for number, line in enumerate(lines):
            found = LINE.match(line)
            if found is None or not line.startswith(' value "', found.end()):
                continue
            element = self.elements.get(found["id"])
            if element is None or element.role != "textbox":
                continue
            kind = page.locator(element.selector).evaluate("el => el.type", timeout=1000)
            if kind == "password":
                lines[number] = f'{found[0]} value "(hidden)"{line[line.rfind(chr(34)) + 1 :]}'

    def _fallback(self, page: Page, error: Error) -> list[str]:
        reason = first_line(error.message)[:120]
        lines = [f"(the structure of this page could not be read: {reason}; its text follows)"]
        try:
            text = page.inner_text("body", timeout=2000)
        except Error:
            return ["(this page could not be read; wait, or open another with goto)"]
        return lines + [clean(line) for line in text.splitlines() if line.strip()]

    def _head(self, page: Page, title: str) -> list[str]:
        head = []
        pages = self.pages
        if len(pages) > 1:
            names = [f"{i}: {self._name(p)}" + (" (current)" if p == page else "") for i, p in enumerate(pages)]
            head.append("tabs: " + " | ".join(names))
        head.append("url: " + self.shown_url(page.url))
        if title:
            head.append("title: " + title)
        return head

    @staticmethod
    def shown_url(url: str) -> str:
        """The address as shown: local files by name only, long ones cut."""
        parts = urlsplit(url)
        shown = parts.path.rsplit("/", 1)[-1] if parts.scheme == "file" else url
        return clean(shown)[:200]

    def _name(self, page: Page) -> str:
        try:
            return clean(page.title())[:60] or self.shown_url(page.url)
        except Error:
            return self.shown_url(page.url)
