"""Pages made up so that an official task's looks find what they require, or just not."""

from __future__ import annotations

import json
import re
from typing import Any

from tasks.vwa.schema import OR, ProgramHtml, RequiredContents

_COMPOUND = re.compile(r"([a-zA-Z][\w-]*)?((?:[#.][\w-]+)*)(?::nth-child\((\d+)\))?$")
_Q = r"\(\s*(?P<{0}q>['\"])(?P<{0}>.*?)(?P={0}q)\s*\)"
QUERY = re.compile(r"func:get_query_text" + r"\(__page__, (?P<aq>['\"])(?P<a>.*)(?P=aq)\)$")
ONE = re.compile(r".*?document\.querySelector" + _Q.format("a") + r"\.(?:outerText|textContent)", re.S)
NTH = re.compile(
    r"document\.querySelector(?:All)?" + _Q.format("a") + r"(?:\[(?P<n>\d+)\])?\.querySelector" + _Q.format("b")
    + r"\.getAttribute" + _Q.format("c")
)  # fmt: skip
FOUND = re.compile(
    r"lambda:.*Array\.from\(document\.querySelectorAll" + _Q.format("a") + r"\)\.find\(el => el\.textContent\.includes"
    r"\((?P<tq>['\"])(?P<t>.*)(?P=tq)\)\)\.querySelector" + _Q.format("b")
    + r"(?:\.getAttribute" + _Q.format("c") + r"|\.textContent)", re.S,
)  # fmt: skip

BUILD = """const add = (parent, tag, cls = '', text = '') => {
  const e = document.createElement(tag); if (cls) e.className = cls; if (text) e.textContent = text;
  return parent.appendChild(e);
};
const grow = (parent, chain) => chain.reduce((node, [tag, id, classes, nth]) => {
  while (node.children.length < nth - 1) add(node, 'i');
  const e = add(node, tag, classes); if (id) e.id = id; return e;
}, parent);
for (const part of PARTS) {
  if (part.kind === 'text') {
    const there = part.selector && document.querySelector(part.selector);
    (there || grow(document.body, part.chain)).append(part.text);
  }
  if (part.kind === 'attribute') {
    for (let i = 0; i < part.nth; i++) grow(grow(document.body, part.chain), part.inner).setAttribute(part.name, '');
    const outer = grow(document.body, part.chain); outer.append(part.beside || '');
    const inner = grow(outer, part.inner);
    if (part.name) inner.setAttribute(part.name, part.text); else inner.append(part.text);
  }
  if (part.kind === 'details') {
    const table = add(document.body, 'table'), body = add(table, 'tbody');
    table.id = 'productDetails_detailBullets_sections1';
    for (const [key, value] of [['Weight', '1 kg'], [part.name, part.text]]) {
      const row = add(body, 'tr'); add(row, 'th', '', key); add(row, 'td', '', value);
    }
  }
  if (part.kind === 'order') {
    const table = document.querySelector('#my-orders-table') || add(document.body, 'table');
    table.id = 'my-orders-table';
    const there = [...table.children].find(body => body.dataset.sku === part.sku);
    const body = there || add(table, 'tbody'), row = there ? there.children[0] : add(body, 'tr');
    if (!there) {
      body.dataset.sku = part.sku; add(add(row, 'td', 'col name'), 'strong', '', part.name);
      add(row, 'td', 'col sku', part.sku); add(row, 'td', 'col qty', 'Ordered1');
    }
    if (part.quantity) row.querySelector('.qty').textContent = 'Ordered' + part.quantity;
    for (const [key, value] of part.options) {
      const list = row.querySelector('dl') || add(row.children[0], 'dl');
      add(list, 'dt', '', key); add(list, 'dd', '', value);
    }
  }
  if (part.kind === 'comment') {
    const main = document.querySelector('#main') || add(document.body, 'main'); main.id = 'main';
    if (!main.children.length) { add(main, 'a', 'fg-inherit', 'someone'); add(main, 'b', 'vote__net-score', '3'); }
    const comment = (parent, user, text, level, time) => {
      const e = add(parent, 'article', 'comment'); e.dataset.level = level;
      const heading = add(add(add(e, 'div', 'comment__main'), 'header'), 'h1');
      add(heading, 'a', 'fg-inherit', user); add(add(heading, 'span'), 'time').dateTime = time;
      add(e, 'b', 'vote__net-score', '1'); add(e, 'div', 'comment__content', text);
      return add(e, 'div', 'comment__replies');
    };
    const above = comment(main, part.parent, 'the first', 1, '2023-01-01T00:00:00+00:00');
    comment(above, part.user, 'an earlier one', 2, '2023-02-01T00:00:00+00:00');
    comment(above, part.user, part.text, 2, '2023-03-01T00:00:00+00:00');
    comment(above, 'another', 'later', 2, '2023-04-01T00:00:00+00:00');
  }
}"""
PRICE = (
    "#maincontent > div.columns > div > div.product-info-main > div.product-info-price > "
    "div.price-box.price-final_price > span > span"
)


