"""Advertisements, who placed them, the questions under them, and the documented member's mail."""

from __future__ import annotations

import random
import sqlite3

from tasks.sites.clock import before
from tasks.sites.seed import words
from tasks.sites.seed.kinds import COLOURS

ADS = 340
USERS = 48
ACCOUNT = "mira.holt"
CONDITIONS = ("New", "Like new", "Good", "Used", "Needs repair")
HANDOVERS = ("Pickup only", "Pickup or post", "Seller delivers", "Meet at the station")

#: category -> kind -> (styles, lowest price, highest price, features)
STOCK: dict[str, dict[str, tuple[tuple[str, ...], int, int, tuple[str, ...]]]] = {
    "Vehicles": {
        "car": (("hatchback", "estate car", "city car"), 1400, 14500,
                ("{km} km on the clock", "new tyres in {month}", "one owner before me",
                 "inspection until {month} 2027")),
        "bicycle": (("touring bicycle", "city bicycle", "folding bicycle", "racing bicycle"), 60, 940,
                    ("{gears} gears", "frame size {size} cm", "new chain in {month}", "dynamo lights")),
        "sailboat": (("dinghy", "day sailer", "model yacht"), 90, 5200,
                     ("{feet} feet long", "two sets of sails", "trailer included", "repainted in {month}")),
    },
    "Furniture": {
        "chair": (("dining chair", "armchair", "rocking chair"), 10, 190,
        ("seat height {size} cm", "reglued in {month}")),
        "table": (("kitchen table", "coffee table", "writing desk"), 25, 430, ("{size}0 cm long", "oiled in {month}")),
        "sofa": (("two-seat sofa", "corner sofa", "sofa bed"), 60, 760, ("washable covers", "legs unscrew")),
        "shelf": (("bookcase", "display shelf", "low shelf"), 15, 240,
        ("holds about {km2} books", "wall fixings included")),
    },
    "Electronics": {
        "radio": (("kitchen radio", "shortwave radio", "tube radio"), 12, 210, ("runs {gears} hours on a charge",)),
        "headphones": (("studio headphones", "wireless headphones"), 15, 260, ("cable {gears} feet long", "with case")),
        "camera": (("film camera", "mirrorless camera", "compact camera"), 30, 680,
        ("shutter count {km}", "two lenses")),
        "laptop": (("laptop", "work laptop", "student laptop"), 110, 1150, ("{gears} GB of memory", "new battery")),
        "television": (("television", "retro television"), 40, 540, ("screen {size} inches", "remote included")),
    },
    "Music": {
        "guitar": (("parlour guitar", "classical guitar", "acoustic guitar"), 50, 720, ("new strings", "with gig bag")),
        "drum": (("snare drum", "floor tom", "hand drum"), 35, 340, ("{gears} inch shell", "new skin in {month}")),
    },
    "Home": {
        "lamp": (("desk lamp", "floor lamp", "bedside lamp"), 8, 130, ("rewired in {month}", "bulb included")),
        "clock": (("wall clock", "station clock"), 9, 150, ("loses {gears} seconds a day", "new movement")),
        "teapot": (("teapot", "family teapot"), 6, 80, ("holds {gears} cups", "lid is whole")),
        "pan": (("frying pan", "cast-iron pan"), 7, 90, ("{size} cm wide", "seasoned in {month}")),
        "lantern": (("storm lantern", "garden lantern"), 8, 95, ("burns {gears} hours", "spare glass")),
    },
    "Garden": {
        "plant": (("rubber plant", "potted fern", "shade plant"), 4, 70, ("{size} cm tall", "repotted in {month}")),
        "watering-can": (("watering can", "balcony watering can"), 4, 50, ("holds {gears} litres", "two roses")),
        "birdhouse": (("birdhouse", "nesting box"), 5, 66, ("hole {size} mm wide", "cleaned in {month}")),
    },
    "Outdoors": {
        "tent": (("ridge tent", "tunnel tent", "festival tent"), 25, 380, ("sleeps {few}", "used {few} times")),
        "backpack": (("trekking backpack", "roll-top backpack"), 14, 170, ("{size} litres", "rain cover included")),
        "kite": (("stunt kite", "diamond kite"), 6, 90, ("line of {size} metres", "spare tail")),
        "suitcase": (("cabin suitcase", "travel trunk"), 12, 160, ("code lock", "been to {few} countries")),
        "ball": (("handball", "beach ball"), 3, 40, ("pump included", "played {few} times")),
    },
    "Clothing": {
        "hat": (("felt hat", "rain hat", "sun hat"), 6, 80, ("size {size}", "worn {few} times")),
        "boot": (("hiking boots", "winter boots", "garden boots"), 10, 170, ("size {size}", "resoled in {month}")),
        "shirt": (("linen shirt", "work shirt", "camp shirt"), 5, 60, ("size {size}", "washed once")),
        "umbrella": (("walking umbrella", "storm umbrella"), 5, 55, ("{gears} ribs", "never turned inside out")),
    },
}  # fmt: skip
_WHY = (
    "I am moving to {town} and it does not fit into the new flat.", "Selling because {person} gave me another one.",
    "It has been in the attic since {month} and deserves better.", "Bought for a project that ended in {month}.",
    "It belonged to {person}, who looked after it well.", "We are clearing the house in {town} before {month}.",
)  # fmt: skip
_FLAW = (
    "There is a small scratch on the left side, see the picture.", "No faults that I know of.",
    "The colour has faded a little where the sun gets to it.", "One screw is not original.",
    "It smells faintly of the cellar, which airs out.", "A corner was repaired {number} years ago.",
)  # fmt: skip
_END = (
    "Pickup in {town} after {hour} o'clock.", "Cash or bank transfer, no swaps.", "I can hold it for {number} days.",
    "Please write before you come.", "Weekends suit me best.", "The first who comes with the money takes it.",
)  # fmt: skip
_TALK = (
    ("Is it still available?", "Yes, it is. I am at home most evenings."),
    ("Would you take less?", "The lowest I can do is ${low}."),
    ("How old is it exactly?", "I have the receipt: bought in {month} {year}."),
    ("Could you hold it until the weekend?", "Yes, until Sunday at {hour} o'clock."),
    ("Does it fit into a small car?", "It does; the longest side is {long} cm."),
    ("Could you bring it to {town}?", "For ${few} extra I can bring it to {town} on a {weekday}."),
    ("What does it weigh?", "About {weight} kg on the bathroom scales."),
    ("Is there anything wrong with it?", "Nothing beyond what the text says."),
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ABOUT = (
    "I sell what my workshop no longer needs.", "Clearing out a big house, one room at a time.",
    "Collector of {kind}s, so there is always one too many.", "Quick replies, fair prices.",
    "Retired joiner; everything is repaired before it is sold.", "Student, so prices are friendly.",
    "Everything comes from a smoke-free flat with {number} plants.",
)  # fmt: skip


def _slots(dice: random.Random) -> dict[str, str]:
    return {
        "km": f"{dice.randrange(12, 190)},{dice.randrange(100, 999)}", "km2": str(dice.randrange(4, 19) * 10),
        "month": dice.choice(words.MONTHS), "gears": str(dice.choice((6, 7, 8, 12, 14, 16, 18, 21, 24))),
        "size": str(dice.randrange(36, 62)), "feet": str(dice.randrange(9, 24)), "few": str(dice.randrange(2, 9)),
        "town": dice.choice(words.TOWNS), "person": dice.choice(words.PEOPLE), "number": dice.choice(words.NUMBERS),
        "hour": str(dice.randrange(14, 20)), "kind": dice.choice(("clock", "lamp", "radio", "teapot", "bicycle")),
    }  # fmt: skip


def fill(db: sqlite3.Connection, seed: int) -> None:
    """Write the classifieds' tables."""
    dice = random.Random(f"classifieds-{seed}")
    _users(db, dice)
    refs = dice.sample(range(1000, 9999), ADS)
    titles: set[str] = set()
    comment = 0
    for number in range(1, ADS + 1):
        category = list(STOCK)[number % len(STOCK)]
        key = dice.choice(list(STOCK[category]))
        styles, low, high, features = STOCK[category][key]
        slots, title = _slots(dice), ""
        while not title or title in titles:
            slots, colour, style = _slots(dice), dice.choice(COLOURS), dice.choice(styles)
            feature = dice.choice(features).format(**slots)
            title = f"{words.start(colour)} {style}, {feature}"
        titles.add(title)
        price = round(low + (high - low) * dice.random() ** 2)
        town, seller = dice.choice(words.TOWNS), dice.randrange(2, USERS + 1)
        others = [f"{words.start(text.format(**slots))}." for text in features if text.format(**slots) != feature]
        slots["town"] = town
        body = " ".join(
            [dice.choice(_WHY).format(**_slots(dice)), *others, dice.choice(_FLAW).format(**slots),
             *(text.format(**slots) for text in dice.sample(_END, 2))]
        )  # fmt: skip
        days = dice.randrange(1, 75)
        db.execute(
            "INSERT INTO cl_ad VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                number, f"CM-{refs[number - 1]}", title, category, key, colour, price, town, dice.choice(CONDITIONS),
                dice.choice(words.BRANDS), dice.randrange(1988, 2025), dice.choice(HANDOVERS),
                before(days, dice.randrange(600)), seller, dice.randrange(5, 900), body,
                f"{key}-{colour}-{dice.choice((1, 1, 1, 1, 2, 3)) if high < 200 else 1}",
            ),
        )  # fmt: skip
        talks = dice.sample(_TALK, dice.choice((0, 1, 2, 3, 4)))
        for turn, (question, reply) in enumerate(talks):
            asker = dice.choice([user for user in range(2, USERS + 1) if user != seller])
            fills = _slots(dice) | {
                "low": str(max(1, round(price * dice.uniform(0.75, 0.94)))), "year": str(dice.randrange(2011, 2025)),
                "long": str(dice.randrange(22, 190)), "weight": str(dice.randrange(1, 40)),
                "weekday": dice.choice(_DAYS),
            }  # fmt: skip
            for author, text in ((asker, question), (seller, reply)):
                comment += 1
                db.execute(
                    "INSERT INTO cl_comment VALUES (?,?,?,?,?)",
                    (
                        comment,
                        number,
                        author,
                        before(max(0, days - turn - 1), 400 - comment % 300),
                        text.format(**fills),
                    ),
                )
    _mail(db, dice)
    db.execute("INSERT INTO meta VALUES ('market_code', ?)", (words.code(dice),))
    db.execute("INSERT INTO meta VALUES ('market_day', ?)", (f"{dice.choice(_DAYS)}, {dice.randrange(6, 28)} June",))
    db.execute("INSERT INTO meta VALUES ('market_town', ?)", (dice.choice(words.TOWNS),))


