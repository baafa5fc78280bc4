"""The ASGI app: which site a request is for, pictures and stylesheets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tasks.sites import classifieds, forum, shopping, signin
from tasks.sites.pictures import picture
from tasks.sites.store import Store
from tasks.sites.web import Table, Visit, routes

HOSTS = {f"{name}.test": name for name in ("classifieds", "shopping", "forum", "home")}
_STYLES = {path.stem: path for path in Path(__file__).with_name("static").glob("*.css")}


def _home(visit: Visit) -> Response:
    return visit.page("home/index.html")


TABLES: dict[str, Table] = {
    "classifieds": {**classifieds.TABLE, **signin.TABLE},
    "shopping": {**shopping.TABLE, **signin.TABLE},
    "forum": {**forum.TABLE, **signin.TABLE},
    "home": {"/": (_home, None)},
}


async def _image(request: Request) -> Response:
    try:
        data = await run_in_threadpool(picture, request.path_params["name"])
    except KeyError:
        raise HTTPException(404) from None
    return Response(data, media_type="image/png", headers={"Cache-Control": "max-age=86400"})


async def _stylesheet(request: Request) -> Response:
    path = _STYLES.get(request.path_params["name"])
    if path is None:
        raise HTTPException(404)
    return Response(path.read_bytes(), media_type="text/css")


class SiteApp:
    """One site, or the site that the request's host names.

    Args:
        store: the database.
        urls: where each site is found, for links from one to another.
        site: serve only this one, whatever the host.
    """

    def __init__(self, store: Store, urls: Mapping[str, str], site: str = "") -> None:
        self.site = site
        self._apps = {name: self._app(name, store, urls) for name in TABLES}

    @staticmethod
    def _app(name: str, store: Store, urls: Mapping[str, str]) -> ASGIApp:
        table: list[Any] = [
            Route("/images/{name}.png", _image),
            Route("/static/{name}.css", _stylesheet),
            *routes(name, store, urls, TABLES[name]),
        ]

        async def missing(scope: Scope, receive: Receive, send: Send) -> None:
            with store.lock:
                answer = Visit(name, store, Request(scope, receive), urls).missing()
            await answer(scope, receive, send)

        return Router(table, default=missing, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or [])
        host = headers.get(b"host", b"").decode("latin-1").partition(":")[0].lower()
        name = self.site or HOSTS.get(host, "")
        if name:
            try:
                await self._apps[name](scope, receive, send)
            except HTTPException as error:
                await Response(f"There is nothing at {scope['path']}.", error.status_code)(scope, receive, send)
        else:
            known = ", ".join(HOSTS)
            await Response(f"No site is called {host!r} here; there are {known}.", 404)(scope, receive, send)
