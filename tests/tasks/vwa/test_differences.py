"""Each listed difference to the official evaluators: what they do, and what ours does."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from envs.errors import ProbeError
from tasks.vwa.evaluators import DIFFERENCES, Helpers, evaluate
from tasks.vwa.evaluators.postmill import LATEST
from tasks.vwa.schema import VwaTaskConfig
from tasks.vwa.sites import SiteMap
from tasks.vwa.task import VwaTask

sys.path.insert(0, str(Path(__file__).parent))
import official
from test_load import task

LAST = "http://last.test/"


def png(colour: str, stripes: bool = False) -> bytes:
    image = Image.new("L", (40, 40), colour)
    for x in range(0, 40, 4) if stripes else ():
        image.paste(255, (x, 0, x + 2, 40))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


IMAGES = {"http://last.test/black.png": png("black"), "http://last.test/striped.png": png("black", stripes=True)}


class FakePage:
    """A page by what scripts give on it; serves as ours (a probe) and as theirs."""

    url = LAST

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self.values, self.context, self.tabs = values or {}, self, 0
        self.closed = False

    # ours
    def content(self, url: str | None = None) -> str:
        return str(self.values["content"])

    def evaluate(self, *args: Any) -> Any:
        script = args[1] if len(args) == 3 else args[0]
        if "flatMap" in script:
            return ["http://last.test/black.png"]
        return next((value for key, value in self.values.items() if key in script), None)

    def fetch(self, url: str) -> bytes:
        if url not in IMAGES:
            raise ProbeError(f"{url} serves nothing")
        return IMAGES[url]

    # theirs
    def new_page(self) -> FakePage:
        self.tabs += 1
        return self

    def goto(self, url: str) -> None:
        if self.closed:
            raise OSError("net::ERR_CONNECTION_REFUSED")

    def close(self) -> None:
        self.tabs -= 1

    def query_selector_all(self, selector: str) -> list[Any]:
        return [SimpleNamespace(evaluate=lambda script: True, get_attribute=lambda name: "/black.png")]


@pytest.fixture(scope="module")
def theirs() -> Any:
    module = official.load()
    module.requests = SimpleNamespace(get=lambda url, stream: SimpleNamespace(raw=io.BytesIO(IMAGES[url])))
    return module


class Both:
    """Scores a task by both."""

    def __init__(self, theirs: Any, folder: Path) -> None:
        self.theirs, self.folder = theirs, folder

    def __call__(
        self,
        evaluation: dict[str, Any],
        answer: str | None = None,
        page: FakePage | None = None,
        said: str | None = None,
        helpers: Helpers | None = None,
    ) -> tuple[float, float]:
        """Ours and theirs; ``said`` is what theirs takes for the answer where that differs."""
        page = page or FakePage()
        config = VwaTaskConfig.model_validate(task(eval=evaluation))
        ours = evaluate(config, answer, page, helpers=helpers).score
        path = official.write(json.loads(config.model_dump_json(exclude_none=True)), self.folder / "task.json")
        module = self.theirs
        made = {
            "string_match": module.StringEvaluator,
            "program_html": module.HTMLContentExactEvaluator,
            "page_image_query": lambda: module.PageImageEvaluator(None),
        }[evaluation["eval_types"][0]]()
        end = official.trajectory(said if said is not None else answer or "")
        return ours, float(made(end, path, module.PseudoPage(page, page.url)))


def text(**references: Any) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": references}


def look(*targets: dict[str, Any]) -> dict[str, Any]:
    return {"eval_types": ["program_html"], "program_html": [{"locator": "", "url": "last"} | each for each in targets]}


def pictures(*wanted: str) -> dict[str, Any]:
    base = {"eval_image_url": "last", "eval_image_class": ".photo"}
    queries = [base | {"eval_fuzzy_image_match": each} for each in wanted]
    return {"eval_types": ["page_image_query"], "page_image_query": queries}


BLACK, STRIPED = IMAGES
TESTS: dict[str, Callable[[Both], None]] = {}


def difference(name: str) -> Callable[[Callable[[Both], None]], Callable[[Both], None]]:
    def keep(check: Callable[[Both], None]) -> Callable[[Both], None]:
        TESTS[name] = check
        return check

    return keep


@difference("harness-text")
def harness_text(both: Both) -> None:
    harness = "Failed to parse actions for 3 times"
    assert both(text(must_include=["3 |OR| three"]), None, said=harness) == (0.0, 1.0)


@difference("every-image-query")
def every_image_query(both: Both) -> None:
    assert both(pictures(STRIPED, BLACK)) == (0.0, 1.0)
    assert both(pictures(BLACK, STRIPED)) == (0.0, 0.0)
    assert both(pictures(BLACK, BLACK)) == (1.0, 1.0)


@difference("scoring-tab")
def scoring_tab(both: Both) -> None:
    page = FakePage()
    target = {
        "url": "http://shop.test/",
        "locator": "lambda:() => absent",
        "required_contents": {"must_include": ["x"]},
    }
    assert both(look(target), page=page) == (0.0, 0.0)
    assert page.tabs == 1  # theirs; ours is tested in a browser (test_task)


@difference("one-of-words")
def one_of_words(both: Both) -> None:
    assert both(text(one_of=["red", "ruby"]), "I am bored") == (0.0, 1.0)
    assert both(text(one_of=["red", "ruby"]), "It is red.") == (1.0, 1.0)


@difference("full-stop")
def full_stop(both: Both) -> None:
    assert both(text(must_include=["5"]), "There are 5. Ok") == (1.0, 0.0)
    assert both(text(must_include=["5"]), "There are 5.5 Ok") == (0.0, 0.0)


@difference("outer-space")
def outer_space(both: Both) -> None:
    assert both(text(exact_match="Hausa"), " Hausa\n") == (1.0, 0.0)
    assert both(text(exact_match="Hausa"), "Hau sa") == (0.0, 0.0)


@difference("numbers-with-units")
def numbers_with_units(both: Both) -> None:
    assert both(text(required_values=["== 21"]), "21 inches") == (1.0, 0.0)
    assert both(text(required_values=["== 21"]), "21 or 22 inches") == (0.0, 0.0)
    assert both(text(required_values=["== 1200"]), "1,200") == (1.0, 1.0)


@difference("strict-inequality")
def strict_inequality(both: Both) -> None:
    assert both(text(required_values=["< 21"]), "21") == (0.0, 1.0)
    assert both(text(required_values=["<= 21"]), "21") == (1.0, 1.0)
    assert both(text(required_values=["> 20 |OR| == 3"]), "21") == (1.0, 1.0)


@difference("all-requirements")
def all_requirements(both: Both) -> None:
    required = {"must_include": ["aww"], "must_exclude": ["Art"]}
    assert both(look({"required_contents": required}), page=FakePage({"content": "aww Art"})) == (0.0, 1.0)
    assert both(look({"required_contents": required}), page=FakePage({"content": "aww"})) == (1.0, 1.0)


@difference("fuzzy-alternatives")
def fuzzy_alternatives(both: Both) -> None:
    judge = SimpleNamespace(same_answer=lambda question, reference, answer: reference == answer)
    both.theirs.llm_fuzzy_match = lambda answer, reference, question: float(reference == answer)
    required = {"fuzzy_match": "a cat |OR| a kitten"}
    page = FakePage({"content": "a kitten"})
    assert both(look({"required_contents": required}), page=page, helpers=Helpers(judge=judge)) == (1.0, 0.0)


@difference("own-comments")
def own_comments(both: Both) -> None:
    """A post by mira, a comment by someone else, none by mira: ours looks at comments only (tested in a browser)."""
    post = {"username": "mira", "net_score": 1, "content": "by someone else", "time": "2023", "children": []}
    both.theirs.helpers.datetime = SimpleNamespace(min=SimpleNamespace(replace=lambda tzinfo: ""))
    locator = "func:reddit_get_latest_comment_content_by_username(__page__, 'mira')"
    target = {"locator": locator, "required_contents": {"exact_match": "by someone else"}}
    page = FakePage({"buildCommentTree": post})
    assert "querySelectorAll('.comment')" in LATEST
    assert both(look(target), page=page) == (0.0, 1.0)


@difference("missing-reference")
def missing_reference(both: Both) -> None:
    with pytest.raises(FileNotFoundError):
        both(pictures(f"{BLACK} |OR| absent.jpg"))
    config = VwaTaskConfig.model_validate(task(eval=pictures(f"{BLACK} |OR| absent.jpg")))
    assert evaluate(config, None, FakePage()).score == 1.0


@difference("crash")
def crash(both: Both) -> None:
    page = FakePage()
    page.closed = True
    target = {"url": "http://shop.test/", "required_contents": {"must_include": ["x"]}}
    with pytest.raises(KeyError, match="content"):
        both(look(target), page=page)
    made = VwaTask(VwaTaskConfig.model_validate(task(eval=look(target))), SiteMap({"shopping": "", "homepage": ""}))
    assert made.finish(None, page) == (0.0, "cannot be scored: KeyError: 'content'")
    page.values["content"] = "x"
    with pytest.raises(OSError, match="ERR_CONNECTION_REFUSED"):  # theirs
        both(look(target), page=page)


@pytest.mark.parametrize("name", [name for name, _, _ in DIFFERENCES])
def test_each_listed_difference(name: str, theirs: Any, tmp_path: Path) -> None:
    TESTS[name](Both(theirs, tmp_path))


def test_nothing_is_tested_that_is_not_listed() -> None:
    assert set(TESTS) == {name for name, _, _ in DIFFERENCES}
