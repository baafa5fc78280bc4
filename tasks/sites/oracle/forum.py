"""How the forum's tasks are solved; by the number of the template."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from tasks.sites.oracle.hand import Hand, Lines, Read, Script, Step, Stuck, link

Values = dict[str, str]
BOX = "Search posts"
STATE = re.compile(r"^(-?\d+) votes, (\d+) comments, by$")


def _open(hand: Hand, title: str) -> Step:
    yield from hand.search(BOX, title)
    yield from hand.click("link", title)


def _board(hand: Hand, name: str) -> Step:
    yield from hand.click("link", "Millpond")
    yield from hand.click("link", name, after='heading "Boards"')


def _posts(hand: Hand, sort: str = "") -> Lines:
    """The list of posts, as lines from its first one on."""
    if sort:
        yield from hand.choose("Sort posts by", sort)
        yield from hand.click("button", "Sort")
    lines = yield from hand.read()
    return lines[next(nth for nth, line in enumerate(lines) if line.startswith("Posts 1-")) + 1 :]


def _title(lines: list[str]) -> tuple[str, int]:
    """The first post that is not pinned: its title and how many comments it has."""
    pinned = False
    for line, below in pairwise(lines):
        pinned = pinned or line == "Pinned"
        if link(line) and (state := STATE.match(below)):
            if not pinned:
                return link(line), int(state[2])
            pinned = False
    raise Stuck("no post in the list")


def _author(hand: Hand) -> Read:
    """Who wrote the post that is open."""
    return link((yield from hand.after("by", r"^(link .*)$")))


def _comment(hand: Hand, text: str) -> Script:
    yield from hand.fill("Your comment", text)
    yield from hand.click("button", "Publish comment")
    return "Done"


def _write(hand: Hand, subject: str, text: str) -> Script:
    """Message the author of the post that is open."""
    name = yield from _author(hand)
    yield from hand.click("link", name, after="by")
    yield from hand.click("link", "Send a message")
    yield from hand.fill("Subject", subject)
    yield from hand.fill("Message", text)
    yield from hand.click("button", "Send message")
    return "Done"


def _publish(hand: Hand, title: str, text: str) -> Script:
    """Write a post on the board that is open."""
    yield from hand.click("link", "Write a post on this board")
    yield from hand.fill("Title", title)
    yield from hand.fill("Text", text)
    yield from hand.click("button", "Publish post")
    return "Done"


def _open_picture(hand: Hand, board: str) -> Step:
    """Open the post of a board that has the task's picture."""
    yield from _board(hand, board)
    while True:
        lines = yield from _posts(hand) if f'heading "{board}"' in hand.seen["text"] else hand.read()
        title = ""
        for nth, line in enumerate(lines):
            if link(line) and nth + 1 < len(lines) and STATE.match(lines[nth + 1]):
                title = link(line)
            if line == f'image "{hand.captions[0]}"' and title:
                yield from hand.click("link", title)
                return
        yield from hand.click("link", "Next page")


def founded(hand: Hand, values: Values) -> Script:
    """When a board was founded."""
    yield from _board(hand, values["board"])
    return (yield from hand.match(r"^Founded \| (.*)$"))


def town(hand: Hand, values: Values) -> Script:
    """Where the author of a post lives."""
    yield from _open(hand, values["title"])
    name = yield from _author(hand)
    yield from hand.click("link", name, after="by")
    return (yield from hand.match(r"^Town \| (.*)$"))


def comments_of_top(hand: Hand, values: Values) -> Script:
    """Comments of the first post of a sorted board."""
    yield from _board(hand, values["board"])
    lines = yield from _posts(hand, "Most votes")
    return str(_title(lines)[1])


def members(hand: Hand, values: Values) -> Script:
    """Open all boards, remember the members of each."""
    found = {}
    for name in re.split(r", | or ", values["boards"]):
        yield from _board(hand, name)
        found[name] = int((yield from hand.match(r"^Members \| ([\d,]+)$")).replace(",", ""))
    return max(found, key=lambda name: found[name])


def top_comment(hand: Hand, values: Values) -> Script:
    """The author of the first comment of a sorted thread."""
    yield from hand.choose("Sort comments by", "Most votes")
    yield from hand.click("button", "Sort")
    button = yield from hand.match(r'^(button "Sort" \[e\d+\])$')
    return link((yield from hand.after(button, r"^(link .*)$")))


