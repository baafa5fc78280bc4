"""Carry out one action on the current page; every failure becomes a sentence that says why."""

from __future__ import annotations

import difflib
import re
from typing import Any, NoReturn
from urllib.parse import urlsplit

from playwright.sync_api import Error, Locator, Page

from envs.browser.snapshot import Element
from envs.browser.tabs import Tabs
from envs.browser.tree import TEXT_ENTRY, clean, first_line

TIMEOUT = 3_000
NAVIGATION_TIMEOUT = 10_000
TYPED_LIMIT = 100
SUGGESTIONS = 700  # ms that lists of suggestions take to open
CHOICES = ("radio", "checkbox", "switch", "option", "menuitemradio", "menuitemcheckbox", "menuitem", "tab")
KEYS = {
    "enter": "Enter", "return": "Enter", "esc": "Escape", "escape": "Escape", "tab": "Tab", "space": "Space",
    "backspace": "Backspace", "delete": "Delete", "del": "Delete", "up": "ArrowUp", "down": "ArrowDown",
    "left": "ArrowLeft", "right": "ArrowRight", "arrowup": "ArrowUp", "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft", "arrowright": "ArrowRight", "pageup": "PageUp", "pagedown": "PageDown",
    "home": "Home", "end": "End", "ctrl": "Control", "control": "Control", "shift": "Shift", "alt": "Alt",
    "cmd": "Meta", "meta": "Meta",
}  # fmt: skip
INPUT_FORMATS = {
    "date": "YYYY-MM-DD", "time": "HH:MM", "month": "YYYY-MM", "week": "YYYY-Www",
    "datetime-local": "YYYY-MM-DDTHH:MM", "color": "#rrggbb", "number": "a number", "range": "a number",
}  # fmt: skip

DESCRIBE = """el => {
  const inner = 'input:not([type=hidden]),textarea,select,[contenteditable=""],[contenteditable=true]';
  return {
    tag: el.tagName.toLowerCase(), type: (el.getAttribute('type') || '').toLowerCase(),
    editable: el.isContentEditable, disabled: !!el.disabled || el.getAttribute('aria-disabled') === 'true',
    readonly: !!el.readOnly, inputs: el.querySelectorAll(inner).length,
    suggests: /autocomplete|typeahead|combobox|suggest/i.test(`${el.className} ${el.getAttribute('role')} ` +
      (el.hasAttribute('aria-autocomplete') || el.hasAttribute('list') ? 'suggest' : '')),
  };
}"""
SCROLL = """([el, dx, dy]) => {
  const scrolls = e => {
    const style = getComputedStyle(e);
    return (dy ? e.scrollHeight > e.clientHeight + 1 && /auto|scroll|overlay/.test(style.overflowY)
               : e.scrollWidth > e.clientWidth + 1 && /auto|scroll|overlay/.test(style.overflowX));
  };
  const root = document.scrollingElement || document.documentElement;
  let target = null;
  for (let e = el; e && !target; e = e.parentElement) if (scrolls(e)) target = e;
  if (!target && el) for (const e of el.querySelectorAll('*')) if (scrolls(e)) { target = e; break; }
  if (!target) {
    const fits = dy ? root.scrollHeight <= innerHeight + 1 : root.scrollWidth <= innerWidth + 1;
    if (!fits) target = root;
    else {
      let best = 0;
      for (const e of document.querySelectorAll('body *')) {
        const area = e.clientWidth * e.clientHeight;
        if (area > best && scrolls(e)) { best = area; target = e; }
      }
    }
  }
  if (!target) return false;
  const [x, y] = [target.scrollLeft, target.scrollTop];
  const [left, top] = [dx * target.clientWidth * 0.8, dy * target.clientHeight * 0.8];
  target.scrollBy({left, top, behavior: 'instant'});
  return target.scrollLeft !== x || target.scrollTop !== y;
}"""


class ActionError(Exception):
    """The action did not happen; the message is shown to the agent."""


def _fail(message: str) -> NoReturn:
    raise ActionError(message)


def explain(error: Error, element: Element | None) -> str:
    """A sentence for a Playwright error: what stood in the way and what to do about it."""
    text, what = error.message, element.label if element else "the page"
    if cover := re.search(r"(<[^>]{1,300}>).{0,200}? intercepts pointer events", text, re.S):
        hint = "close or finish what lies over it first"
        return f"{what} is covered by another element, {clean(cover[1])[:80]}; {hint}"
    if "element is not enabled" in text:
        return f"{what} is disabled; something else on the page must be done first"
    if "element is not visible" in text:
        return f"{what} is on the page but not visible; open or scroll to what contains it first"
    if "outside of the viewport" in text:
        return f"{what} is outside of the visible page; scroll first"
    if "not attached" in text or "detached" in text or "did not find" in text:
        return f"{what} has just been replaced by the page; use the ids of the page as it is now"
    if "element is not stable" in text:
        return f"{what} is still moving; wait a second and try again"
    if "net::" in text or "NS_ERROR" in text:
        return "the page could not be reached: " + first_line(text)[:150]
    if "Timeout" in text:
        return f"{what} did not react within {TIMEOUT // 1000} seconds"
    return f"{what}: " + first_line(text)[:200]


