"""Names of people, towns, makers and the small change of everyday writing."""

from __future__ import annotations

import random

FIRST = (
    "Ada", "Anders", "Bea", "Bruno", "Carla", "Cem", "Dana", "Davit", "Edda", "Emil", "Farah", "Felix", "Gita",
    "Goran", "Hana", "Hugo", "Ines", "Ivo", "Jana", "Joris", "Kaja", "Kofi", "Lena", "Luis", "Maren", "Milo", "Nadia",
    "Nils", "Olga", "Otis", "Petra", "Pavel", "Quinn", "Rosa", "Remy", "Sana", "Soren", "Tara", "Theo", "Uma",
    "Vera", "Viktor", "Wanda", "Wes", "Yara", "Yusuf", "Zoe", "Zeno",
)  # fmt: skip
LAST = (
    "Abbot", "Arden", "Barlow", "Brandt", "Castell", "Cole", "Dahl", "Drew", "Ekholm", "Ellis", "Farrow", "Fuchs",
    "Garrick", "Grove", "Hale", "Hartwell", "Ilves", "Jarvis", "Keller", "Kovac", "Lang", "Lund", "Marsh", "Moreau",
    "Nash", "Novak", "Oakes", "Orr", "Penn", "Pryce", "Quill", "Rask", "Reed", "Sato", "Stone", "Thorn", "Tully",
    "Ueda", "Vale", "Voss", "Wilde", "Winter", "Yates", "Zeller",
)  # fmt: skip
TOWNS = (
    "Alder Bay", "Briarton", "Calder Falls", "Dunmere", "Eastwick", "Fernhollow", "Greystone", "Hazelford",
    "Ivybridge", "Juniper Hill", "Kingsmoor", "Larkspur",
)  # fmt: skip
STREETS = (
    "Mill Lane", "Orchard Road", "Station Street", "Quay Walk", "Chapel Rise", "Linden Avenue", "Market Row",
    "Old Ferry Road", "Rope Yard", "Tannery Close",
)  # fmt: skip
BRANDS = (
    "Fennick", "Tolmar", "Oakridge", "Belvane", "Sundry & Co", "Harrowgate", "Lumivo", "Northfold", "Pellerin",
    "Quillon", "Rookwood", "Savanne", "Trestle", "Umberly", "Vintry", "Westerly",
)  # fmt: skip
COUNTRIES = ("Portugal", "Denmark", "Vietnam", "Poland", "Japan", "Morocco", "Canada", "Slovenia", "India", "Chile")
CODE_WORDS = (
    "HAZEL", "CEDAR", "PLOVER", "BRAMBLE", "OTTER", "THISTLE", "WILLOW", "HERON", "CLOVER", "JUNIPER", "MARLIN",
    "SORREL", "FALCON", "QUARTZ", "SAFFRON", "LANTERN",
)  # fmt: skip
PEOPLE = ("my sister", "my father", "a neighbour", "my flatmate", "our school", "my aunt", "a friend", "my daughter")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def people(dice: random.Random, number: int) -> list[tuple[str, str]]:
    """Distinct (user name, full name) pairs."""
    pairs = [(first, last) for first in FIRST for last in LAST]
    return [(f"{first}.{last}".lower(), f"{first} {last}") for first, last in dice.sample(pairs, number)]


def code(dice: random.Random) -> str:
    """A code as printed on a notice: ``HAZEL-417``."""
    return f"{dice.choice(CODE_WORDS)}-{dice.randrange(100, 1000)}"


def start(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
