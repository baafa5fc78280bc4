"""How accounts log in: the official sites' forms and our own, as steps that the browser's process carries out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from confkv.cache_dir import cache_dir
from envs.records import Login, LoginStep


@dataclass(frozen=True)
class Account:
    """Whom an agent is logged in as."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Form:
    """A site's log-in form: its address below the site's, CSS selectors, and how it is told that it has worked.

    The page at ``check`` says ``says``, or (where that is "") is not left for another.
    """

    path: str
    username: str
    password: str
    button: str
    check: str
    says: str = ""


#: The accounts that the official containers come with.
OFFICIAL_ACCOUNTS = {
    "classifieds": Account("blake.sullivan@gmail.com", "Password.123"),
    "reddit": Account("MarvelsGrantMan136", "test1234"),
    "shopping": Account("emma.lopez@gmail.com", "Password.123"),
}
_LOG_IN = "role=button[name=/log in/i] >> nth=-1"  # the form's; the page's header may have another
OFFICIAL_FORMS = {
    "classifieds": Form(
        "/index.php?page=login",
        "#email",
        "#password",
        _LOG_IN,
        "/index.php?page=user&action=items",
        "My listings",
    ),
    "reddit": Form(
        "/login",
        "[name=_username]",
        "[name=_password]",
        _LOG_IN,
        "/user/{username}/account",
        "Delete",
    ),
    "shopping": Form("/customer/account/login/", "#email", "#pass", "role=button[name=/sign in/i]", "/wishlist/"),
}
EMBEDDED_FORM = Form("/login", "[name=username]", "[name=password]", _LOG_IN, "/", "Log out")


def login(site: str, url: str, account: Account, form: Form, folder: Path | None = None) -> Login:
    """The record that makes the browser log in, once for a site, its address and an account.

    Args:
        folder: where states are kept; by default in confkv's cache.
    """
    key = hashlib.sha256("\0".join((url, account.username, account.password)).encode()).hexdigest()[:16]
    folder = folder or cache_dir() / "logins"
    steps: list[LoginStep] = [
        {"do": "open", "target": url + form.path},
        {"do": "fill", "target": form.username, "text": account.username},
        {"do": "fill", "target": form.password, "text": account.password},
        {"do": "click", "target": form.button},
    ]
    return {
        "name": f"{account.username} ({site})",
        "state": str(folder / f"{site}-{key}.json"),
        "steps": steps,
        "check_url": url + form.check.format(username=account.username),
        "check_text": form.says,
    }
