"""page_image_query: what the pictures of a page show, or which picture they look like."""

from __future__ import annotations

from collections.abc import Callable

from PIL import UnidentifiedImageError

from envs.errors import ProbeError
from envs.records import Probe
from tasks.vwa.evaluators.program_html import page_at
from tasks.vwa.evaluators.ssim import similarity
from tasks.vwa.evaluators.verdict import CannotScore, Helpers, Verdict
from tasks.vwa.schema import OR, PageImageQuery, VwaTaskConfig

#: Addresses of the pictures within what a selector finds ("": within the page).
IMAGES = """selector => [...(selector ? document.querySelectorAll(selector) : [document])]
  .flatMap(root => root.tagName === 'IMG' ? [root] : [...root.querySelectorAll('img')])
  .map(image => image.getAttribute('src')).filter(source => source)
  .map(source => new URL(source, document.baseURI).href)"""

Reference = Callable[[str], bytes]  # the picture at a path of the task file that is no address


def page_image_query(
    config: VwaTaskConfig, probe: Probe, helpers: Helpers, shop_url: str | None, reference: Reference
) -> Verdict:
    """Every query has to be met.

    Raises:
        CannotScore: a query needs a model that is not configured, or none of its reference pictures is there.
        envs.errors.ProbeError: a page cannot be opened.
    """
    for query in config.eval.page_image_query or []:
        page = page_at(query.eval_image_url, probe, shop_url)
        addresses = page.evaluate(IMAGES, query.eval_image_class.strip()) or []
        images = [image for address in dict.fromkeys(addresses) if (image := _picture(probe, address)) is not None]
        if not images:
            return Verdict(0.0, f"{page.address} has no picture in {query.eval_image_class or 'it'}")
        verdict = _check(query, images, probe, helpers, reference)
        if not verdict.score:
            return verdict
    return Verdict(1.0)


def _picture(probe: Probe, address: str) -> bytes | None:
    """A picture of a page; None for one that cannot be fetched, as a broken one on a page shows nothing."""
    try:
        return probe.fetch(address)
    except ProbeError:
        return None


def _check(query: PageImageQuery, images: list[bytes], probe: Probe, helpers: Helpers, reference: Reference) -> Verdict:
    for qa in query.eval_vqa:
        answers = helpers.need_vqa("page_image_query").ask(images, qa.question)
        if not any(qa.answer.lower() in answer.lower() for answer in answers):
            return Verdict(0.0, f"no picture answers {qa.question!r} with {qa.answer!r}")
    if query.eval_fuzzy_image_match:
        wanted = _references(query.eval_fuzzy_image_match, probe, reference)
        best = max((_similarity(image, each) for image in images for each in wanted), default=-1.0)
        if best <= query.ssim_threshold:
            return Verdict(0.0, f"no picture looks like the one wanted (best {best:.2f} of {query.ssim_threshold:g})")
    return Verdict(1.0)


def _similarity(image: bytes, wanted: bytes) -> float:
    try:
        return similarity(image, wanted)
    except (UnidentifiedImageError, OSError):
        return -1.0  # not a picture that can be read


def _references(names: str, probe: Probe, reference: Reference) -> list[bytes]:
    """The reference pictures that can be had; one of several may be missing (an official task names such a one)."""
    found, problems = [], []
    for name in names.split(OR):
        try:
            found.append(probe.fetch(name) if name.startswith("http") else reference(name))
        except (ProbeError, OSError) as error:
            problems.append(str(error))
    if not found:
        raise CannotScore(f"no reference picture can be had ({problems[0]})")
    return found
