"""The classifieds' 25 tasks."""

from __future__ import annotations

import re
import sqlite3

from tasks.sites.mini.draft import Drafts, Look, count_of, text_of

AD = "SELECT a.*, u.username, u.phone, u.hours FROM cl_ad a JOIN cl_user u ON u.id = a.seller_id WHERE a.seller_id > 1"
#: Kinds that are called in titles what their pictures' descriptions call them.
DRAWN = ("car", "bicycle", "lamp", "teapot", "tent", "guitar", "radio", "laptop", "television", "clock", "table")


def _dollars(amount: int) -> str:
    """An amount as a word of its own, with and without a separator."""
    return f"{amount:,} |OR| {amount}" if amount > 999 else str(amount)


def _sent(receiver: str, *texts: str) -> list[Look]:
    """A look at the last message sent."""
    return [("/sent", text_of("#mail tbody tr"), {"must_include": [receiver, *texts]})]


def _cheapest(d: Drafts, category: str) -> tuple[str, sqlite3.Row]:
    """A town with several advertisements of a category, and the only cheapest of them, somebody else's."""
    towns = d.rows("SELECT town, COUNT(*) AS n FROM cl_ad WHERE category = ? GROUP BY town HAVING n > 2", category)
    for town in d.dice.sample([row["town"] for row in towns], len(towns)):
        low, second = d.rows(
            f"{AD.replace('WHERE', 'WHERE 1 = 1 AND')} AND category = ? AND a.town = ? ORDER BY price LIMIT 2",
            category,
            town,
        )
        least = d.one("SELECT MIN(price) AS p FROM cl_ad WHERE category = ? AND town = ?", category, town)["p"]
        if least == low["price"] < second["price"]:
            return town, low
    raise ValueError(f"no town has one cheapest ad in {category}")


def drafts(db: sqlite3.Connection) -> Drafts:
    """All of them."""
    d = Drafts("classifieds", 101, db)
    _questions(d)
    _messages(d)
    _own_ads(d)
    _pictures(d)
    ad = d.pick("ad", AD)
    for text, values, why in (
        ("What is the telephone number of the seller of the {{thing}}?", {"thing": "golden submarine"},
         "Nobody sells a golden submarine."),
        ('What is the street address of the seller of the ad "{{title}}"?', {"title": ad["title"]},
         "The site tells towns and telephone numbers of sellers, but no street."),
    ):  # fmt: skip
        d.add(150, text, values, level=(1, 0), impossible=why)
    return d


def _questions(d: Drafts) -> None:
    ad = d.pick("ad", AD)
    d.add(
        101, 'What is the telephone number of the seller of "{{title}}"?', {"title": ad["title"]},
        includes=[ad["phone"]]
    )  # fmt: skip
    for category in ("Electronics", "Garden"):
        town, low = _cheapest(d, category)
        d.add(
            102, "What is the reference of the cheapest ad in the category {{category}} in {{town}}?",
            {"category": category, "town": town}, includes=[low["ref"]],
        )  # fmt: skip
    talk = d.pick("ad", AD + " AND a.id IN (SELECT ad_id FROM cl_comment WHERE body LIKE 'The lowest I can do is%')")
    reply = d.one("SELECT body FROM cl_comment WHERE ad_id = ? AND body LIKE 'The lowest I can%'", talk["id"])["body"]
    lowest = re.search(r"\$(\d+)", reply)
    assert lowest is not None
    d.add(
        103,
        'What is the lowest price that the seller of "{{title}}" would accept, according to the answers below the ad?',
        {"title": talk["title"]}, includes=[_dollars(int(lowest[1]))], level=(1, 0),
    )  # fmt: skip
    for _ in range(2):
        a, b = d.pick("ad", AD), d.pick("ad", AD)
        while a["hours"] == b["hours"]:
            b = d.pick("ad", AD)
        fast, slow = sorted((a, b), key=lambda ad: int(ad["hours"]))
        d.add(
            104, 'Who answers faster: the seller of "{{a}}" or the seller of "{{b}}"? Answer with the user name only.',
            {"a": a["title"], "b": b["title"]}, includes=[fast["username"]], excludes=[slow["username"]], level=(2, 0),
            carries="how fast the first seller answers",
        )  # fmt: skip


