"""How the classifieds' tasks are solved; by the number of the template."""

from __future__ import annotations

import re
from collections.abc import Callable

from tasks.sites.oracle.hand import Hand, Lines, Read, Script, Step, Stuck, link

Values = dict[str, str]
BOX = "Search advertisements"


def _open(hand: Hand, title: str) -> Step:
    yield from hand.search(BOX, title.replace(",", " "))
    yield from hand.click("link", title)


def _list(hand: Hand, category: str, sort: str, town: str = "") -> Lines:
    """The advertisements of a category, filtered and sorted, as lines."""
    yield from hand.click("link", category)
    yield from hand.choose("Sort by", sort)
    if town:
        yield from hand.choose("Town", town)
    yield from hand.click("button", "Apply filters")
    lines = yield from hand.read()
    return lines[next(nth for nth, line in enumerate(lines) if line.startswith("Advertisements 1-")) :]


def _first(lines: list[str]) -> str:
    return next(link(line) for line in lines if link(line))


def _send(hand: Hand, text: str) -> Script:
    """Message the seller of the advertisement that is open."""
    yield from hand.click("link", "Message the seller")
    yield from hand.fill("Message", text)
    yield from hand.click("button", "Send message")
    return "Done"


def _shown(hand: Hand, caption: str) -> Lines:
    """The advertisements with the picture of that description: their lines, links first."""
    words = caption.lower().split()
    yield from hand.search(BOX, words[1])
    yield from hand.choose("Ads on a page", "48")
    yield from hand.choose("Colour", words[1])
    yield from hand.choose("Sort by", "Price: low to high")
    yield from hand.click("button", "Apply filters")
    lines = yield from hand.read()
    return [line for nth, line in enumerate(lines) if f'image "{caption}"' in lines[max(0, nth - 3) : nth]]


def phone(hand: Hand, values: Values) -> Script:
    """The seller's telephone number."""
    yield from _open(hand, values["title"])
    return (yield from hand.match(r"^Telephone \| (.*)$"))


def cheapest(hand: Hand, values: Values) -> Script:
    """The reference of the first of a sorted list."""
    lines = yield from _list(hand, values["category"], "Price: low to high", values["town"])
    yield from hand.click("link", _first(lines))
    return (yield from hand.match(r"^Reference \| (.*)$"))


def lowest(hand: Hand, values: Values) -> Script:
    """What the seller would accept."""
    yield from _open(hand, values["title"])
    return (yield from hand.match(r"The lowest I can do is (\$\d+)"))


def _seller(hand: Hand, title: str) -> Read:
    yield from _open(hand, title)
    return link((yield from hand.after('heading "Seller"', r"^(link .*)$")))


def faster(hand: Hand, values: Values) -> Script:
    """Open both advertisements, compare how fast the sellers answer."""
    hours = {}
    for key in "ab":
        name = yield from _seller(hand, values[key])
        hours[name] = int((yield from hand.match(r"^Answers within \| (\d+) hour")))
    return min(hours, key=lambda name: hours[name])


def message(hand: Hand, values: Values) -> Script:
    """Write to a seller."""
    yield from _open(hand, values["title"])
    return (yield from _send(hand, values["text"]))


def message_reference(hand: Hand, values: Values) -> Script:
    """Remember the reference of the first page, write it to another seller."""
    reference = yield from hand.match(r"^Reference \| (.*)$")
    lines = yield from _list(hand, values["category"], "Price: low to high", values["town"])
    yield from hand.click("link", _first(lines))
    return (yield from _send(hand, f"I also asked about {reference}"))


def message_number(hand: Hand, values: Values) -> Script:
    """Find a number in a message received, write it to a seller."""
    pattern = {"gate code": r"gate code is (\d+)", "platform number": r"platform (\d+)"}[values["thing"]]
    yield from hand.click("link", "Messages")
    subject = ""
    for line in (yield from hand.read()):
        if link(line):
            subject = link(line)
        elif line == values["sender"]:
            break
    # Two messages may have one subject: the sender's is the one just above the name.
    lines = yield from hand.read()
    before = lines[: lines.index(values["sender"])]
    nth = sum(link(line) == subject for line in before) - 1
    target = yield from _nth(hand, subject, nth)
    yield from hand.do("click", id=target)
    number = yield from hand.match(pattern)
    yield from _open(hand, values["title"])
    return (yield from _send(hand, f"The number is {number}"))


def _nth(hand: Hand, name: str, nth: int) -> Read:
    """The id of the link of that name that has ``nth`` others of it above."""
    found = [line for line in (yield from hand.read()) if link(line) == name]
    match = re.search(r"\[(e\d+)\]", found[nth])
    if match is None:
        raise Stuck(f"link {name!r} is not there {nth + 1} times")
    return match[1]


