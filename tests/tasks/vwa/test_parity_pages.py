"""program_html and page_image_query against the official evaluators, on pages made up for every official task."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Page, Route, sync_playwright

from envs.browser import scoring
from envs.chromium import FLAGS, find_chromium
from tasks.vwa.evaluators import evaluate
from tasks.vwa.evaluators.functions import parse
from tasks.vwa.evaluators.page import Page as LookedAt
from tasks.vwa.evaluators.postmill import latest_comment, parent_of_latest_comment
from tasks.vwa.evaluators.ssim import similarity
from tasks.vwa.load import official_tasks
from tasks.vwa.schema import VwaTaskConfig

sys.path.insert(0, str(Path(__file__).parent))
import fabricate
import official

LAST = "http://last.test/f/here/123/some-post"


class Shop:
    """A Magento shop's REST interface with one order; ``reviews`` is what it has of every product."""

    def __init__(self) -> None:
        self.reviews: list[dict[str, Any]] = []
        shop = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                account = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send("token" if account == {"username": "admin", "password": "admin1234"} else None)

            def do_GET(self) -> None:
                known = self.headers["Authorization"] == "Bearer token"
                orders = {"items": [{"increment_id": "000000042"}]}
                self._send((orders if "/orders?" in self.path else shop.reviews) if known else None)

            def _send(self, value: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(200 if value is not None else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Silence."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def review(text: str, percent: str | int) -> dict[str, Any]:
    """A review as the shop's interface gives it."""
    return {"nickname": text, "detail": text, "ratings": [{"rating_name": "Rating", "percent": percent}]}


class Bench:
    """Both evaluations of a task on the same made-up pages, in one browser."""

    def __init__(self, context: BrowserContext, shop: Shop, theirs: Any, folder: Path) -> None:
        self.context, self.shop, self.theirs, self.folder = context, shop, theirs, folder
        self.pages: dict[str, str] = {}
        theirs.helpers.SHOPPING = shop.url
        context.route("**/*", self._serve)
        context.set_default_timeout(3000)
        self.last, self.tab = context.new_page(), context.new_page()  # opening one for each look would take an hour
        self.placeholders = official.PLACEHOLDERS | {"__SHOPPING__": shop.url}

    def _serve(self, route: Route) -> None:
        body = self.pages.get(route.request.url.rstrip("/"), "<title>empty</title>")
        route.fulfill(body=body, content_type="text/html")

    def address(self, url: str) -> str:
        """The page a target's ``url`` means here."""
        if url == "last":
            return LAST
        if url.startswith("func:"):
            latest = f"{self.shop.url}/sales/order/view/order_id/42"
            return latest if "latest_order" in url else "http://last.test/f/here/123"
        return url.partition("#")[0].rstrip("/")

    def fill(self, task: VwaTaskConfig, how: str) -> bool:
        """Make pages for the task: ``right``, ``near``, ``wrong`` (in one place) or ``empty``; False if none can."""
        self.pages, self.shop.reviews = {}, []
        found: dict[str, list[dict[str, Any]]] = {}
        merged: dict[tuple[str, str], list[str]] = {}
        targets = task.eval.program_html or []
        for number, target in enumerate(targets):
            text = fabricate.meeting(target.required_contents)
            if text is None:
                return False
            if how != "right" and number == len(targets) - 1:
                text = fabricate.missing(target.required_contents, text, how)
            merged.setdefault((self.address(target.url), target.locator), []).append(text)
        for (address, locator), texts in merged.items():
            target = next(t for t in targets if (self.address(t.url), t.locator) == (address, locator))
            made = fabricate.parts(target, "; ".join(texts))
            if made is None:
                self.shop.reviews = self.shop.reviews or [review("old", 80), review("other", 20)]
                self.shop.reviews[1] |= fabricate.reviewed(locator, texts[0])
            found.setdefault(address, []).extend(made or [])
        self.pages = {} if how == "empty" else {address: fabricate.page(made) for address, made in found.items()}
        if how == "empty":
            self.shop.reviews = []
        return True

    def verdicts(self, task: VwaTaskConfig) -> tuple[float, float, str]:
        """Ours, theirs (a crash is a 0), and why ours is not 1."""
        self.last.goto(LAST)
        looks = scoring.Scoring(SimpleNamespace(new_page=lambda: self.tab), self.last)
        ours = evaluate(task, None, looks, shop_url=self.shop.url)
        path = official.write(json.loads(task.model_dump_json(exclude_none=True)), self.folder / "task.json")
        try:
            score = float(self.theirs.HTMLContentExactEvaluator()([], path, self.shown(self.last)))
        except Exception:
            score = 0.0
        return ours.score, score, ours.reason

    def shown(self, page: Page) -> Any:
        """A page as the official evaluator takes it, whose new tabs are this bench's one tab."""
        shown = self.theirs.PseudoPage(page, page.url)
        shown.context = SimpleNamespace(new_page=lambda: self.shown(self.tab))
        shown.close = lambda: None
        return shown


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    shop = Shop()
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(scoring, "QUIET_TIMEOUT", 1)  # made-up pages are whole at once
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield Bench(browser.new_context(), shop, official.load(), tmp_path_factory.mktemp("parity"))
        browser.close()
    monkeypatch.undo()
    shop.close()


def only_pages(task: VwaTaskConfig, bench: Bench) -> VwaTaskConfig:
    """The task's looks at pages without its other evaluations."""
    alone = task.eval.model_copy(update={"eval_types": ["program_html"]})
    return task.model_copy(update={"eval": alone}).resolved(bench.placeholders)


def kind(task: VwaTaskConfig) -> str:
    """What is special about the task's looks."""
    targets = task.eval.program_html or []
    shapes = []
    for target in targets:
        called = parse(target.locator)[0] if target.locator.startswith("func:") else target.locator
        shapes.append(re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", called) + target.url.split("(")[0].rsplit("/", 1)[0][:12])
    return " ".join(sorted(set(shapes)))


def compare(bench: Bench, tasks: list[VwaTaskConfig]) -> Counter[str]:
    """How many verdicts agreed, by the kind of pages and verdict; any other fails."""
    counts: Counter[str] = Counter()
    for each in tasks:
        task = only_pages(each, bench)
        for how in ("right", "near", "wrong", "empty"):
            if not bench.fill(task, how):
                counts["judged"] += 1
                break
            ours, theirs, reason = bench.verdicts(task)
            assert ours == theirs, (task.task_id, how, ours, theirs, reason, bench.pages)
            counts[f"{how} {ours:g}"] += 1
            if how == "right" and not ours:
                print("a page that should be right is not:", task.task_id, reason)
    return counts


def page_tasks() -> list[VwaTaskConfig]:
    return [task for task in official_tasks() if "program_html" in task.eval.eval_types]


def test_one_task_of_each_kind_agrees(bench: Bench) -> None:
    chosen = list({kind(task): task for task in page_tasks()}.values())
    simple = [task for task in chosen if len(task.eval.program_html or []) <= 2]
    counts = compare(bench, simple[::3])
    print(counts)
    assert counts["right 1"] == counts["wrong 0"] == counts["empty 0"] == len(simple[::3]) > 12


def test_whose_post_it_is_makes_no_comment_theirs(bench: Bench) -> None:
    """The listed difference "own-comments": the post is by "someone", who has not commented."""
    made = [{"kind": "comment", "user": "mira", "text": "the newest", "parent": "above"}]
    bench.pages = {LAST: fabricate.page(made)}
    bench.last.goto(LAST)
    ours = LookedAt(scoring.Scoring(bench.context, bench.last))
    shown, theirs = bench.shown(bench.last), bench.theirs.reddit_get_latest_comment_content_by_username
    assert latest_comment(ours, "mira") == theirs(shown, "mira") == "the newest"
    assert parent_of_latest_comment(ours, "mira") == "above"
    assert (latest_comment(ours, "someone"), theirs(shown, "someone")) == ("", "the first")


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_tasks_agree(bench: Bench) -> None:
    tasks = page_tasks()
    counts = compare(bench, tasks)
    print(counts)
    assert len(tasks) == 409 and counts["judged"] == 3
    assert counts["right 1"] > 395 and counts["wrong 0"] > 395


def test_pictures_are_as_similar_as_scikit_image_finds() -> None:
    """The official threshold is 0.8; both measures are the same to nine digits."""
    from skimage.metrics import structural_similarity

    rng = np.random.default_rng(4)
    smooth = Image.fromarray(rng.integers(0, 255, (6, 8, 3), dtype=np.uint8)).resize(
        (160, 120), Image.Resampling.BICUBIC
    )
    noisy = Image.fromarray(np.clip(np.asarray(smooth) + rng.normal(0, 12, (120, 160, 3)), 0, 255).astype(np.uint8))
    other = Image.fromarray(rng.integers(0, 255, (90, 200, 3), dtype=np.uint8))
    seen = []
    for one, two in ((smooth, smooth), (smooth, noisy), (smooth, other), (smooth, smooth.resize((80, 60)))):
        size = max(one.width, two.width), max(one.height, two.height)
        grey = [np.array(image.resize(size, Image.Resampling.LANCZOS).convert("L")) for image in (one, two)]
        wanted = structural_similarity(*grey, full=True)[0]
        seen.append(similarity(*(encoded(image) for image in (one, two))))
        assert seen[-1] == pytest.approx(wanted, abs=1e-9)
    assert seen[0] == 1.0 and seen[1] < 0.95 and seen[2] < 0.2 and seen[3] > 0.9


def encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
