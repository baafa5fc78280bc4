"""Log accounts in once and keep the browser's state; a state that no longer counts is made anew."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Error

from envs.browser.tree import first_line
from envs.errors import EnvError
from envs.records import Login

TIMEOUT = 15_000


def signed_in(browser: Browser, logins: list[Login]) -> dict[str, Any]:
    """The state (cookies, local storage) of a context in which all of ``logins`` are logged in.

    Raises:
        EnvError: an account cannot log in; the message names it and the page.
    """
    merged: dict[str, Any] = {"cookies": [], "origins": []}
    for login in logins:
        state = _kept(browser, login) or _fresh(browser, login)
        merged["cookies"] += state["cookies"]
        merged["origins"] += state["origins"]
    return merged


def _kept(browser: Browser, login: Login) -> dict[str, Any] | None:
    """The state of an earlier login, None if there is none or the site no longer knows it."""
    try:
        state: dict[str, Any] = json.loads(Path(login["state"]).read_text(encoding="utf-8"))
        context = browser.new_context(storage_state=state)  # type: ignore[arg-type]
    except (OSError, ValueError, Error):
        return None
    try:
        return state if _counts(context, login) else None
    finally:
        context.close()


def _fresh(browser: Browser, login: Login) -> dict[str, Any]:
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT)
    try:
        page = context.new_page()
        for step in login["steps"]:
            if step["do"] == "open":
                page.goto(step["target"], wait_until="domcontentloaded")
            elif step["do"] == "fill":
                page.locator(step["target"]).first.fill(step.get("text", ""))
            else:
                with page.expect_navigation(wait_until="domcontentloaded"):  # the cookie comes with the answer
                    page.locator(step["target"]).first.click()
        if not _counts(context, login):
            raise EnvError(f"{login['name']} cannot log in: {login['check_url']} does not show it; check the account")
        state = dict(context.storage_state())
    except Error as error:
        where = login["steps"][0]["target"] if login["steps"] else login["check_url"]
        reason = first_line(error.message)[:150]
        raise EnvError(f"{login['name']} cannot log in at {where} ({reason}); is the site up?") from error
    finally:
        context.close()
    _keep(Path(login["state"]), state)
    return state


def _counts(context: BrowserContext, login: Login) -> bool:
    page = context.new_page()
    page.goto(login["check_url"], wait_until="domcontentloaded", timeout=TIMEOUT)
    reached, said = page.url, page.content()
    page.close()
    if login["check_text"]:
        return login["check_text"] in said
    return reached.rstrip("/") == login["check_url"].rstrip("/")


def _keep(path: Path, state: dict[str, Any]) -> None:
    """Write the state for this user's eyes only; whoever reads it meanwhile sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(state, file)
    partial.replace(path)
