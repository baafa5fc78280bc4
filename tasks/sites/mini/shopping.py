"""The shop's 25 tasks."""

from __future__ import annotations

import sqlite3

from tasks.sites.mini.draft import Drafts, Look, count_of, text_of
from tasks.sites.seed.kinds import KINDS
from tasks.sites.web import money

#: Kinds that are called on their pages what their pictures' descriptions call them.
DRAWN = ("mug", "teapot", "bowl", "bottle", "lamp", "lantern", "candle", "ball", "kite")
PRODUCT = "SELECT * FROM sh_product WHERE stock > 5 AND price < 20000"


def _figure(cents: int) -> str:
    """An amount as a word of its own, whatever stands for the currency."""
    return money(cents).removeprefix("$")


def _ordered(lines: list[tuple[str, int]], *facts: str) -> list[Look]:
    """Looks at the next order: its lines and what is said about it."""
    page = "/orders/6"
    looks: list[Look] = [(page, count_of("#order-lines tbody tr"), {"exact_match": str(len(lines))})]
    for nth, (name, quantity) in enumerate(lines, 1):
        cell = f"#order-lines tbody tr:nth-child({nth}) td:nth-child"
        looks.append((page, text_of(f"{cell}(1)"), {"exact_match": name}))
        looks.append((page, text_of(f"{cell}(2)"), {"exact_match": str(quantity)}))
    looks.append((page, text_of("#order-facts"), {"must_include": list(facts)}))
    return looks


def drafts(db: sqlite3.Connection) -> Drafts:
    """All of them."""
    d = Drafts("shopping", 201, db)
    _questions(d)
    _orders(d)
    _letters(d)
    _pictures(d)
    for text, values, why in (
        (
            "What does the {{product}} cost?",
            {"product": "Quillon Round Teapot in Gold"},
            "The shop has no teapot in gold.",
        ),
        (
            "Order one {{product}} with Standard delivery to my usual address.",
            {"product": d.pick("product", "SELECT * FROM sh_product WHERE stock = 0")["name"]},
            "This product is sold out, its button does not work.",
        ),
    ):
        d.add(250, text, values, level=(1, 0), login=True, impossible=why)
    return d


def _questions(d: Drafts) -> None:
    for label, column in (("article number", "sku"), ("country of manufacture", "country")):
        item = d.pick("product", PRODUCT)
        d.add(
            201, "What is the {{fact}} of the {{product}}?", {"fact": label, "product": item["name"]},
            includes=[item[column]],
        )  # fmt: skip
    item = d.pick("product", f"{PRODUCT} AND id IN (SELECT product_id FROM sh_review WHERE stars = 4 GROUP BY 1 HAVING "
                  "COUNT(*) > 2)")  # fmt: skip
    stars = d.one("SELECT COUNT(*) AS n FROM sh_review WHERE stars = 4 AND product_id = ?", item["id"])
    d.add(
        202, "How many reviews give the {{product}} exactly {{stars}} stars? Answer with the number.",
        {"product": item["name"], "stars": "4"}, includes=[str(stars["n"])], level=(1, 0),
    )  # fmt: skip
    for kind in ("lamp", "umbrella"):
        low, second = d.rows("SELECT * FROM sh_product WHERE kind = ? AND stock > 0 ORDER BY price LIMIT 2", kind)
        assert low["price"] < second["price"]
        d.add(
            203, "Which {{kind}} that is in stock is the cheapest, and what does it cost?",
            {"kind": KINDS[kind].label.lower()}, includes=[low["name"], _figure(low["price"])],
        )  # fmt: skip
    for column, word in (("weight", "heaviest"), ("height", "tallest")):
        items = [d.pick("product", PRODUCT) for _ in range(3)]
        ranked = sorted(items, key=lambda item: -item[column])
        assert ranked[0][column] > ranked[1][column]
        d.add(
            204, "Which of these three is the {{most}}: the {{a}}, the {{b}} or the {{c}}? Answer with its name only.",
            {"most": word, **{key: item["name"] for key, item in zip("abc", items, strict=True)}},
            includes=[ranked[0]["name"]], excludes=[item["name"] for item in ranked[1:]], level=(2, 0),
            carries=f"the {column} of each product",
        )  # fmt: skip
    price = 60
    over = d.rows("SELECT * FROM sh_product WHERE kind = 'radio' AND price >= ? ORDER BY price LIMIT 2", price * 100)
    assert over[0]["price"] < over[1]["price"]
    d.add(
        205, "Open the page of the cheapest {{kind}} that costs at least ${{price}}.",
        {"kind": "radio", "price": str(price)}, url=f"/product/{over[0]['id']}", level=(1, 0),
    )  # fmt: skip


