"""What the shop sells in one episode, decided by the seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

THINGS = {
    "Teapot": ("Stoneware, holds one litre.", 24),
    "Wool Scarf": ("Woven on the island, 180 cm long.", 31),
    "Desk Lamp": ("A warm light for late readers.", 42),
    "Notebook": ("96 blank pages, thread bound.", 9),
    "Picnic Basket": ("Willow, with a cotton lining.", 37),
    "Soup Bowl": ("Glazed inside and out.", 14),
    "Rain Hat": ("Waxed cotton with a wide brim.", 28),
    "Wall Clock": ("Quiet, with large figures.", 33),
}
COLOURS = ("Blue", "Green", "Red", "Yellow", "White", "Grey")
WORDS = (
    "amber", "maple", "coral", "cedar", "pearl", "olive", "lemon", "river", "cloud", "tulip", "honey", "ivory",
    "lilac", "mango", "ocean", "onion", "peach", "quartz", "raven", "stone", "sugar", "tiger", "violet", "walnut",
)  # fmt: skip


@dataclass(frozen=True)
class Product:
    """One thing on the shelf; ``slug`` is its address, ``price`` is in euros."""

    slug: str
    name: str
    text: str
    price: int


@dataclass(frozen=True)
class Catalogue:
    """The shelf, the product to order and the pickup code."""

    products: tuple[Product, ...]
    wanted: Product
    code: str


def catalogue(seed: int, size: int = 4) -> Catalogue:
    """The same seed always stocks the same shelf."""
    dice = random.Random(f"shop-{seed}")
    products = []
    for thing in dice.sample(sorted(THINGS), size):
        text, price = THINGS[thing]
        name = f"{dice.choice(COLOURS)} {thing}"
        products.append(Product(name.lower().replace(" ", "-"), name, text, price + dice.randrange(5)))
    wanted, code = dice.choice(products), dice.choice(WORDS)
    return Catalogue(tuple(products), wanted, code)