def chain(selector: str) -> list[list[Any]]:
    """tag, id, classes and place among its siblings of each step of a selector."""
    steps = []
    for word in selector.replace(">", " ").split():
        match = _COMPOUND.match(word)
        assert match, selector
        marks = re.findall(r"([#.])([\w-]+)", match[2])
        name = next((value for kind, value in marks if kind == "#"), "")
        classes = " ".join(value for kind, value in marks if kind == ".")
        tag = match[1] or ("tbody" if word == "tbody" else "div")
        steps.append([tag, name, classes, int(match[3] or 0)])
    return steps


def meeting(required: RequiredContents) -> str | None:
    """A text that meets what is required; None where that needs a judge."""
    if required.fuzzy_match is not None:
        return None
    if required.exact_match is not None:
        return required.exact_match
    if required.required_values is not None:
        sign, number = required.required_values[0].split()
        return str(int(number) - (sign == "<") + (sign == ">"))
    return "; ".join(each.split(OR)[-1] for each in required.must_include or [])


def missing(required: RequiredContents, text: str, how: str) -> str:
    """A text like ``text`` that is wrong, or nearly right."""
    if how == "near":
        return f"x{text}x" if required.required_values is None else text + "7"
    if required.must_exclude and not required.must_include:
        return f"still {required.must_exclude[0]} here"
    return "0" if required.required_values is not None else "something else"


def parts(target: ProgramHtml, text: str) -> list[dict[str, Any]] | None:
    """What a page has to hold so that the target's locator gives ``text``; None where it is asked elsewhere."""
    locator = target.locator.strip()
    if not locator:
        return [{"kind": "text", "chain": [["p", "", "", 0]], "text": text}]
    if match := QUERY.match(locator):
        return [{"kind": "text", "selector": match["a"], "chain": chain(match["a"]), "text": text}]
    if match := FOUND.match(locator):
        more = {"beside": match["t"], "inner": chain(match["b"]), "name": match["c"] or ""}
        return [{"kind": "attribute", "nth": 0, "chain": chain(match["a"]), "text": text, **more}]
    if match := NTH.match(locator):
        more = {"nth": int(match["n"] or 0), "inner": chain(match["b"]), "name": match["c"]}
        return [{"kind": "attribute", "chain": chain(match["a"]), "text": text, **more}]
    if "parseFloat" in locator or "get_product_price" in locator:
        return [{"kind": "text", "chain": chain(PRICE), "text": "$" + text}]
    if match := ONE.match(locator):
        return [{"kind": "text", "chain": chain(match["a"]), "text": text}]
    return _by_function(locator, text)


def _by_function(locator: str, text: str) -> list[dict[str, Any]] | None:
    arguments = [value for _, value in re.findall(r"(['\"])(.*?)\1", locator)]
    if "comment_content" in locator:
        return [{"kind": "comment", "user": arguments[0], "text": text, "parent": "above"}]
    if "parent_comment" in locator:
        return [{"kind": "comment", "user": arguments[0], "text": "mine", "parent": text}]
    if "num_reviews" in locator:
        return [{"kind": "text", "chain": chain("#tab-label-reviews-title"), "text": f"Reviews {text}"}]
    if "product_attributes" in locator:
        name = arguments[0].split(OR)[0].title()
        return [{"kind": "details", "name": name, "text": text}]
    if "order_product" in locator:
        sku = arguments[0].split(OR)[0] if arguments else "B0"
        line: dict[str, Any] = {"kind": "order", "name": "A thing", "sku": sku, "quantity": "", "options": []}
        if "quantity" in locator:
            return [line | {"quantity": text}]
        if "option" in locator:
            return [line | {"options": [["Other", "none"], [arguments[1], text]]}]
        return [line | {"name": text}]
    return None


def reviewed(locator: str, text: str) -> dict[str, Any]:
    """What the newest review of a product has to be for a locator that asks the shop for it."""
    if "rating" in locator:
        return {"ratings": [{"rating_name": "Rating", "percent": text}]}
    return {"nickname" if "author" in locator else "detail": text}


def page(found: list[dict[str, Any]]) -> str:
    """The page that holds all of these parts; scripts build it, as markup would be mended by the parser."""
    script = BUILD.replace("PARTS", json.dumps(found, ensure_ascii=False).replace("</", "<\\/"))
    return f'<!doctype html><meta charset="utf-8"><title>made up</title><body><script>{script}</script></body>'
