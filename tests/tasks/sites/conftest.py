"""One set of sites, a client that needs no browser, and a browser that knows the hosts."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urlencode

import pytest

from tasks.sites import Sites


class Client:
    """Follows redirects and keeps cookies, site by site."""

    def __init__(self, sites: Sites, site: str) -> None:
        self.sites, self.host, self.cookies = sites, f"{site}.test", {}
        self.status, self.path, self.html = 0, "", ""

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> str:
        link = http.client.HTTPConnection("127.0.0.1", self.sites.port, timeout=10)
        headers = {"Host": self.host, "Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        link.request(method, path, urlencode(form) if form is not None else None, headers)
        answer = link.getresponse()
        body = answer.read()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0].strip('"')
        if answer.status == 303:
            return self.ask("GET", answer.getheader("Location").partition("#")[0])
        self.status, self.path = answer.status, path
        self.html = body.decode("utf-8", "replace")
        link.close()
        return self.html

    def get(self, path: str) -> str:
        return self.ask("GET", path)

    def post(self, path: str, **form: str) -> str:
        return self.ask("POST", path, form)

    def login(self) -> Client:
        self.post("/login", username="mira.holt", password="lantern-42")
        return self

    @property
    def text(self) -> str:
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.html)).split())


@pytest.fixture(scope="session")
def sites() -> Iterator[Sites]:
    made = Sites(0)
    yield made
    made.close()


@pytest.fixture
def client(sites: Sites):
    sites.reset()
    return lambda site: Client(sites, site)
