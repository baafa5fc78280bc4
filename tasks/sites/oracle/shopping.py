"""How the shop's tasks are solved; by the number of the template."""

from __future__ import annotations

import re
from collections.abc import Callable

from tasks.sites.oracle.hand import Hand, Lines, Read, Script, Step, Stuck, link

Values = dict[str, str]
BOX = "Search products"
FACTS = {"article number": "Article number", "country of manufacture": "Made in"}


def _open(hand: Hand, product: str) -> Step:
    yield from hand.search(BOX, product)
    yield from hand.click("link", product)


def _fact(hand: Hand, product: str, name: str) -> Read:
    yield from _open(hand, product)
    return (yield from hand.match(rf"^{name} \| (.*)$"))


def _filter(hand: Hand, kind: str, stock: bool = False, low: str = "") -> Lines:
    """The products of a kind from the cheapest on, as lines."""
    yield from hand.search(BOX, kind)
    yield from hand.choose("Kind", kind)
    yield from hand.choose("Sort by", "Price: low to high")
    if low:
        yield from hand.fill("Lowest price in $", low)
    if stock:
        tick = yield from hand.find("checkbox", "In stock only")
        yield from hand.do("check", id=tick)
    yield from hand.click("button", "Apply filters")
    lines = yield from hand.read()
    return lines[next(nth for nth, line in enumerate(lines) if line.startswith("Products 1-")) :]


def _order(hand: Hand, product: str, quantity: str, delivery: str, code: str = "", note: str = "") -> Script:
    yield from _open(hand, product)
    yield from hand.fill("Quantity", quantity)
    yield from hand.click("button", "Add to cart")
    yield from hand.click("link", "Go to checkout")
    way = next(line for line in (yield from hand.read()) if line.startswith(f'radio "{delivery} '))
    tick = yield from hand.find("radio", way.split('"')[1])
    yield from hand.do("check", id=tick)
    if code:
        yield from hand.fill("Delivery code (optional)", code)
    if note:
        yield from hand.fill("Note for the parcel (optional)", note)
    yield from hand.click("button", "Place order")
    return (yield from hand.match(r'heading "Order (CP-\d+)"'))


def _shown(hand: Hand, caption: str) -> Read:
    """Find the product whose picture is described so; its name."""
    words = caption.lower().split()
    yield from hand.search(BOX, f"{words[-1].removesuffix('s')} {words[1]}")
    return link((yield from hand.after(f'image "{caption}"', r"^(link .*)$")))


def fact(hand: Hand, values: Values) -> Script:
    """One row of a product's table."""
    return (yield from _fact(hand, values["product"], FACTS[values["fact"]]))


def stars(hand: Hand, values: Values) -> Script:
    """How often a number of stars was given."""
    return (yield from _fact(hand, values["product"], f"{values['stars']} stars"))


def cheapest(hand: Hand, values: Values) -> Script:
    """The first of a sorted and filtered list, with its price."""
    lines = yield from _filter(hand, values["kind"], stock=True)
    nth = next(nth for nth, line in enumerate(lines) if link(line))
    return f"{link(lines[nth])}, {lines[nth + 1].split()[0]}"


def most(hand: Hand, values: Values) -> Script:
    """Open all three, remember a measure of each."""
    row = {"heaviest": r"^Weight \| (\d+) g$", "tallest": r"^Height \| (\d+) cm$"}[values["most"]]
    found = {}
    for key in "abc":
        yield from _open(hand, values[key])
        found[values[key]] = int((yield from hand.match(row)))
    return max(found, key=lambda name: found[name])


def open_cheapest(hand: Hand, values: Values) -> Script:
    """End on the page of the first of a filtered list."""
    lines = yield from _filter(hand, values["kind"], low=values["price"])
    name = next(link(line) for line in lines if link(line))
    yield from hand.click("link", name)
    return name


def order(hand: Hand, values: Values) -> Script:
    """A plain order."""
    return (yield from _order(hand, values["product"], "1", values["delivery"]))


def order_with_code(hand: Hand, values: Values) -> Script:
    """An order with the code that the front page tells."""
    code = yield from hand.match(r"delivery code ([A-Z]+-\d+)")
    return (yield from _order(hand, values["product"], values["quantity"], "Standard", code=code))


