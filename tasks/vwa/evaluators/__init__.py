"""Score one episode, once, when it is over: the product of what the task's ``eval_types`` find.

The verdicts are those of the official evaluators but for the differences in ``DIFFERENCES``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envs.records import Probe
from tasks.vwa.evaluators.page_image import Reference, page_image_query
from tasks.vwa.evaluators.program_html import program_html
from tasks.vwa.evaluators.string_match import string_match
from tasks.vwa.evaluators.url_match import url_match
from tasks.vwa.evaluators.verdict import CannotScore, Helpers, Judge, Verdict, Vqa
from tasks.vwa.schema import VwaTaskConfig

__all__ = ["DIFFERENCES", "CannotScore", "Helpers", "Judge", "Verdict", "Vqa", "evaluate"]

#: Where our verdicts differ from the official ones, and why: (name, official behaviour, ours).
DIFFERENCES: tuple[tuple[str, str, str], ...] = (
    ("harness-text", "what the harness says when it stops an episode is scored as the answer",
     "no answer was given: 0"),
    ("every-image-query", "only the last page_image_query counts", "every one counts"),
    ("scoring-tab", "a missing part leaves the scoring tab open in the agent's browser",
     "the scoring tab is closed whatever is found"),
    ("one-of-words", "one_of is a substring test", "one_of tests words, as must_include does"),
    ("full-stop", "a full stop within the text belongs to the word before it", "a full stop is no part of a word"),
    ("outer-space", "white space around a text counts in exact_match", "it does not"),
    ("numbers-with-units", "required_values of a text that is more than an integer is a 0",
     "the one number in the text counts"),
    ("strict-inequality", "< and > hold for equal numbers", "they do not"),
    ("all-requirements", "of several required_contents only the first kind is checked", "all are"),
    ("fuzzy-alternatives", "every alternative of a fuzzy_match on a page has to match", "one has to"),
    ("own-comments", "a post by the user counts as a comment of theirs", "only comments are comments"),
    ("missing-reference", "a reference picture that cannot be had is a crash", "the other alternatives count"),
    ("crash", "a crash of an evaluator leaves the task out of the average", "it is a 0 with its reason"),
)  # fmt: skip


def no_reference(path: str) -> bytes:
    """The reference picture at a path, where no folder of pictures is known.

    Raises:
        FileNotFoundError: always.
    """
    raise FileNotFoundError(f"{path} is not an address")


def reference_in(folder: Path) -> Reference:
    """Reads reference pictures out of a folder, and nothing outside of it."""

    def read(path: str) -> bytes:
        file = (folder / path).resolve()
        if not file.is_relative_to(folder.resolve()):
            raise FileNotFoundError(f"{path} is outside of {folder}")
        return file.read_bytes()

    return read


def evaluate(
    config: VwaTaskConfig,
    answer: str | None,
    probe: Probe,
    *,
    helpers: Helpers | None = None,
    shop_url: str | None = None,
    reference: Reference = no_reference,
) -> Verdict:
    """Score an episode.

    Args:
        config: the task, its placeholders replaced.
        answer: what the agent answered, None if it did not.
        probe: looks at the agent's last page and at others.
        shop_url: where the Magento shop is, for tasks that ask it.
        reference: reads reference pictures that are no addresses.

    Raises:
        CannotScore: what scoring needs is not there.
        envs.errors.ProbeError: a page cannot be looked at.
    """
    helpers = helpers or Helpers()
    score: dict[str, Callable[[], Verdict]] = {
        "string_match": lambda: string_match(config, answer, helpers),
        "url_match": lambda: url_match(config, probe.url),
        "program_html": lambda: program_html(config, probe, helpers, shop_url),
        "page_image_query": lambda: page_image_query(config, probe, helpers, shop_url, reference),
    }
    for kind in config.eval.eval_types:
        verdict = score[kind]()
        if not verdict.score:
            return Verdict(0.0, f"{kind}: {verdict.reason}")
    return Verdict(1.0)