def _users(db: sqlite3.Connection, dice: random.Random) -> None:
    phones = dice.sample(range(1000, 9999), USERS + 1)
    people = [(ACCOUNT, "Mira Holt"), *words.people(dice, USERS - 1)]
    for number, (username, name) in enumerate(people, 1):
        about = dice.choice(_ABOUT).format(**_slots(dice))
        db.execute(
            "INSERT INTO cl_user VALUES (?,?,?,?,?,?,?,?,?)",
            (
                number, username, name, "Alder Bay" if number == 1 else dice.choice(words.TOWNS),
                before(dice.randrange(90, 3000)), f"555-{phones[number]}", dice.randrange(31, 51),
                dice.randrange(1, 49), about,
            ),
        )  # fmt: skip


def _mail(db: sqlite3.Connection, dice: random.Random) -> None:
    """Three advertisements of the documented member and the mail that waits for her."""
    own = dice.sample(range(1, ADS + 1), 3)
    moved = "UPDATE cl_ad SET text = replace(text, 'Pickup in ' || town, 'Pickup in Alder Bay') WHERE id = ?"
    db.executemany(moved, [(number,) for number in own])
    db.executemany("UPDATE cl_ad SET seller_id = 1, town = 'Alder Bay' WHERE id = ?", [(number,) for number in own])
    # The seller's answers under an advertisement are the seller's, whoever that is.
    for number in own:
        replies = db.execute("SELECT id FROM cl_comment WHERE ad_id = ? ORDER BY id", (number,)).fetchall()[1::2]
        db.executemany("UPDATE cl_comment SET author_id = 1 WHERE id = ?", [(row["id"],) for row in replies])
    texts = (
        "Is the price fixed? I could come by in the evening and pay ${offer} in cash.",
        "I would like to see it first. My gate code is {code}, in case you can bring it along.",
        "My neighbour recommended your advertisement. Please call me on extension {extension}.",
        "Could you meet me at platform {platform} of the station in {town}? I wear a yellow coat.",
        "Thank you for the quick answer. I will bring the rest of the money, ${rest}, on {day}.",
    )  # fmt: skip
    for number, text in enumerate(texts, 1):
        sender = dice.randrange(2, USERS + 1)
        body = text.format(
            offer=dice.randrange(12, 60), code=dice.randrange(1000, 9999), extension=dice.randrange(100, 999),
            platform=dice.randrange(2, 15), town=dice.choice(words.TOWNS), rest=dice.randrange(11, 70),
            day=dice.choice(_DAYS),
        )  # fmt: skip
        ad = own[number % 3]
        title = db.execute("SELECT title FROM cl_ad WHERE id = ?", (ad,)).fetchone()["title"]
        db.execute(
            "INSERT INTO cl_message VALUES (?,?,?,?,?,?,?)",
            (number, ad, sender, 1, title, body, before(12 - number * 2)),
        )
