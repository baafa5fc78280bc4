"""The functions that task files may call (``func:get_query_text(__page__, '.price')``), a closed set: no ``eval``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tasks.vwa.evaluators import postmill, shop
from tasks.vwa.evaluators.magento import Magento
from tasks.vwa.evaluators.page import Page
from tasks.vwa.evaluators.verdict import CannotScore

PAGE, LAST_URL = "__page__", "__last_url__"


def query_text(page: Page, selector: str) -> str:
    """Text of the first element that a CSS selector finds, "" if there is none."""
    return str(page.evaluate("selector => document.querySelector(selector).textContent", selector) or "")


def _query_text_lowercase(page: Page, selector: str) -> str:
    return query_text(page, selector).lower()


#: Functions of a page; the names are the task files'.
ON_PAGE: dict[str, Callable[..., Any]] = {
    "get_query_text": query_text,
    "get_query_text_lowercase": _query_text_lowercase,
    "reddit_get_latest_comment_content_by_username": postmill.latest_comment,
    "reddit_get_parent_comment_username_of_latest_comment_by_username": postmill.parent_of_latest_comment,
    "shopping_get_num_reviews": shop.review_count,
    "shopping_get_order_product_name_list": shop.ordered_names,
    "shopping_get_order_product_option": shop.ordered_option,
    "shopping_get_order_product_quantity": shop.ordered_quantity,
    "shopping_get_product_attributes": shop.attributes,
    "shopping_get_product_price": shop.price,
    "shopping_get_rating_as_percentage": shop.rating,
}
#: Functions of the shop as a whole.
ON_SHOP: dict[str, Callable[..., Any]] = {
    "shopping_get_latest_order_url": Magento.latest_order_url,
    "shopping_get_sku_latest_review_author": Magento.latest_review_author,
    "shopping_get_sku_latest_review_rating": Magento.latest_review_rating,
    "shopping_get_sku_latest_review_text": Magento.latest_review_text,
}
#: Functions of an address.
ON_URL: dict[str, Callable[..., Any]] = {"reddit_get_post_url": postmill.post_url}


def call(expression: str, page: Page, shop_url: str | None) -> Any:
    """What a ``func:`` expression of a task file gives.

    Args:
        page: what ``__page__`` stands for; ``'__last_url__'`` in an argument is the address the agent ended on.
        shop_url: where the shop is, None if no shop is known.

    Raises:
        CannotScore: it is no call of a known function with literal arguments, or the shop cannot be asked.
    """
    name, given = parse(expression)
    args = [each.replace(LAST_URL, page.probe.url) if isinstance(each, str) else each for each in given if each != PAGE]
    if name in ON_PAGE:
        return ON_PAGE[name](page, *args)
    if name in ON_URL:
        return ON_URL[name](*args)
    if shop_url is None:
        raise CannotScore(f"{name} asks the shop, whose address is not known; set VWA_SHOPPING")
    return ON_SHOP[name](Magento(shop_url), *args)


def parse(expression: str) -> tuple[str, list[Any]]:
    """Name and arguments of a ``func:`` expression; ``__page__`` comes as itself.

    Raises:
        CannotScore: it is no call of a known function with literal arguments.
    """
    text = expression.removeprefix("func:").strip()
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
            raise ValueError("not a call")
        args = [PAGE if isinstance(a, ast.Name) and a.id == PAGE else ast.literal_eval(a) for a in node.args]
    except (SyntaxError, ValueError) as error:
        raise CannotScore(f"{text!r} is not a call that a task may make") from error
    if node.func.id not in ON_PAGE | ON_SHOP | ON_URL:
        raise CannotScore(f"there is no function {node.func.id} for tasks")
    return node.func.id, args