def _messages(d: Drafts) -> None:
    ad, text = d.pick("ad", AD), "Could I come and look at it on Friday at 18:30?"
    d.add(
        105, 'Write to the seller of "{{title}}": "{{text}}"', {"title": ad["title"], "text": text}, login=True,
        looks=_sent(ad["username"], text),
    )  # fmt: skip
    for category in ("Furniture", "Music", "Outdoors"):
        first = d.pick("ad", AD)
        town, low = _cheapest(d, category)
        d.add(
            106,
            "You are looking at an ad; remember its reference. Write to the seller of the cheapest ad in the category "
            '{{category}} in {{town}}: "I also asked about REFERENCE", with that reference.',
            {"category": category, "town": town}, start=f"/ad/{first['id']}", login=True, level=(2, 0),
            carries="the reference of the first page's ad",
            looks=_sent(low["username"], f"I also asked about {first['ref']}"),
        )  # fmt: skip
    for sender, thing, pattern in (
        (2, "gate code", r"gate code is (\d+)"), (4, "platform number", r"platform (\d+)"),
    ):  # fmt: skip
        mail = d.one(
            "SELECT m.*, u.username FROM cl_message m JOIN cl_user u ON u.id = m.sender_id WHERE m.id = ?", sender
        )
        found = re.search(pattern, mail["body"])
        assert found is not None
        ad = d.pick("ad", AD + " AND u.id NOT IN (SELECT sender_id FROM cl_message)")
        d.add(
            107,
            'Member {{sender}} has sent me a message that names a {{thing}}. Write to the seller of "{{title}}": "The '
            'number is NUMBER", with that number.',
            {"sender": mail["username"], "thing": thing, "title": ad["title"]}, login=True, level=(2, 0),
            carries=f"the {thing} in a message", looks=_sent(ad["username"], f"The number is {found[1]}"),
        )  # fmt: skip
    ad, text = d.pick("ad", AD), "Does it come with a manual?"
    d.add(
        108, 'Ask in public, below the ad with the reference {{reference}}: "{{text}}"',
        {"reference": ad["ref"], "text": text}, login=True,
        looks=[(f"/ad/{ad['id']}", text_of("#questions article:nth-last-of-type(1)"),
        {"must_include": ["mira.holt", text]})],
    )  # fmt: skip