def order_with_note(hand: Hand, values: Values) -> Script:
    """An order with the number of the product seen first."""
    number = yield from hand.match(r"^Article number \| (.*)$")
    return (yield from _order(hand, values["product"], "1", "Pickup", note=number))


def review(hand: Hand, values: Values) -> Script:
    """Write a review."""
    yield from _open(hand, values["product"])
    yield from hand.click("link", "Write a review")
    yield from hand.choose("Stars", f"{values['stars']} stars")
    yield from hand.fill("Title", values["title"])
    yield from hand.fill("Your review", values["text"])
    yield from hand.click("button", "Publish review")
    return "Done"


def wish(hand: Hand, values: Values) -> Script:
    """Put a product on the wish list."""
    yield from _open(hand, values["product"])
    yield from hand.click("button", "Add to wish list")
    return "Done"


def wish_warranty(hand: Hand, values: Values) -> Script:
    """Compare two warranties, put the longer one's product on the wish list."""
    first = int((yield from _fact(hand, values["a"], "Warranty")).split()[0])
    second = int((yield from _fact(hand, values["b"], "Warranty")).split()[0])
    return (yield from wish(hand, {"product": values["a" if first > second else "b"]}))


def _write(hand: Hand, topic: str, number: str, body: str) -> Script:
    yield from hand.click("link", "Contact us")
    yield from hand.choose("Topic", topic)
    if number:
        yield from hand.fill("Order number (optional)", number)
    yield from hand.fill("Your letter", body)
    yield from hand.click("button", "Send letter")
    return "Done"


def letter_about_order(hand: Hand, values: Values) -> Script:
    """Find the order with the highest total, write about it."""
    yield from hand.click("link", "My orders")
    number, totals = "", {}
    for line in (yield from hand.read()):
        if link(line).startswith("CP-"):
            number = link(line)
        elif number and (found := re.search(r"\$([\d,.]+)$", line)):
            totals[number] = float(found[1].replace(",", ""))
    return (yield from _write(hand, values["topic"], max(totals, key=lambda each: totals[each]), values["text"]))


def letter_about_product(hand: Hand, values: Values) -> Script:
    """Read two facts of a product, write them."""
    number = yield from _fact(hand, values["product"], "Article number")
    country = yield from hand.match(r"^Made in \| (.*)$")
    return (yield from _write(hand, values["topic"], "", f"Article number {number}, made in {country}"))


def picture_price(hand: Hand, values: Values) -> Script:
    """What the set in the picture costs."""
    name = yield from _shown(hand, hand.captions[0])
    yield from hand.click("link", name)
    return (yield from hand.match(r"^(\$[\d,.]+)"))


def picture_cart(hand: Hand, values: Values) -> Script:
    """Put the set in the picture into the cart."""
    name = yield from _shown(hand, hand.captions[0])
    yield from hand.click("link", name)
    yield from hand.click("button", "Add to cart")
    return "Done"


def picture_compare(hand: Hand, values: Values) -> Script:
    """Which of two sets is cheaper."""
    prices = {}
    for caption in hand.captions:
        name = yield from _shown(hand, caption)
        prices[name] = float((yield from hand.after(f'image "{caption}"', r"^\$([\d.]+)")))
    return min(prices, key=lambda each: prices[each])


def impossible(hand: Hand, values: Values) -> Script:
    """Look for the product; there is none, or it is sold out."""
    yield from hand.search(BOX, values["product"])
    lines = yield from hand.read()
    if any(link(line) == values["product"] for line in lines):
        yield from hand.click("link", values["product"])
        if "Sold out" not in (yield from hand.read()):
            raise Stuck(f"{values['product']} can be had")
    return "N/A"


SCRIPTS: dict[int, Callable[[Hand, Values], Script]] = {
    201: fact,
    202: stars,
    203: cheapest,
    204: most,
    205: open_cheapest,
    206: order,
    207: order_with_code,
    208: order_with_note,
    209: review,
    210: wish,
    211: wish_warranty,
    212: letter_about_order,
    213: letter_about_product,
    220: picture_price,
    221: picture_cart,
    222: picture_compare,
    250: impossible,
}
