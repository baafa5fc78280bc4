"""What a page shows that is no text: its pictures, and where its elements lie."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Error, Page

from envs.browser.snapshot import Element

MAX_PICTURES = 60
MAX_BOXES = 300

PICTURES = """limit => [...document.images].filter(image => {
    const box = image.getBoundingClientRect();
    const broken = image.complete && image.naturalWidth === 0;
    return !broken && box.width >= 16 && box.height >= 16 && getComputedStyle(image).visibility === 'visible';
  }).slice(0, limit).map(image => ({
    src: image.currentSrc || image.src,
    alt: image.alt.trim(),
    hint: (image.title || image.closest('figure')?.querySelector('figcaption')?.innerText || '').trim(),
  }))"""


def pictures(page: Page) -> list[dict[str, str]]:
    """The visible pictures in the page's order: ``src``, ``alt`` and ``hint`` (title or figure caption)."""
    try:
        return list(page.evaluate(PICTURES, MAX_PICTURES))
    except Error:
        return []  # navigating away right now


def boxes(page: Page, elements: dict[str, Element]) -> dict[str, list[float]]:
    """x, y, width and height in CSS pixels, by id, of the elements that lie within the viewport."""
    size = page.viewport_size or {"width": 0, "height": 0}
    found: dict[str, Any] = {}
    for element in list(elements.values())[:MAX_BOXES]:
        try:
            box = page.locator(element.selector).bounding_box(timeout=300)
        except Error:
            continue  # replaced meanwhile
        if box is None or box["width"] < 2 or box["height"] < 2:
            continue
        x, y = box["x"], box["y"]
        if x + box["width"] > 0 and y + box["height"] > 0 and x < size["width"] and y < size["height"]:
            found[element.id] = [x, y, box["width"], box["height"]]
    return found
