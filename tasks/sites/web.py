"""What every page needs: the visitor, the form, the template, the answer."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tasks.sites.clock import day
from tasks.sites.pictures import alt_text
from tasks.sites.store import Store

MAX_FORM = 200_000
MAX_ID = 2**53
NAMES = {"classifieds": "Corner Market", "shopping": "Copperleaf", "forum": "Millpond", "home": "The Twelve Towns"}


def money(cents: int) -> str:
    """``1290`` as ``$12.90``."""
    return f"${cents // 100:,}.{cents % 100:02d}"


def image(name: str, css: str = "") -> Markup:
    """The picture of that name with its alternative text."""
    return Markup('<img src="/images/{}.png" alt="{}" width="480" height="360" loading="lazy" class="{}">').format(
        name, alt_text(name), css
    )


def slug(name: str) -> str:
    """``Bags & Travel`` as ``bags-travel``."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


templates = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters |= {
    "money": money,
    "day": day,
    "slug": slug,
    "pairs": lambda values: [(value, value) for value in values],
    "labels": lambda options: [(key, option[0]) for key, option in options.items()],
}
templates.globals |= {"image": image, "site_names": NAMES}


@dataclass
class Visit:
    """One request to one site."""

    site: str
    store: Store
    request: Request
    urls: Mapping[str, str]
    form: dict[str, str] = field(default_factory=dict)

    @property
    def db(self) -> sqlite3.Connection:
        """The database; the lock is held while a page is made."""
        return self.store.db

    @property
    def path(self) -> str:
        """Address on this site with its query."""
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self.db.execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row of a query, if there is one."""
        found: sqlite3.Row | None = self.db.execute(sql, values).fetchone()
        return found

    def count(self, sql: str, *values: Any) -> int:
        """The number that a query counts."""
        return int(self.db.execute(sql, values).fetchone()[0])

    def meta(self, key: str) -> str:
        """A fact of the seed, such as the code in a notice."""
        return str(self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()["value"])

    def query(self, name: str, default: str = "") -> str:
        """A value behind the question mark, without blanks around it."""
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int | None = None, low: int = 0, high: int = 10**7) -> int | None:
        """A whole number behind the question mark within bounds; the default when it is none."""
        try:
            return min(max(int(float(self.query(name))), low), high)
        except (ValueError, OverflowError):
            return default

    def address(self, **changes: Any) -> str:
        """This page's address with some query values changed (None: left out)."""
        values = {key: value for key, value in self.request.query_params.items() if value}
        values |= {key: str(value) for key, value in changes.items() if value is not None}
        kept = {key: value for key, value in values.items() if changes.get(key, "") is not None}
        return self.request.url.path + (f"?{urlencode(kept)}" if kept else "")

    def _secret(self, username: str) -> str:
        text = f"{self.store.seed}/{self.site}/{username}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def username(self) -> str:
        """Who is logged in; "" for a guest. The cookie needs no session, so it outlives a reset."""
        name, _, secret = self.request.cookies.get(f"{self.site}_user", "").partition("/")
        return name if name and secret == self._secret(name) else ""

    def sign_in(self, answer: Response, username: str) -> None:
        """Remember who this is."""
        answer.set_cookie(f"{self.site}_user", f"{username}/{self._secret(username)}", httponly=True, samesite="lax")

    def page(self, template: str, status: int = 200, **data: Any) -> HTMLResponse:
        """A page of this site."""
        shared = {"visit": self, "site": self.site, "urls": self.urls, "username": self.username}
        extra = SHARED[self.site](self) if self.site in SHARED else {}
        html = templates.get_template(template).render(shared | extra | data)
        return HTMLResponse(html, status, headers={"Cache-Control": "no-store"})

    def go(self, address: str) -> RedirectResponse:
        """Show another page after something was done."""
        return RedirectResponse(address, 303)

    def missing(self, what: str = "page") -> HTMLResponse:
        """The page that says that something is not here."""
        return self.page("missing.html", 404, what=what)


#: site -> what all of its templates are given beside the page's own data
SHARED: dict[str, Callable[[Visit], dict[str, Any]]] = {}

Handler = Callable[[Visit], Response]
#: Path -> what GET does, what POST does.
Table = Mapping[str, tuple[Handler | None, Handler | None]]
Endpoint = Callable[[Request], Awaitable[Response]]


def members_only(handler: Handler) -> Handler:
    """A guest is sent to the login page and comes back afterwards."""

    def guarded(visit: Visit) -> Response:
        if visit.username:
            return handler(visit)
        after = visit.path if visit.request.method == "GET" else visit.request.url.path
        return visit.go("/login?" + urlencode({"next": after}))

    return guarded


def _endpoint(site: str, store: Store, urls: Mapping[str, str], handler: Handler) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        form: dict[str, str] = {}
        if request.method == "POST":
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM:
                    return Response("The form is too long: shorten the text and send it again.", 413)
            text = body.decode("utf-8", "replace")
            form = {key: value.strip() for key, value in parse_qsl(text, keep_blank_values=True)}
        visit = Visit(site, store, request, urls, form)
        with store.lock:
            if any(isinstance(value, int) and value > MAX_ID for value in request.path_params.values()):
                return visit.missing()
            return handler(visit)

    return endpoint


def _nothing_to_show(visit: Visit) -> Response:
    """What is only for forms has no page."""
    return visit.missing()


def routes(site: str, store: Store, urls: Mapping[str, str], table: Table) -> list[Route]:
    """The routes of a site's table."""
    made = []
    for path, (get, post) in table.items():
        made.append(Route(path, _endpoint(site, store, urls, get or _nothing_to_show), methods=["GET"]))
        if post is not None:
            made.append(Route(path, _endpoint(site, store, urls, post), methods=["POST"]))
    return made


@dataclass(frozen=True)
class Pager:
    """One page of a long list."""

    page: int
    size: int
    total: int

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-self.total // self.size))

    @property
    def offset(self) -> int:
        """How many entries come before this page."""
        return (self.page - 1) * self.size

    @property
    def shown(self) -> str:
        """``13-24 of 40``."""
        last = min(self.offset + self.size, self.total)
        return f"{self.offset + 1}-{last} of {self.total}" if self.total else "0"


def pager(visit: Visit, total: int, size: int) -> Pager:
    """The page that the address asks for, within what there is."""
    last = max(1, -(-total // size))
    return Pager(visit.number("page", 1, 1, last) or 1, size, total)
