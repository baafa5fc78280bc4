"""One server for all sites: hosts, errors, bytes, resets, and the command for people."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.cli import app
from tasks.errors import TaskError
from tasks.sites import LocalSites, Sites

ROOT = Path(__file__).resolve().parents[3]
PATHS = {
    "home": ("/",),
    "shopping": ("/", "/c/kitchen?per=48", "/product/40", "/search?q=oak", "/help", "/cart", "/login"),
    "classifieds": ("/", "/ads?per=48", "/ad/7", "/safety", "/login"),
    "forum": ("/", "/b/chess", "/post/23", "/search?q=tea", "/login"),
}


def _pages(sites: Sites, make) -> dict[str, str]:
    return {f"{site}{path}": make(site).get(path) for site, paths in PATHS.items() for path in paths}


def test_two_servers_of_a_seed_say_the_same(sites, client):
    other = Sites(0)
    kind = type(client("home"))
    try:
        assert _pages(sites, client) == _pages(other, lambda site: kind(other, site))
        assert other.port != sites.port and set(other.hosts) == set(sites.hosts)
    finally:
        other.close()


def test_unknown_pages_hosts_and_numbers(client):
    for site in ("shopping", "classifieds", "forum", "home"):
        page = client(site)
        page.get("/no/such/page")
        assert page.status == 404 and "is not here" in page.text
    for site, path in (("shopping", "/product/99999999999999999999"), ("classifieds", "/ad/0"), ("forum", "/b/nothing"),
                       ("shopping", "/c/nothing"), ("shopping", "/product/3/cart"), ("forum", "/logout"),
                        ("forum", "/u/nobody"), ("shopping", "/images/dragon-red-1.png"),
                       ("shopping", "/static/../app.css")):  # fmt: skip
        page = client(site)
        page.get(path)
        assert page.status == 404, path
    stranger = client("shopping")
    stranger.host = "elsewhere.test"
    assert "classifieds.test" in stranger.get("/") and stranger.status == 404


@pytest.mark.parametrize("path", ["/search?q=%27%20OR%201=1--", "/search?q=%ff%00%22%3Cscript%3E",
                                  "/c/all?page=x&min=1e9&max=-5",
                                  "/c/all?page=99999999999999999999", "/search?q=%F0%9F%8E%88"])  # fmt: skip
def test_odd_addresses_are_just_pages(client, path):
    shop = client("shopping")
    shop.get(path)
    assert shop.status == 200 and "<script>" not in shop.html


def test_odd_forms_are_refused_not_crashed(client):
    shop = client("shopping").login()
    shop.ask("POST", "/contact", {"body": "x" * 250_000})
    assert shop.status == 413
    shop.post("/contact", topic="Returns", number="'; DROP TABLE sh_order; --", body="Quite long enough.")
    assert shop.status == 422 and "You have no order" in shop.text
    assert "CP-20437" in shop.get("/orders")


def test_login_stays_on_the_site_and_a_reset_keeps_it(client, sites):
    shop = client("shopping")
    shop.post("/login?next=//evil.test/", username="mira.holt", password="lantern-42")
    assert shop.path == "/" and "Log out mira.holt" in shop.text
    sites.reset()
    assert "Log out mira.holt" in " ".join(shop.get("/orders").split()) and shop.status == 200
    shop.post("/logout")
    assert "Log in" in shop.text
    shop.post("/login", username="mira.holt", password="wrong")
    assert shop.status == 422 and "do not match" in shop.text and 'value="mira.holt"' in shop.html


def test_a_taken_port_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TaskError, match=f"port {port} cannot be used"):
            LocalSites(0, port)


def test_the_command_serves_until_interrupted():
    command = [sys.executable, "-m", "tasks.cli.app", "sites", "--json"]
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'kernels'}"}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        urls = json.loads(process.stdout.readline())
        assert list(urls) == ["home", "classifieds", "shopping", "forum"]
        titles = []
        for url in urls.values():
            link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
            link.request("GET", "/")
            titles.append(link.getresponse().read().decode())
        names = ("Twelve", "Corner Market", "Copperleaf", "Millpond")
        assert all(name in page for name, page in zip(names, titles, strict=True))
        assert f'href="{urls["home"]}/"' in titles[1] and f'href="{urls["forum"]}/"' in titles[0]
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


def test_the_command_refuses_bad_ports(capsys):
    assert app.invoke(["sites", "--port", "70000"]) == 2
    assert "sites --help" in capsys.readouterr().err
