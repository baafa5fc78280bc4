"""The shop's shelves, its reviews and what the documented customer bought before."""

from __future__ import annotations

import random
import sqlite3

from tasks.sites.clock import before
from tasks.sites.seed import words
from tasks.sites.seed.kinds import COLOURS, KINDS, Kind

PRODUCTS = 320
ACCOUNT = "mira.holt"
_LIKED = (
    "I have nothing to say against {aspect}", "I like {aspect} more every week", "{person} praised {aspect} at once",
    "I did not expect to like {aspect} this much at ${price}", "I would pay ${price} for {aspect} alone",
    "everyone who visits asks about {aspect}", "after {number} months I still enjoy {aspect}",
)  # fmt: skip
_MIXED = (
    "{aspect} could be better", "it took me {number} days to get used to {aspect}", "about {aspect}: fine, no more",
    "I had hoped for more from {aspect}", "{person} did not mind {aspect}, but I did",
)  # fmt: skip
_DISLIKED = (
    "{aspect} failed after {number} weeks", "{aspect} arrived scratched", "I cannot recommend {aspect}",
    "{aspect} came loose in {month}", "I sent it back because of {aspect}",
)  # fmt: skip
_SETTING = (
    "Bought {number} of them in {month} for {person}.", "We use it every day for {use}.",
    "Delivery to {town} took {number} days.", "It was a present for {person} in {town}.",
    "I have had mine since {month}.", "The parcel from {brand} was packed with paper, no plastic.",
    "It stands in our kitchen in {town}.", "Good for {use}, as the page says.",
)  # fmt: skip
_TITLES = {
    5: ("Exactly what I wanted", "A keeper", "Would buy again", "Lovely thing", "Better than expected"),
    4: ("Very good, small flaw", "Nearly perfect", "Happy with it", "Solid"),
    3: ("It is all right", "Mixed feelings", "Does the job", "Fair for the price"),
    2: ("Not for me", "Expected more", "Disappointing finish"),
    1: ("Sent it back", "Broke too soon", "Do not bother"),
}


def _describe(dice: random.Random, kind: Kind, brand: str, material: str, colour: str, pieces: int) -> str:
    sold = "Sold singly." if pieces == 1 else f"Sold as a set of {words.NUMBERS[pieces - 2]}."
    first = dice.choice(
        (
            f"Made of {material} in {{country}} for {kind.use}.",
            f"{brand} makes it of {material}, with {kind.use} in mind.",
            f"A plain, well-made thing of {material}; good company for {kind.use}.",
        )
    )
    second = dice.choice(
        (
            f"The {colour} finish is mixed by hand, so no two are quite alike.",
            f"The {colour} is a calm one that does not fade in the sun.",
            f"Wipe it with a damp cloth; the {colour} stays {colour}.",
        )
    )
    third = dice.choice(
        (
            f"Customers praise {kind.aspects[0]} and {kind.aspects[1]}.",
            f"Look closely at {kind.aspects[2]}: that is where the work went.",
            f"{words.start(kind.aspects[3])} was redone this year.",
        )
    )
    return f"{first} {second} {third} {sold}"


def _review(dice: random.Random, kind: Kind, brand: str, price: int, stars: int) -> str:
    pool = _LIKED if stars >= 4 else _MIXED if stars == 3 else _DISLIKED
    said = dice.sample(pool, 2)
    aspects = dice.sample(kind.aspects, 2)
    parts = [text.replace("{aspect}", aspect) + "." for text, aspect in zip(said, aspects, strict=True)]
    parts.insert(dice.randrange(3), dice.choice(_SETTING))
    slots = {
        "price": price // 100, "person": dice.choice(words.PEOPLE), "number": dice.choice(words.NUMBERS),
        "month": dice.choice(words.MONTHS), "town": dice.choice(words.TOWNS), "use": kind.use, "brand": brand,
    }  # fmt: skip
    return " ".join(words.start(part.format(**slots)) for part in parts)


