"""What the pages of a Magento shop say: products, and the lines of an order."""

from __future__ import annotations

from typing import Any

from tasks.vwa.evaluators.page import Page
from tasks.vwa.schema import OR

#: Lines of an order: the cells by the second word of their class, and the chosen options by name.
ORDER = """() => [...document.querySelector('#my-orders-table').getElementsByTagName('tbody')].map(body => {
  const line = {options: {}};
  for (const cell of body.getElementsByTagName('td')) {
    const kind = cell.className.split(' ')[1];
    line[kind] = cell.innerText;
    const list = kind === 'name' ? [...(cell.querySelector('dl')?.children ?? [])] : [];
    for (let i = 0; i + 1 < list.length; i += 2) line.options[list[i].innerText] = list[i + 1].innerText;
  }
  return line;
})"""
ATTRIBUTES = """terms => [...document.querySelector('#productDetails_detailBullets_sections1 > tbody').children]
  .filter(row => terms.some(term => row.children[0].innerText.toLowerCase().includes(term)))
  .map(row => row.children[1].innerText).join(', ')"""
PRICE = """() => parseFloat(document.querySelector('#maincontent > div.columns > div > div.product-info-main > ' +
  'div.product-info-price > div.price-box.price-final_price > span > span').innerText.substr(1)) || 0"""
REVIEWS = "() => parseInt(document.querySelector('#tab-label-reviews-title').innerText.split(' ')[1]) || 0"
RATING = "() => parseFloat(document.querySelector('.rating-result').title.replace('%', '')) || 0"
ORDERED = "Ordered"  # stands before the quantity


def _lines(page: Page) -> list[dict[str, Any]]:
    return list(page.evaluate(ORDER) or [])


def ordered_names(page: Page) -> str:
    """Names of what was ordered, as alternatives."""
    return OR.join(str(line.get("name", "")) for line in _lines(page))


def ordered_quantity(page: Page, sku: str) -> int:
    """How many of the first line with this SKU (or one of them) were ordered, 0 if none."""
    for line in _lines(page):
        if str(line.get("sku", "")).strip() in sku.split(OR):
            digits = str(line.get("qty", "")).strip().removeprefix(ORDERED).strip()
            return int(digits) if digits.isdigit() else 0
    return 0


def ordered_option(page: Page, sku: str, option: str) -> str:
    """The value chosen for an option of the first line with this SKU, "" if there is none."""
    for line in _lines(page):
        if str(line.get("sku", "")).strip() == sku:
            return str(line["options"].get(option, ""))
    return ""


def attributes(page: Page, names: str) -> str:
    """Values of the product's details whose name holds one of ``names``, with commas between."""
    return str(page.evaluate(ATTRIBUTES, names.lower().split(OR.lower())) or "")


def price(page: Page) -> float:
    """The product's price, 0 where the page shows none."""
    return float(page.evaluate(PRICE) or 0)


def review_count(page: Page) -> int:
    """How many reviews the product has."""
    return int(page.evaluate(REVIEWS) or 0)


def rating(page: Page) -> float:
    """The product's stars in percent."""
    return float(page.evaluate(RATING) or 0)