def _orders(d: Drafts) -> None:
    code = d.one("SELECT value FROM meta WHERE key = 'delivery_code'")["value"]
    item = d.pick("product", PRODUCT)
    d.add(
        206, "Order one {{product}} by {{delivery}} delivery to my usual address.",
        {"product": item["name"], "delivery": "Express"}, login=True,
        looks=_ordered([(item["name"], 1)], "Express", "14 Quay Walk"),
    )  # fmt: skip
    for quantity in (2, 3):
        item = d.pick("product", PRODUCT)
        d.add(
            207, "Order {{quantity}} pieces of the {{product}} with Standard delivery to my usual address, and use the "
            "delivery code that the front page announces.",
            {"quantity": str(quantity), "product": item["name"]}, login=True, level=(2, 0),
            carries="the delivery code on the front page",
            looks=_ordered([(item["name"], quantity)], "Standard", f"Delivery code\t{code}", "Delivery cost\t$0.00"),
        )  # fmt: skip
    for _ in range(2):
        item, other = d.pick("product", PRODUCT), d.pick("product", PRODUCT)
        d.add(
            208,
            "You are looking at a product. Do not order it, but remember its article number: order one {{product}} "
            "with Pickup, and write that article number into the note for the parcel.",
            {"product": item["name"]}, start=f"/product/{other['id']}", login=True, level=(2, 0),
            carries="the article number of the first page's product",
            looks=_ordered([(item["name"], 1)], "Pickup", f"Note\t{other['sku']}"),
        )  # fmt: skip
    item, title, text = d.pick("product", PRODUCT), "Good in small kitchens", "It does not take much room and lasts."
    d.add(
        209, 'Review the {{product}}: {{stars}} stars, the title "{{title}}" and the text "{{text}}"',
        {"product": item["name"], "stars": "4", "title": title, "text": text}, login=True,
        looks=[(f"/product/{item['id']}", text_of("#reviews article"),
                {"must_include": [title, "4 stars by Mira Holt", text]})],
    )  # fmt: skip
    item = d.pick("product", PRODUCT)
    d.add(
        210, "Put the {{product}} on my wish list.", {"product": item["name"]}, login=True,
        looks=[("/wishlist", text_of("#wishes"), {"must_include": [item["name"]]}),
               ("/wishlist", count_of("#wishes li"), {"exact_match": "1"})],
    )  # fmt: skip
    a, b = d.pick("product", PRODUCT), d.pick("product", PRODUCT)
    while a["warranty"] == b["warranty"]:
        b = d.pick("product", PRODUCT)
    better, worse = (a, b) if a["warranty"] > b["warranty"] else (b, a)
    d.add(
        211, "Put that one of these two on my wish list that has the longer warranty: the {{a}} or the {{b}}.",
        {"a": a["name"], "b": b["name"]}, login=True, level=(2, 0), carries="the warranty of the first product",
        looks=[("/wishlist", text_of("#wishes"), {"must_include": [better["name"]], "must_exclude": [worse["name"]]})],
    )  # fmt: skip


def _letters(d: Drafts) -> None:
    most = d.rows("SELECT * FROM sh_order ORDER BY total DESC")
    assert most[0]["total"] > most[1]["total"]
    text = "Please send me a label for all of it."
    d.add(
        212, 'Write to the shop with the topic {{topic}} about my order with the highest total: give its number in the '
        'form, and write "{{text}}"',
        {"topic": "Returns", "text": text}, login=True, level=(2, 0), carries="the number of the order",
        looks=[("/letters", text_of(".letter"), {"must_include": ["Returns", f"order {most[0]['number']}", text]})],
    )  # fmt: skip
    item = d.pick("product", PRODUCT)
    d.add(
        213,
        'Write to the shop with the topic {{topic}}, without an order number. The letter has to say "Article number '
        'NUMBER, made in COUNTRY", with the number and the country of the {{product}}.',
        {"topic": "Warranty", "product": item["name"]}, login=True, level=(2, 0),
        carries="the article number and the country of a product",
        looks=[("/letters", text_of(".letter"),
                {"must_include": ["Warranty", f"Article number {item['sku']}, made in {item['country']}"]})],
    )  # fmt: skip


def _drawn(d: Drafts) -> sqlite3.Row:
    marks = ",".join("?" * len(DRAWN))
    return d.pick("product", f"{PRODUCT} AND kind IN ({marks}) AND pieces > 1", *DRAWN)


def _pictures(d: Drafts) -> None:
    for _ in range(2):
        item = _drawn(d)
        d.add(
            220, "The shop sells a set that looks like the picture. What does it cost?", {}, images=[item["picture"]],
            includes=[_figure(item["price"])], level=(0, 1),
        )  # fmt: skip
    for _ in range(2):
        item = _drawn(d)
        d.add(
            221, "Put the set that looks like the picture into the cart, once.", {}, images=[item["picture"]],
            level=(0, 1), looks=[("/cart", text_of("#cart"), {"must_include": [item["name"], "1 at"]}),
                                 ("/cart", count_of("#cart li"), {"exact_match": "1"})],
        )  # fmt: skip
    a, b = _drawn(d), _drawn(d)
    assert a["price"] != b["price"]
    low, high = sorted((a, b), key=lambda item: int(item["price"]))
    d.add(
        222, "The two pictures show two sets that the shop sells. Which one is cheaper? Answer with its name only.", {},
        images=[a["picture"], b["picture"]], includes=[low["name"]], excludes=[high["name"]], level=(2, 2),
        carries="the price of the first set",
    )  # fmt: skip