def fill(db: sqlite3.Connection, seed: int) -> None:
    """Write the shop's tables."""
    dice = random.Random(f"shopping-{seed}")
    combinations = [(kind, colour) for kind in KINDS for colour in COLOURS]
    dice.shuffle(combinations)
    buyers = [name for _, name in words.people(dice, 260)]
    skus = dice.sample(range(1000, 9999), PRODUCTS)
    review_id = 0
    for number, (key, colour) in enumerate(combinations[:PRODUCTS], 1):
        kind = KINDS[key]
        brand, style, material = dice.choice(words.BRANDS), dice.choice(kind.styles), dice.choice(kind.materials)
        pieces = dice.choice((1, 1, 1, 2, 3, 4, 6)) if kind.shelf in ("Kitchen", "Lighting", "Play") else 1
        low, high = kind.price
        price = (low + dice.randrange(high - low + 1)) * 100 + dice.choice((0, 25, 50, 75, 90, 95))
        was = price + dice.randrange(2, 9) * 100 if dice.random() < 0.2 else None
        country = dice.choice(words.COUNTRIES)
        text = _describe(dice, kind, brand, material, colour, pieces).replace("{country}", country)
        stock = dice.choice((0, 0, *range(2, 40)))
        sku = f"{key[:2].upper()}-{skus[number - 1]}"
        db.execute(
            "INSERT INTO sh_product VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                number, sku, f"{brand} {style} {kind.label} in {words.start(colour)}", brand, key, kind.shelf, colour,
                pieces, price, was, stock, material, dice.randint(*kind.weight) * pieces, dice.randint(*kind.height),
                dice.randrange(1, 11), country, before(dice.randrange(2, 700)), text, f"{key}-{colour}-{pieces}",
            ),
        )  # fmt: skip
        leaning = dice.choice((3, 4, 4, 5, 5))
        count = dice.choice((3, 4, 5, 6, 8, 10, 14)) if number % 40 else 60
        for author in dice.sample(buyers, count):
            stars = min(5, max(1, leaning + dice.choice((-3, -1, 0, 0, 0, 1, 1))))
            review_id += 1
            db.execute(
                "INSERT INTO sh_review VALUES (?,?,?,?,?,?,?,?)",
                (
                    review_id, number, author, stars, dice.choice(_TITLES[stars]),
                    _review(dice, kind, brand, price, stars), before(dice.randrange(3, 600)), dice.randrange(0, 30),
                ),
            )  # fmt: skip
    _past_orders(db, dice)
    code = words.code(dice)
    db.execute("INSERT INTO meta VALUES ('delivery_code', ?)", (code,))


def _past_orders(db: sqlite3.Connection, dice: random.Random) -> None:
    for order, days in enumerate((190, 121, 64, 33, 9), 1):
        rows = db.execute("SELECT id, name, price FROM sh_product WHERE price < 9000 ORDER BY id").fetchall()
        chosen = dice.sample(rows, dice.randrange(1, 5))
        lines = [(row["id"], row["name"], dice.randrange(1, 4), row["price"]) for row in chosen]
        subtotal = sum(quantity * price for _, _, quantity, price in lines)
        delivery = dice.choice(("Standard", "Express", "Pickup"))
        cost = {"Standard": 490, "Express": 1250, "Pickup": 0}[delivery]
        db.execute(
            "INSERT INTO sh_order VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                order, f"CP-{20400 + order * 37}", f"user:{ACCOUNT}", before(days), "Mira Holt", "14 Quay Walk",
                "Alder Bay", "40218", delivery, "", "", subtotal, cost, subtotal + cost,
                "On its way" if order == 5 else "Delivered",
            ),
        )  # fmt: skip
        db.executemany("INSERT INTO sh_line VALUES (?,?,?,?,?)", [(order, *line) for line in lines])