def _own_ads(d: Drafts) -> None:
    code = d.one("SELECT value FROM meta WHERE key = 'market_code'")["value"]
    form = {
        "title": "Grey wall clock, runs well", "category": "Home", "price": "25", "condition": "Good",
        "town": "Dunmere",
        "handover": "Pickup only", "kind": "clock", "colour": "grey", "text": "It has hung in our kitchen for years.",
    }  # fmt: skip
    details = (
        'title "{{title}}", category {{category}}, price {{price}} dollars, condition {{condition}}, town {{town}}, '
        "handover {{handover}}, picture of a {{kind}}, colour {{colour}}"
    )
    facts = [form["category"], form["condition"], form["colour"], form["town"], form["handover"]]
    look: list[Look] = [
        ("/ad/341", text_of("h1"), {"exact_match": form["title"]}),
        ("/ad/341", text_of("#price"), {"exact_match": "$25"}),
        ("/ad/341", text_of("#ad-facts"), {"must_include": facts}),
        ("/ad/341", text_of("#text"), {"exact_match": form["text"]}),
    ]
    d.add(109, f'Place an ad: {details}, description "{{{{text}}}}"', form, login=True, level=(1, 0), looks=look)
    stall = form | {"title": "Sharing a stall at the market", "category": "Outdoors", "kind": "tent", "price": "5"}
    stall.pop("text")
    d.add(
        110,
        f'Place an ad: {details}. The description has to be "Stall code CODE", with the code for a free stall that '
        "the front page tells.",
        stall, login=True, level=(2, 0), carries="the stall code on the front page",
        looks=[("/ad/341", text_of("h1"), {"exact_match": stall["title"]}),
               ("/ad/341", text_of("#price"), {"exact_match": "$5"}),
               ("/ad/341", text_of("#text"), {"exact_match": f"Stall code {code}"})],
    )  # fmt: skip
    own = d.rows("SELECT * FROM cl_ad WHERE seller_id = 1 ORDER BY views")
    price = own[2]["price"] - 20
    d.add(
        111, 'Lower the price of my ad "{{title}}" by {{less}} dollars.', {"title": own[2]["title"], "less": "20"},
        login=True, level=(1, 0),
        looks=[(f"/ad/{own[2]['id']}", text_of("#price"), {"exact_match": f"${price:,}"}),
               (f"/ad/{own[2]['id']}", text_of("h1"), {"exact_match": own[2]["title"]})],
    )  # fmt: skip
    assert own[0]["views"] < own[1]["views"]
    d.add(
        112, "Delete the one of my ads that has the fewest views.", {}, login=True, level=(1, 0),
        looks=[("/mine", text_of("#mine"),
                {"must_include": [own[1]["title"], own[2]["title"]], "must_exclude": [own[0]["title"]]})],
    )  # fmt: skip
    most = d.rows("SELECT * FROM cl_ad WHERE category = 'Music' ORDER BY views DESC LIMIT 2")
    assert most[0]["views"] > most[1]["views"]
    d.add(
        113, "Save the most viewed ad of the category {{category}}.", {"category": "Music"}, login=True,
        looks=[("/saved", text_of("#saved"), {"must_include": [most[0]["title"]]}),
               ("/saved", count_of("#saved li"), {"exact_match": "1"})],
    )  # fmt: skip


def _drawn(d: Drafts, number: int) -> list[sqlite3.Row]:
    """Advertisements that share a picture: the only ones with it, no two at one price or of one kind elsewhere."""
    marks = ",".join("?" * len(DRAWN))
    found = d.pick(
        "picture",
        f"SELECT picture, kind, colour, COUNT(*) AS n, COUNT(DISTINCT price) AS prices, COUNT(DISTINCT town) AS "
        f"towns FROM cl_ad WHERE kind IN ({marks}) GROUP BY kind, colour HAVING COUNT(DISTINCT picture) = 1 AND n = ? "
        "AND prices = n AND towns = n AND MIN(seller_id) > 1", *DRAWN, number, key="picture",
    )  # fmt: skip
    return d.rows(f"{AD} AND picture = ? ORDER BY price", found["picture"])


def _pictures(d: Drafts) -> None:
    for _ in range(2):
        (ad,) = _drawn(d, 1)
        d.add(
            120, "Somebody sells the thing in the picture. What does it cost?", {}, images=[ad["picture"]],
            includes=[_dollars(ad["price"])], level=(0, 1),
        )  # fmt: skip
    for _ in range(2):
        ads = _drawn(d, 2)
        ad = d.dice.choice(ads)
        other = next(each for each in ads if each["id"] != ad["id"])
        d.add(
            121, "Save the ad from {{town}} that shows what the picture shows.", {"town": ad["town"]},
            images=[ad["picture"]], login=True, level=(1, 1),
            looks=[("/saved", text_of("#saved"), {"must_include": [ad["title"]], "must_exclude": [other["title"]]}),
                   ("/saved", count_of("#saved li"), {"exact_match": "1"})],
        )  # fmt: skip
    ads = _drawn(d, 2)
    text = "Is it still there?"
    d.add(
        122, 'Two ads show what the picture shows. Write to the seller of the cheaper one: "{{text}}"', {"text": text},
        images=[ads[0]["picture"]], login=True, level=(2, 1), looks=_sent(ads[0]["username"], text),
    )  # fmt: skip
