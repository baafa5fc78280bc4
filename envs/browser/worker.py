"""The process that owns the browser: ``python -m envs.browser.worker FD PARENT`` serves an inherited socket.

Requests and replies are plain dicts. It ends with its parent, whatever happens to that: the socket closes
(seen while idle), or the parent's id changes (seen by a thread, also while a page hangs), browser included.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]
from playwright.sync_api import Browser, BrowserContext, Error, Playwright, sync_playwright

from envs.browser.actions import TIMEOUT, ActionError, Actor
from envs.browser.logins import signed_in
from envs.browser.pictures import boxes, pictures
from envs.browser.scoring import Scoring
from envs.browser.tabs import Tabs, View
from envs.browsergym_task import GymTask
from envs.chromium import FLAGS, INSTALL
from envs.errors import EnvError

VIEWPORT = {"width": 1024, "height": 720}
SECOND_LOOK = (0.25, 0.5)  # seconds more to wait when an action seems to have done nothing


class Worker:
    """One browser, one context an episode."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.playwright: Playwright | None = None
        self.browser: Browser | None = None
        self.context: BrowserContext | None = None
        self.gym: GymTask | None = None
        self.last: View | None = None
        self.scoring: Scoring | None = None

    def _launch(self, hosts: dict[str, str]) -> Browser:
        if self.browser is not None and self.browser.is_connected():
            return self.browser
        if self.playwright is None:
            self.playwright = sync_playwright().start()
        flags = list(FLAGS)
        if hosts:
            rules = ", ".join(f"MAP {name} {target}" for name, target in hosts.items())
            flags.append(f"--host-resolver-rules={rules}")
        try:
            self.browser = self.playwright.chromium.launch(
                executable_path=self.config["chromium"],
                headless=not self.config["headed"],
                args=flags,
                timeout=40_000,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            lines = [line.strip() for line in error.message.splitlines() if line.strip()]
            hint = next((line for line in lines if "DISPLAY" in line or "X server" in line), "")
            why = "it needs a display; leave out --headed" if hint else INSTALL
            raise EnvError(f"the browser {self.config['chromium']} does not start ({lines[0][:120]}); {why}") from error
        return self.browser

    def reset(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode in a fresh context."""
        self._end_episode()
        browser = self._launch(spec.get("hosts") or {})
        self.gym = GymTask(spec["browsergym"], spec["seed"]) if spec.get("browsergym") else None
        viewport = (self.gym.viewport if self.gym else None) or spec.get("viewport") or VIEWPORT
        options: dict[str, Any] = {"viewport": viewport, "accept_downloads": False}
        options["device_scale_factor"] = 2 if viewport["width"] < 500 else 1
        if self.gym:
            options |= self.gym.context_options
        if spec.get("geolocation"):
            options |= {"geolocation": spec["geolocation"], "permissions": ["geolocation"]}
        if spec.get("logins"):
            options["storage_state"] = signed_in(browser, spec["logins"])
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(self.gym.timeout if self.gym else TIMEOUT)
        self.tabs = Tabs(self.context)
        goal = spec.get("goal", "")
        if self.gym:
            goal = self.gym.setup(self.tabs.current)
        elif spec.get("url"):
            self._open(spec["url"], spec.get("more_urls", []))
        self.context.set_default_timeout(TIMEOUT)
        self.actor = Actor(self.tabs, self.gym.file_root if self.gym else None)
        self.tabs.settle()
        self.last = self.tabs.observe()
        images = [self.probe("fetch", [url])["value"] for url in spec.get("images", [])]
        return self._reply(goal=goal, effect="", input_images=images)

    def _open(self, url: str, more: list[str]) -> None:
        """The start page, and further ones in tabs behind it."""
        first = self.tabs.current
        first.goto(url, wait_until="domcontentloaded", timeout=10_000)
        for each in more:
            self.tabs.open().goto(each, wait_until="domcontentloaded", timeout=10_000)
        if more:
            self.tabs.switch(0)

    def probe(self, name: str, args: list[Any]) -> dict[str, Any]:
        """Look at a page from a tab that is not the agent's (``envs.records.Probe``)."""
        assert self.context is not None
        self.tabs.hiding = True
        try:
            if self.scoring is None:
                self.scoring = Scoring(self.context, self.tabs.current)
            found = getattr(self.scoring, name)
            return {"value": found(*args) if callable(found) else found}
        finally:
            self.tabs.hiding = False
            if name in ("close", "fetch") and self.scoring is not None:
                self.scoring.close()
                self.scoring = None

    def step(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Carry out one action (already checked against the closed set) and look again."""
        assert self.last is not None
        error = ""
        self.tabs.dialogs.clear()
        opened, tabs = self.tabs.opened, len(self.tabs.pages)
        if name == "answer":
            done = self._scored(str(args["text"]))
            return self._reply(effect="answered", scored=done)
        try:
            self.actor.run(name, args)
        except ActionError as failure:
            error = str(failure)
        note = self.actor.note
        self.tabs.settle()
        scored = self._scored()
        before, view = self.last, self.tabs.observe()
        if name in ("click", "press", "check", "select_option") and not error:
            for pause in SECOND_LOOK:
                if (
                    self._change(before, view, opened, tabs) != "nothing changed"
                    or self.tabs.dialogs
                    or (scored and scored["done"])
                ):
                    break
                self.tabs.settle(quiet=pause)
                scored = self._scored()
                view = self.tabs.observe()
        self.last = view
        change = self._change(before, view, opened, tabs)
        effect = "; ".join(part for part in (note, change, *self.tabs.dialogs) if part)
        if name in ("scroll", "wait") and note and change == "nothing changed":
            effect = note
        if scored and scored["done"]:
            effect = "the episode is over"
        return self._reply(effect=effect, error=error, scored=scored)

    def _scored(self, answer: str | None = None) -> dict[str, Any] | None:
        """Ask the task for its score; a page in the middle of a navigation is asked once more."""
        if self.gym is None:
            return None
        try:
            return self.gym.validate(self.tabs.current, answer)
        except Error:
            self.tabs.settle(quiet=0.5)
            return self.gym.validate(self.tabs.current, None)

    def _change(self, before: View, view: View, opened: int, tabs: int) -> str:
        if self.tabs.opened > opened:
            return f"a new tab was opened and is shown now: {Tabs.shown_url(view.url)}"
        if len(self.tabs.pages) < tabs:
            return "a tab was closed"
        if view.url != before.url:
            return f"navigated to {Tabs.shown_url(view.url)}"
        if view.signature != before.signature:
            return "page changed"
        if view.focus and view.focus != before.focus:
            return "the cursor is in " + view.focus.removesuffix(" (focused)")
        return "nothing changed"

    def _reply(self, **more: Any) -> dict[str, Any]:
        view = self.last
        assert view is not None
        reply: dict[str, Any] = {"goal": "", "error": "", "scored": None, "screenshot": None}
        reply |= {"head": view.head, "lines": view.lines, "url": view.url, "title": view.title} | more
        mode = self.config["observation"]
        if mode == "aria+captions":
            reply["pictures"] = pictures(self.tabs.current)
        if mode == "som":
            reply["boxes"] = boxes(self.tabs.current, self.tabs.elements)
            reply["width"] = (self.tabs.current.viewport_size or VIEWPORT)["width"]
        if self.config["screenshots"] or mode in ("screenshot", "som"):
            try:
                reply["screenshot"] = self.tabs.current.screenshot(timeout=TIMEOUT, animations="disabled")
            except Error:
                reply["screenshot"] = None  # a page that cannot be drawn can still be read
        return reply

    def _end_episode(self) -> None:
        if self.gym is not None:
            self.gym.teardown()
            self.gym = None
        self.scoring = None
        if self.context is not None:
            try:
                self.context.close()
            except Error:
                self.browser = None  # the browser is gone; the next reset starts another
            self.context = None

    def close(self) -> dict[str, Any]:
        """End the episode and the browser."""
        self._end_episode()
        if self.browser is not None:
            self.browser.close()
        if self.playwright is not None:
            self.playwright.stop()
        return {}


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(1)


def main() -> None:
    """Serve until told to close or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = int(sys.argv[2])
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    worker = Worker(pipe.recv())
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            worker.close()
            return
        try:
            op = request.pop("op")
            serve: Callable[..., dict[str, Any]] = getattr(worker, op)  # reset, step, probe or close
            reply = serve(**request)
        except EnvError as error:
            reply = {"failed": str(error), "user_facing": True}
        except Exception as error:  # the parent decides; a page must not be able to end the episode loop
            reply = {"failed": f"{type(error).__name__}: {error}", "user_facing": False}
        pipe.send(reply)
        if op == "close":
            return


if __name__ == "__main__":
    main()
