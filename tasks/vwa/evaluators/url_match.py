"""url_match: the address of the page the agent ended on."""

from __future__ import annotations

from tasks.vwa.evaluators.verdict import Verdict
from tasks.vwa.schema import OR, VwaTaskConfig


def same_form(url: str) -> str:
    """An address as it is compared: one name for this machine, no slash at the end."""
    return url.replace("localhost", "127.0.0.1").removesuffix("/")


def url_match(config: VwaTaskConfig, url: str) -> Verdict:
    """Equal to one of the reference addresses, or (``GOLD in PRED``) one of them is part of it."""
    assert config.eval.reference_url is not None  # the schema sees to it
    wanted = [same_form(reference) for reference in config.eval.reference_url.split(OR)]
    reached = same_form(url)
    if config.eval.url_note == "EXACT":
        return Verdict.of(reached in wanted, f"the last page is {url}")
    return Verdict.of(any(reference in reached for reference in wanted), f"the last page is {url}")
