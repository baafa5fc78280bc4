"""A local web server with test pages, and environments that play them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from envs.browser import BrowserEnv
from envs.browser.snapshot import LINE
from envs.records import TaskSpec

PAGES = {
    "/": """<title>Home</title><h1>Home</h1><a href="/form">To the form</a> <a href="/long">Long</a>
      <a href="/form" target="_blank">Form in a tab</a><p>Plain words</p><div><div></div></div>""",
    "/form": """<title>Form</title><label>Name <input id="name"></label>
      <label>Secret <input type="password"></label><label>Day <input type="date"></label>
      <label><input type="checkbox"> Tea</label><label><input type="radio" name="r"> Small</label>
      <label><input type="radio" name="r"> Large</label>
      <label>Fruit <select><option>Apple</option><option>Pear</option><option>Red plum</option></select></label>
      <label>Many <select multiple><option>One</option><option>Two</option><option>Three</option></select></label>
      <button disabled>Locked</button><button id="b" onclick="out.textContent = 'pressed'">Go</button>
      <button>Idle</button><button onclick="out.textContent = 'confirmed ' + confirm('Sure?')">Ask</button>
      <div id="wrap" style="cursor:pointer"><input aria-label="Inner"></div>
      <span id="bare">Bare span</span>
      <p id="out"></p><a href="/">Back home</a>
      <script>document.getElementById('name').addEventListener('keydown', e => {
        if (e.key === 'Enter') out.textContent = 'entered ' + e.target.value; });
        document.getElementById('bare').addEventListener('click', () => { out.textContent = 'bare'; });</script>""",
    "/long": "<title>Long</title>" + "".join(f'<p>line {n}</p><a href="#{n}">link {n}</a>' for n in range(200)),
    "/cover": """<title>Cover</title><button>Under</button>
      <div id="veil" style="position:fixed;inset:0;background:#000">Veil</div>""",
    "/hang": """<title>Hang</title><button onclick="for (;;) {}">Freeze</button>""",
    "/twice": """<title>Twice</title><ul><li><a href="/">Same</a></li><li><a href="/">Same</a></li></ul>
      <table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table><iframe srcdoc="<button>In</button>">
      </iframe>""",
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGES.get(self.path.split("?")[0], "<title>None</title>none").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class PageTask:
    """Opens one page; the answer "yes" is right."""

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self, seed: int) -> TaskSpec:
        return {"url": self.url, "goal": "look around", "seed": seed}

    def score(self, answer: str | None) -> tuple[float, bool]:
        return (1.0 if answer == "yes" else 0.0), False

    def close(self) -> None:
        """Nothing held."""


class Player:
    """Acts by what a line says instead of by its id."""

    def __init__(self, env: BrowserEnv) -> None:
        self.env = env
        self.obs: dict[str, Any] = {}
        self.info: dict[str, Any] = {}
        self.reward, self.terminated, self.truncated = 0.0, False, False

    def reset(self, path: str | None = None, seed: int | None = None) -> str:
        if path is not None:
            base = self.env.task.url.split("/", 3)
            self.env.task.url = "/".join(base[:3]) + path
        self.obs, self.info = self.env.reset(seed=seed)
        return self.obs["text"]

    def id(self, words: str) -> str:
        found = [line for line in self.obs["text"].splitlines() if words in line and LINE.match(line)]
        assert found, f"{words!r} not in:\n{self.obs['text']}"
        return LINE.match(found[0])["id"]

    def line(self, words: str) -> str:
        return next((line for line in self.obs["text"].splitlines() if words in line), "")

    def do(self, name: str, on: str | None = None, **args: Any) -> str:
        if on is not None:
            args["id"] = self.id(on)
        self.obs, self.reward, self.terminated, self.truncated, self.info = self.env.step({"name": name, "args": args})
        return self.obs["error"] or self.obs["effect"]


@pytest.fixture(scope="session")
def page_task() -> type[PageTask]:
    return PageTask


@pytest.fixture(scope="module")
def player(site: str) -> Iterator[Player]:
    env = BrowserEnv(PageTask(site + "/"), max_tokens=400, screenshots=False)
    yield Player(env)
    env.close()


@pytest.fixture
def make_player() -> Iterator[Callable[[BrowserEnv], Player]]:
    made: list[BrowserEnv] = []

    def make(env: BrowserEnv) -> Player:
        made.append(env)
        return Player(env)

    yield make
    for env in made:
        env.close()