def post(hand: Hand, values: Values) -> Script:
    """Write a post."""
    yield from _board(hand, values["board"])
    return (yield from _publish(hand, values["title"], values["text"]))


def post_word(hand: Hand, values: Values) -> Script:
    """Read the pinned post, write a post that ends with its word."""
    yield from _board(hand, values["board"])
    yield from hand.click("link", f"Read this first: how {values['board']} works")
    word = yield from hand.match(r"board word ([A-Z]+-\d+)")
    yield from hand.do("back")
    return (yield from _publish(hand, values["title"], f"{values['text']} {word}"))


def comment(hand: Hand, values: Values) -> Script:
    """Comment on a post."""
    yield from _open(hand, values["title"])
    return (yield from _comment(hand, values["text"]))


def comment_keeper(hand: Hand, values: Values) -> Script:
    """Find who keeps a board, name them under a post elsewhere."""
    yield from _board(hand, values["board"])
    keeper = link((yield from hand.after("Keeper", r"^(link .*)$")))
    yield from _open(hand, values["title"])
    return (yield from _comment(hand, f"You should ask {keeper}"))


def vote_newest(hand: Hand, values: Values) -> Script:
    """Vote up the newest post of a board."""
    yield from _board(hand, values["board"])
    title, _ = _title((yield from _posts(hand, "Newest")))
    yield from hand.click("link", title)
    yield from hand.click("button", "Vote up this post")
    return "Done"


def join(hand: Hand, values: Values) -> Script:
    """The pinned post of a board repeats its rule: find it, join its board."""
    yield from hand.search(BOX, values["rule"])
    for line in (yield from hand.read()):
        if found := re.match(r"Read this first: how (.*) works$", link(line)):
            yield from _board(hand, found[1])
            yield from hand.click("button", "Join this board")
            return found[1]
    raise Stuck(f"no board has the rule {values['rule']!r}")


def retitle(hand: Hand, values: Values) -> Script:
    """Change the title of an own post."""
    yield from hand.click("link", "Profile")
    yield from hand.click("link", values["title"])
    yield from hand.click("link", "Edit this post")
    yield from hand.fill("Title", values["new"])
    yield from hand.click("button", "Save changes")
    return "Done"


def message_votes(hand: Hand, values: Values) -> Script:
    """Read the votes of a post, write them to the author of another."""
    yield from hand.search(BOX, values["a"])
    lines = yield from _posts(hand)
    state = next(STATE.match(below) for line, below in pairwise(lines) if link(line) == values["a"])
    if state is None:
        raise Stuck(f"{values['a']!r} has no votes")
    yield from _open(hand, values["b"])
    return (yield from _write(hand, "Votes", f"It has {state[1]} votes"))


def message_key(hand: Hand, values: Values) -> Script:
    """Read a message, write its number to the author of a post."""
    yield from hand.click("link", "Messages")
    yield from hand.click("link", "The key to the boat shed")
    number = yield from hand.match(r"board number (\d+)")
    yield from _open(hand, values["title"])
    return (yield from _write(hand, "Key", f"Look behind board number {number}"))


def picture_author(hand: Hand, values: Values) -> Script:
    """Who posted a picture."""
    yield from _open_picture(hand, values["board"])
    return (yield from _author(hand))


def picture_vote(hand: Hand, values: Values) -> Script:
    """Vote up the post with a picture."""
    yield from _open_picture(hand, values["board"])
    yield from hand.click("button", "Vote up this post")
    return "Done"


def picture_comment(hand: Hand, values: Values) -> Script:
    """Comment on the post with a picture."""
    yield from _open_picture(hand, values["board"])
    return (yield from _comment(hand, values["text"]))


def impossible(hand: Hand, values: Values) -> Script:
    """A profile does not tell a birthday."""
    if any("born" in line.lower() for line in (yield from hand.read())):
        raise Stuck("the year is told")
    return "N/A"


SCRIPTS: dict[int, Callable[[Hand, Values], Script]] = {
    301: founded,
    302: town,
    303: comments_of_top,
    304: members,
    305: top_comment,
    306: post,
    307: post_word,
    308: comment,
    309: comment_keeper,
    310: vote_newest,
    311: join,
    312: retitle,
    313: message_votes,
    314: message_key,
    320: picture_author,
    321: picture_vote,
    322: picture_comment,
    350: impossible,
}