class Actor:
    """Acts on ``tabs.current`` with the ids of the last rendered page."""

    def __init__(self, tabs: Tabs, allowed_file_root: str | None = None) -> None:
        self.tabs, self.allowed_file_root = tabs, allowed_file_root
        self.note = ""

    def run(self, name: str, args: dict[str, Any]) -> None:
        """Do it.

        Raises:
            ActionError: it did not happen, and why.
        """
        self.note = ""
        element = self._element(args["id"]) if args.get("id") is not None else None
        try:
            getattr(self, f"_do_{name}")(element, args)
        except Error as error:
            raise ActionError(explain(error, element)) from error

    # targets

    def _element(self, element_id: Any) -> Element:
        wanted = str(element_id).strip().strip("[]").removeprefix("ref=")
        if wanted.isdigit():
            wanted = "e" + wanted
        element = self.tabs.elements.get(wanted)
        if element is not None:
            return element
        known = list(self.tabs.elements.values())
        by_name = [e for e in known if e.name and e.name.lower() == str(element_id).strip().strip("\"'").lower()]
        if len(by_name) == 1:
            return by_name[0]
        gone = self.tabs.ids.label(wanted)
        label = gone or str(element_id)
        ranked = sorted(known, key=lambda e: -difflib.SequenceMatcher(None, label, e.label).ratio())
        near = ", ".join(e.label for e in ranked[:4]) or "none"
        said = f"{wanted} ({gone}) is no longer on this page" if gone else f"there is no element {wanted!r} here"
        return _fail(f"{said}; ids on this page include {near}")

    def _locate(self, element: Element) -> Locator:
        return self.tabs.current.locator(element.selector)

    def _describe(self, locator: Locator) -> dict[str, Any]:
        described: dict[str, Any] = locator.evaluate(DESCRIBE, timeout=TIMEOUT)
        return described

    def _named(self, option: str, roles: tuple[str, ...]) -> Element | None:
        wanted = clean(option).lower()
        found = [e for e in self.tabs.elements.values() if e.role in roles and e.name.lower() == wanted]
        return found[0] if len(found) == 1 else None

    # actions

    def _do_click(self, element: Element, args: dict[str, Any]) -> None:
        locator = self._locate(element)
        if element.disabled:
            _fail(f"{element.label} is disabled; something else on the page must be done first")
        try:
            locator.click(timeout=TIMEOUT)
        except Error:
            about = self._describe(locator)
            if about["type"] in ("checkbox", "radio") or about["tag"] == "option":
                locator.evaluate("el => ((el.labels && el.labels[0]) || el).click()", timeout=TIMEOUT)
            else:
                raise

    def _do_hover(self, element: Element, args: dict[str, Any]) -> None:
        self._locate(element).hover(timeout=TIMEOUT)

    def _do_fill(self, element: Element, args: dict[str, Any]) -> None:
        text, locator = str(args["text"]), self._locate(element)
        about = self._describe(locator)
        if about["tag"] == "select":
            self._do_select_option(element, {"option": text})
            return
        fillable = about["tag"] in ("input", "textarea") or about["editable"]
        if not fillable and about["inputs"] == 1:
            locator = locator.locator("input:not([type=hidden]), textarea, select, [contenteditable]").first
            about = self._describe(locator)
        elif not fillable:
            _fail(f"{element.label} is not a text field; {self._fields()}")
        if about["type"] in ("checkbox", "radio", "button", "submit", "file", "image", "reset"):
            _fail(f"{element.label} cannot be filled with text; use click")
        if about["disabled"] or about["readonly"]:
            if about["disabled"]:
                _fail(f"{element.label} is disabled; it cannot be filled now")
            _fail(f"{element.label} is read-only: click it instead, it may open something to choose from")
        if about["type"] in INPUT_FORMATS:
            self._fill_formatted(locator, text, about["type"], element)
        elif about["editable"] or "\n" in text or len(text) > TYPED_LIMIT:
            locator.fill(text, timeout=TIMEOUT)
        else:
            locator.fill("", timeout=TIMEOUT)
            locator.press_sequentially(text, timeout=TIMEOUT)
            if about["suggests"]:
                self.tabs.current.wait_for_timeout(SUGGESTIONS)

    def _fill_formatted(self, locator: Locator, text: str, kind: str, element: Element) -> None:
        if kind == "date" and (us := re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{4})", text.strip())):
            text = f"{us[3]}-{int(us[1]):02d}-{int(us[2]):02d}"
        before = locator.input_value(timeout=TIMEOUT)
        try:
            locator.fill(text.strip(), timeout=TIMEOUT)
            taken = bool(locator.input_value(timeout=TIMEOUT)) or not text.strip()
        except Error:
            taken = False
        if not taken:
            locator.fill(before, timeout=TIMEOUT)
            _fail(f"{element.label} takes a {kind}: write it as {INPUT_FORMATS[kind]}")

    def _do_select_option(self, element: Element, args: dict[str, Any]) -> None:
        wanted = args["option"] if isinstance(args["option"], list) else [args["option"]]
        wanted = [str(option) for option in wanted]
        locator = self._locate(element)
        about = self._describe(locator)
        if about["tag"] == "option":
            locator.evaluate("el => { el.selected = true; el.closest('select').dispatchEvent("
                             "new Event('change', {bubbles: true})); }", timeout=TIMEOUT)  # fmt: skip
            return
        if about["tag"] != "select":
            self._choose(element, wanted)
            return
        pairs = locator.evaluate("el => [...el.options].map(o => [o.label.trim(), o.value])", timeout=TIMEOUT)
        indices = [self._match_option(option, pairs) for option in wanted]
        if None in indices:
            listed = ", ".join(repr(label) for label, _ in pairs[:30])
            more = f" and {len(pairs) - 30} more" if len(pairs) > 30 else ""
            lacking = wanted[indices.index(None)]
            _fail(f"{element.label} has no option {lacking!r}; its options are {listed}{more}")
        locator.select_option(index=[index for index in indices if index is not None], timeout=TIMEOUT)

    @staticmethod
    def _match_option(option: str, pairs: list[list[str]]) -> int | None:
        exact = clean(option)
        tests = (
            lambda label, value: clean(label) == exact,
            lambda label, value: value == exact,
            lambda label, value: clean(label).lower() == exact.lower(),
            lambda label, value: bool(exact) and exact.lower() in clean(label).lower(),
        )
        for test in tests:
            found = [index for index, (label, value) in enumerate(pairs) if test(label, value)]
            if found and (len(found) == 1 or test is not tests[-1]):
                return found[0]
        return None

    def _choose(self, element: Element, wanted: list[str]) -> None:
        """select_option on what is not a select: click the choice of that name, opening its list first."""
        for option in wanted:
            target = self._named(option, CHOICES)
            if target is None and element.role in CHOICES and len(wanted) == 1:
                same = clean(option).lower() in ("", element.name.lower(), element.id)
                target = element if same or not element.name else None
            if target is None and element.role in ("combobox", "button", "listbox", "clickable"):
                self._locate(element).click(timeout=TIMEOUT)
                self.tabs.settle()
                self.tabs.observe()
                target = self._named(option, (*CHOICES, "link", "clickable"))
            if target is None:
                instead = "fill" if element.role in TEXT_ENTRY else "click"
                _fail(f"{element.label} is not a list with an option {option!r}; use {instead} on the right id")
            if target.role in ("radio", "checkbox", "switch"):
                self._do_check(target, {"checked": True})  # asked for twice, it stays ticked
            else:
                self._do_click(target, {})
            self.note = f"chose {target.label}"

    def _do_check(self, element: Element, args: dict[str, Any]) -> None:
        locator, checked = self._locate(element), args["checked"] not in (False, "false", "False", 0)
        about = self._describe(locator)
        if about["type"] == "radio" and not checked:
            _fail(f"{element.label} is a radio button: it is cleared by choosing another one")
        if about["type"] not in ("checkbox", "radio") and element.role not in CHOICES:
            if about["tag"] == "label" or element.role == "clickable":
                locator.click(timeout=TIMEOUT)
                return
            _fail(f"{element.label} is not a checkbox; use click")
        try:
            locator.set_checked(checked, timeout=TIMEOUT)
        except Error:
            if about["type"] not in ("checkbox", "radio") or about["disabled"]:
                raise
            click = "(el, on) => { if (el.checked !== on) ((el.labels && el.labels[0]) || el).click(); }"
            locator.evaluate(click, checked, timeout=TIMEOUT)

    def _do_press(self, element: Element | None, args: dict[str, Any]) -> None:
        parts = [part for part in re.split(r"[+]", str(args["key"]).strip()) if part] or ["+"]
        key = "+".join(KEYS.get(part.strip().lower(), part.strip()) for part in parts)
        try:
            if element is None:
                self.tabs.current.keyboard.press(key)
            else:
                self._locate(element).press(key, timeout=TIMEOUT)
        except Error as error:
            if "Unknown key" in error.message:
                names = "Enter, Tab, Escape, ArrowDown, Control+a"
                _fail(f"there is no key {key!r}; use names like {names}; to type text use fill")
            raise

    def _do_scroll(self, element: Element | None, args: dict[str, Any]) -> None:
        steps = {"down": (0, 1), "up": (0, -1), "right": (1, 0), "left": (-1, 0)}
        direction = str(args["direction"]).lower()
        if direction not in steps:
            _fail(f"scroll goes up, down, left or right, not {direction!r}")
        dx, dy = steps[direction]
        if element is None:
            moved = self.tabs.current.evaluate(f"([dx, dy]) => ({SCROLL})([null, dx, dy])", [dx, dy])
        else:
            script = f"(el, [dx, dy]) => ({SCROLL})([el, dx, dy])"
            moved = self._locate(element).evaluate(script, [dx, dy], timeout=TIMEOUT)
        self.note = f"scrolled {direction}" if moved else ""

    def _address(self, given: str) -> str:
        url = given.strip().strip("<>\"'")
        if re.match(r"^[/?#.]", url) and not url.startswith("//"):
            url = self.tabs.current.evaluate("u => new URL(u, document.baseURI).href", url)
        elif self.tabs.current.url.startswith("file:") and url == self.tabs.shown_url(self.tabs.current.url):
            _fail("this page is open already; act on what is on it")
        elif not re.match(r"^[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)", url):
            url = "http://" + url.removeprefix("//")
        parts = urlsplit(url)
        inside = self.allowed_file_root and parts.scheme == "file" and ".." not in parts.path
        if inside and parts.path.startswith(str(self.allowed_file_root)):
            return url
        if url != "about:blank" and (parts.scheme not in ("http", "https") or not parts.hostname):
            _fail(f"{url[:100]!r} is not an address that may be opened; use http:// or https://")
        if parts.username or parts.password:
            _fail("addresses with a user name or password in them are not opened")
        return url

    def _do_goto(self, element: None, args: dict[str, Any]) -> None:
        url = self._address(str(args["url"]))
        self.tabs.current.goto(url, wait_until="domcontentloaded", timeout=NAVIGATION_TIMEOUT)

    def _do_back(self, element: None, args: dict[str, Any]) -> None:
        page = self.tabs.current
        before = page.url
        page.go_back(wait_until="domcontentloaded", timeout=NAVIGATION_TIMEOUT)
        if page.url == "about:blank" and before != "about:blank":
            page.go_forward(wait_until="domcontentloaded", timeout=NAVIGATION_TIMEOUT)
            _fail("this is the first page of the tab; there is nothing to go back to")

    def _do_forward(self, element: None, args: dict[str, Any]) -> None:
        self.tabs.current.go_forward(wait_until="domcontentloaded", timeout=NAVIGATION_TIMEOUT)

    def _do_new_tab(self, element: None, args: dict[str, Any]) -> None:
        url = self._address(str(args["url"])) if args["url"] else None
        self.tabs.open()
        if url:
            self.tabs.current.goto(url, wait_until="domcontentloaded", timeout=NAVIGATION_TIMEOUT)

    def _tab_index(self, index: Any) -> int:
        pages: list[Page] = self.tabs.pages
        try:
            number = int(index)
        except (TypeError, ValueError):
            number = -1
        if not 0 <= number < len(pages):
            _fail(f"there is no tab {index}; the tabs are 0 to {len(pages) - 1}")
        return number

    def _do_switch_tab(self, element: None, args: dict[str, Any]) -> None:
        self.tabs.switch(self._tab_index(args["index"]))

    def _do_close_tab(self, element: None, args: dict[str, Any]) -> None:
        if len(self.tabs.pages) == 1:
            _fail("this is the only tab; it stays open")
        self.tabs.current.close()

    def _do_wait(self, element: None, args: dict[str, Any]) -> None:
        try:
            seconds = float(args["seconds"])
        except (TypeError, ValueError):
            seconds = 1.0
        seconds = min(max(seconds, 0.0), 10.0)
        self.tabs.current.wait_for_timeout(seconds * 1000)
        self.note = f"waited {seconds:g} s"

    def _fields(self) -> str:
        """What can be filled on this page, or that nothing can."""
        found = [e.label for e in self.tabs.elements.values() if e.role in TEXT_ENTRY]
        if not found:
            return "this page has no text field yet: click what leads to one"
        return "fill " + " or ".join(found[:4])
