"""page_image_query against the official evaluator, over the official tasks that compare pictures."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tasks.vwa.evaluators import evaluate, reference_in
from tasks.vwa.load import official_root, official_tasks
from tasks.vwa.schema import OR, VwaTaskConfig

sys.path.insert(0, str(Path(__file__).parent))
import official

LAST = "http://last.test/"


def picture(name: str, size: tuple[int, int] = (150, 100)) -> Image.Image:
    """A smooth picture of its own for every name."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    small = Image.fromarray(rng.integers(0, 255, (5, 7, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


class Pages:
    """Pages with one picture each, as a probe (ours) and as a page (theirs). Other addresses are pictures."""

    def __init__(self, shown: dict[str, Image.Image]) -> None:
        self.shown = {f"{url}#picture": encoded(image, "JPEG") for url, image in shown.items()}
        self.url, self.context = LAST, self

    def evaluate(self, url: str | None, script: str, argument: Any = None) -> Any:
        return [f"{url or LAST}#picture"]

    def fetch(self, url: str) -> bytes:
        return self.shown.get(url) or encoded(picture(url))

    def get(self, url: str, stream: bool) -> Any:
        return SimpleNamespace(raw=io.BytesIO(self.fetch(url)))

    def new_page(self) -> Pages:
        opened = object.__new__(Pages)
        opened.shown, opened.context = self.shown, self
        return opened

    def goto(self, url: str) -> None:
        self.url = url

    def close(self) -> None:
        """Nothing to close."""

    def query_selector_all(self, selector: str) -> list[Any]:
        address = f"{self.url}#picture"
        return [SimpleNamespace(evaluate=lambda script: True, get_attribute=lambda name: address)]


def compared(task: VwaTaskConfig) -> bool:
    queries = task.eval.page_image_query or []
    return "page_image_query" in task.eval.eval_types and not any(query.eval_vqa for query in queries)


def test_tasks_that_compare_pictures_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, root, counts = official.load(), official_root(), Counter[str]()
    monkeypatch.chdir(root)  # where theirs looks for pictures that are no addresses
    tasks = [task for task in official_tasks() if compared(task)]
    for each in tasks:
        alone = each.eval.model_copy(update={"eval_types": ["page_image_query"]})
        task = each.model_copy(update={"eval": alone}).resolved(official.PLACEHOLDERS)
        path = official.write(json.loads(task.model_dump_json(exclude_none=True)), tmp_path / "task.json")
        for how in ("right", "wrong"):
            shown = {}
            for query in task.eval.page_image_query or []:
                wanted = (query.eval_fuzzy_image_match or "").split(OR)[0]
                if wanted.startswith("http"):
                    given = picture(wanted).resize((120, 80))
                else:  # a photograph loses too much where it is made smaller
                    given = Image.open(root / wanted).convert("RGB")
                where = LAST if query.eval_image_url == "last" else query.eval_image_url
                shown[where] = given if how == "right" else picture(wanted + " not")
            pages = Pages(shown)
            monkeypatch.setattr(theirs, "requests", SimpleNamespace(get=pages.get))
            ours = evaluate(task, None, pages, reference=reference_in(root)).score
            try:
                official_score = theirs.PageImageEvaluator(None)([], path, theirs.PseudoPage(pages, LAST))
            except FileNotFoundError:  # the listed difference "missing-reference"
                counts["crash"] += 1
                official_score = float(how == "right")
            assert ours == official_score == float(how == "right"), (task.task_id, how)
            counts[how] += 1
    assert counts == {"right": 20, "wrong": 20, "crash": 2} and len(tasks) == 20
