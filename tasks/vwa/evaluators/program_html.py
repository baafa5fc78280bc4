"""program_html: what pages say when the agent is done."""

from __future__ import annotations

from typing import Any

from envs.records import Probe
from tasks.vwa.evaluators import words
from tasks.vwa.evaluators.functions import call
from tasks.vwa.evaluators.page import Page
from tasks.vwa.evaluators.verdict import CannotScore, Helpers, Verdict
from tasks.vwa.schema import OR, ProgramHtml, RequiredContents, VwaTaskConfig

LAST = "last"


def page_at(url: str, probe: Probe, shop_url: str | None) -> Page:
    """The page that an ``url`` of a task file names: ``last``, an address, or a function that gives one."""
    last = Page(probe)
    if url.startswith("func:"):
        return Page(probe, str(call(url, last, shop_url)))
    return last if url == LAST else Page(probe, url)


def program_html(config: VwaTaskConfig, probe: Probe, helpers: Helpers, shop_url: str | None) -> Verdict:
    """Every look has to find what it requires.

    Raises:
        CannotScore: a page cannot be asked, or a text has to be judged and no judge is configured.
        envs.errors.ProbeError: a page cannot be opened.
    """
    for target in config.eval.program_html or []:
        page = page_at(target.url, probe, shop_url)
        found = select(target, page, shop_url)
        if found is None:
            return Verdict(0.0, f"{page.address} does not have {target.locator}")
        verdict = _check(target.required_contents, found, page.address, helpers)
        if not verdict.score:
            return verdict
    return Verdict(1.0)


def select(target: ProgramHtml, page: Page, shop_url: str | None) -> Any:
    """The part of the page a locator names, as text or number; None where a ``lambda:`` finds nothing.

    Raises:
        CannotScore: the locator is of no known kind.
    """
    locator = target.locator.strip()
    if not locator:
        return page.content()
    if locator.startswith(("document.", "[...document.")):
        value = page.evaluate(f"() => {locator}")
        return "" if value is None else str(value)
    if locator.startswith("lambda:"):
        return page.evaluate(locator.removeprefix("lambda:")) or None
    if locator.startswith("func:"):
        return call(locator, page, shop_url)
    raise CannotScore(f"{locator[:60]!r} is no locator that a task may use")


def _check(required: RequiredContents, found: Any, where: str, helpers: Helpers) -> Verdict:
    text = str(found)
    if required.exact_match is not None and not words.exact_match(required.exact_match, text):
        return Verdict(0.0, f"{where} has {text[:80]!r}, not {required.exact_match!r}")
    if lacking := words.missing(required.must_include or [], text):
        return Verdict(0.0, f"{where} lacks {lacking[0]!r}")
    if unwanted := words.present(required.must_exclude or [], text):
        return Verdict(0.0, f"{where} has {unwanted[0]!r}")
    if required.required_values is not None:
        value = float(found) if isinstance(found, int | float) else words.number(text)
        if value is None:
            return Verdict(0.0, f"{where} has no number where one is required")
        for condition in required.required_values:
            if not words.satisfies(value, condition):
                return Verdict(0.0, f"{where} has {value:g}, which is not {condition}")
    if required.fuzzy_match is not None:
        judge = helpers.need_judge("fuzzy_match")
        if not any(judge.same_answer("", each, text) for each in required.fuzzy_match.split(OR)):
            return Verdict(0.0, f"the judge does not find {required.fuzzy_match!r} on {where}")
    return Verdict(1.0)