def ask(hand: Hand, values: Values) -> Script:
    """Find an advertisement by its reference, ask below it."""
    yield from hand.search(BOX, values["reference"])
    lines = yield from hand.read()
    start = next(nth for nth, line in enumerate(lines) if line.startswith("Advertisements 1-"))
    yield from hand.click("link", _first(lines[start:]))
    yield from hand.fill("Your question or answer", values["text"])
    yield from hand.click("button", "Publish")
    return "Done"


def _place(hand: Hand, values: Values, text: str) -> Script:
    yield from hand.click("link", "Place an ad")
    yield from hand.fill("Title", values["title"])
    yield from hand.fill("Price in $", values["price"])
    for field, key in (("Category", "category"), ("Condition", "condition"), ("Town", "town"), ("Handover", "handover"),
                       ("Picture of a", "kind"), ("Colour", "colour")):  # fmt: skip
        yield from hand.choose(field, values[key])
    yield from hand.fill("Description", text)
    yield from hand.click("button", "Publish advertisement")
    return "Done"


def place(hand: Hand, values: Values) -> Script:
    """Place an advertisement."""
    return (yield from _place(hand, values, values["text"]))


def place_code(hand: Hand, values: Values) -> Script:
    """Remember the stall code, place an advertisement with it."""
    code = yield from hand.match(r"free stall is ([A-Z]+-\d+)")
    return (yield from _place(hand, values, f"Stall code {code}"))


def lower(hand: Hand, values: Values) -> Script:
    """Change the price of an own advertisement."""
    yield from hand.click("link", "My ads")
    yield from hand.click("link", values["title"])
    price = int((yield from hand.match(r"^\$([\d,]+)$")).replace(",", ""))
    yield from hand.click("link", "Edit this ad")
    yield from hand.fill("Price in $", str(price - int(values["less"])))
    yield from hand.click("button", "Save changes")
    return "Done"


def delete(hand: Hand, values: Values) -> Script:
    """Compare the views of the own advertisements, delete the least viewed."""
    yield from hand.click("link", "My ads")
    lines = yield from hand.read()
    views = {link(line): int(lines[nth + 3]) for nth, line in enumerate(lines)
             if link(line) and nth + 3 < len(lines) and lines[nth + 1].startswith("$")}  # fmt: skip
    yield from hand.click("link", min(views, key=lambda title: views[title]))
    yield from hand.click("button", "Delete this ad")
    return "Done"


def save(hand: Hand, values: Values) -> Script:
    """Save the most viewed advertisement of a category."""
    lines = yield from _list(hand, values["category"], "Most viewed")
    yield from hand.click("link", _first(lines))
    yield from hand.click("button", "Save this ad")
    return "Done"


def picture_price(hand: Hand, values: Values) -> Script:
    """What the thing in the picture costs."""
    lines = yield from _shown(hand, hand.captions[0])
    return next(line for line in lines if line.startswith("$"))


def picture_save(hand: Hand, values: Values) -> Script:
    """Save the advertisement of a town that shows the thing in the picture."""
    lines = yield from _shown(hand, hand.captions[0])
    nth = next(nth for nth, line in enumerate(lines) if f", {values['town']}, " in line)
    yield from hand.click("link", next(link(line) for line in reversed(lines[:nth]) if link(line)))
    yield from hand.click("button", "Save this ad")
    return "Done"


def picture_message(hand: Hand, values: Values) -> Script:
    """Write to the seller of the cheaper one: the list is sorted by price."""
    lines = yield from _shown(hand, hand.captions[0])
    yield from hand.click("link", _first(lines))
    return (yield from _send(hand, values["text"]))


def impossible(hand: Hand, values: Values) -> Script:
    """Look for what the site does not have."""
    if "thing" in values:
        yield from hand.search(BOX, values["thing"])
        yield from hand.match(r"^(No advertisements match)")
        return "N/A"
    yield from _open(hand, values["title"])
    if any(line.startswith("Street") for line in (yield from hand.read())):
        raise Stuck("the street is told")
    return "N/A"


SCRIPTS: dict[int, Callable[[Hand, Values], Script]] = {
    101: phone,
    102: cheapest,
    103: lowest,
    104: faster,
    105: message,
    106: message_reference,
    107: message_number,
    108: ask,
    109: place,
    110: place_code,
    111: lower,
    112: delete,
    113: save,
    120: picture_price,
    121: picture_save,
    122: picture_message,
    150: impossible,
}
