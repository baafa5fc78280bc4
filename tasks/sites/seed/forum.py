"""Posts, comments and members of the forum."""

from __future__ import annotations

import random
import sqlite3

from tasks.sites.clock import before
from tasks.sites.seed import words
from tasks.sites.seed.topics import TOPICS, Topic

POSTS = 288
USERS = 90
ACCOUNT = "mira.holt"
_TITLES = (
    "How do you keep {subject} from ending in {trouble}?", "{number} years of {subject}: what I would do differently",
    "{subject} and {trouble}: a question from {town}", "My first try at {subject}", "{subject}: worth the trouble?",
    "What {person} taught me about {subject}", "{trouble}, again", "Looking for company: {subject} in {town}",
    "A short guide to {subject}", "{subject}: the {month} thread", "Unpopular opinion about {subject}",
)  # fmt: skip
_OPEN = (
    "I have been at this since {month} and still meet {trouble} every week.",
    "After {number} years in {town} I thought I knew everything about {subject}.",
    "{person_} started with {subject} in {month}, and now I cannot stop either.",
    "This came up at our table in {town}, and nobody agreed.", "Short version: {subject}, {trouble}, help.",
)  # fmt: skip
_MIDDLE = (
    "So far the best advice was to {tip}.", "I wrote down what worked: {tip}.",
    "The manual says {tip}; I do not believe it.",
    "Last {month} I tried something else: {tip}. It helped.", "My rule is simple: {tip}.",
)  # fmt: skip
_CLOSE = (
    "What do you do?", "I am curious how others handle it.", "Tell me where I am wrong.",
    "Pictures follow when it rains less.",
    "Answers from {town} especially welcome.", "I will report back in {month}.",
)  # fmt: skip
_COMMENTS = (
    "Same here in {town}. What helped in the end: {tip}.", "I tried that for {number} weeks and gave up.",
    "{person_} swears by this: {tip}.", "Not my experience at all. With {subject} you need time, not tricks.",
    "Thank you, I will try it in {month}.", "Careful: {trouble} can also come from the weather.",
    "We do it differently: {tip}, and nothing else.", "Could you post a picture?", "This thread saved my weekend.",
    "The library in {town} has a good book about {subject}.", "Nine out of ten times it is {trouble}, yes.",
    "I would rather {tip}.", "Did you ask at the shop in {town}? They knew at once.",
)  # fmt: skip
_REPLIES = (
    "Agreed, and {tip}.", "Are you sure? Here it was the other way round.", "That is what I did: {tip}.",
    "Good point. In {town} nobody told me.", "Only if you have {number} hours to spare.", "Thanks!",
    "Which month was that?",
)  # fmt: skip
_ABOUT = (
    "Lives in {town}, reads more than writes.", "Here for {subject}.", "{number} years of {subject} and no regrets.",
    "Teacher in {town}. Ask me about {subject}.", "New in {town}.", "Keeps notes on {subject} since {month}.",
)  # fmt: skip


def _slots(dice: random.Random, topic: Topic) -> dict[str, str]:
    tip = dice.choice(topic.tips).format(
        n=dice.randrange(6, 36), few=dice.randrange(2, 10), pct=dice.randrange(14, 89),
        temp=dice.randrange(15, 26) * 10,
        month=dice.choice(words.MONTHS), town=dice.choice(words.TOWNS),
    )  # fmt: skip
    person = dice.choice(words.PEOPLE)
    return {
        "subject": dice.choice(topic.subjects), "trouble": dice.choice(topic.troubles), "tip": tip,
        "number": dice.choice(words.NUMBERS), "town": dice.choice(words.TOWNS), "month": dice.choice(words.MONTHS),
        "person": person, "person_": words.start(person),
    }  # fmt: skip


def _say(dice: random.Random, topic: Topic, pool: tuple[str, ...], subject: str = "") -> str:
    slots = _slots(dice, topic)
    if subject:
        slots["subject"] = subject
    return words.start(dice.choice(pool).format(**slots))


def fill(db: sqlite3.Connection, seed: int) -> None:
    """Write the forum's tables."""
    dice = random.Random(f"forum-{seed}")
    people = [(ACCOUNT, "Mira Holt"), *words.people(dice, USERS - 1)]
    for number, (username, name) in enumerate(people, 1):
        town = "Alder Bay" if number == 1 else dice.choice(words.TOWNS)
        about = _say(dice, dice.choice(TOPICS), _ABOUT)
        row = (number, username, name, town, before(dice.randrange(60, 2900)), about)
        db.execute("INSERT INTO fo_user VALUES (?,?,?,?,?,?)", row)
    keepers = dice.sample(range(2, USERS + 1), len(TOPICS))
    members = dice.sample(range(120, 4800), len(TOPICS))
    for number, topic in enumerate(TOPICS, 1):
        founded = before(dice.randrange(900, 3400))
        facts = (topic.name, topic.about, founded, keepers[number - 1], topic.rule, members[number - 1])
        db.execute("INSERT INTO fo_board VALUES (?,?,?,?,?,?,?,?)", (number, topic.slug, *facts))
    titles: set[str] = set()
    scores = dice.sample(range(1, 1400), POSTS)
    comment = 0
    for post in range(1, POSTS + 1):
        board = (post - 1) % len(TOPICS) + 1
        topic = TOPICS[board - 1]
        title = ""
        while not title or title in titles:
            subject = dice.choice(topic.subjects)
            title = _say(dice, topic, _TITLES, subject)
        titles.add(title)
        body = "\n".join(
            _say(dice, topic, pool, subject) for pool in (_OPEN, _MIDDLE, _MIDDLE, _CLOSE)[: dice.choice((3, 4, 4))]
        )
        picture = f"scene-{topic.scene}-{dice.choice(('day', 'sunset', 'night'))}-{dice.randrange(1, 6)}"
        days = dice.randrange(1, 420)
        db.execute(
            "INSERT INTO fo_post VALUES (?,?,?,?,?,?,?,?,?)",
            (
                post, board, dice.randrange(2, USERS + 1), title, body, picture if dice.random() < 0.45 else "",
                before(days, dice.randrange(1200)), scores[post - 1], 0,
            ),
        )  # fmt: skip
        comment = _thread(db, dice, topic, post, days, comment)
    _pinned(db, dice)
    _mail(db, dice)


def _thread(db: sqlite3.Connection, dice: random.Random, topic: Topic, post: int, days: int, comment: int) -> int:
    """Comments under a post, some of them answers to others; the last comment's number."""
    count = dice.choice((2, 4, 5, 6, 8, 9, 12)) if post % 23 else dice.randrange(110, 150)
    here: list[tuple[int, int]] = []  # (comment, depth)
    scores = dice.sample(range(-9, 260), count)
    for nth in range(count):
        comment += 1
        parent, depth = dice.choice(here) if here and dice.random() < 0.45 else (None, -1)
        if depth >= 3:
            parent, depth = None, -1
        here.append((comment, depth + 1))
        text = _say(dice, topic, _COMMENTS if parent is None else _REPLIES)
        if parent is None and dice.random() < 0.5:
            text += " " + _say(dice, topic, _COMMENTS)
        when = before(max(0, days - 1 - nth * days // (count * 2)), (count - nth) * 7 % 600)
        author = dice.randrange(2, USERS + 1)
        row = (comment, post, parent, author, when, text, scores[nth])
        db.execute("INSERT INTO fo_comment VALUES (?,?,?,?,?,?,?)", row)
    return comment


def _pinned(db: sqlite3.Connection, dice: random.Random) -> None:
    """One pinned post a board with a word that the board asks for, and the documented member's own things."""
    for board in range(1, len(TOPICS) + 1):
        code = words.code(dice)
        db.execute("INSERT INTO meta VALUES (?, ?)", (f"board_word_{board}", code))
        topic, post = TOPICS[board - 1], POSTS + board
        body = (
            f"Welcome to {topic.name}. {topic.rule}\nNew here? Put the board word {code} at the end of your first "
            f"post, so that we see that you have read this.\nThe monthly meeting is on day {dice.randrange(4, 28)} in "
            f"{dice.choice(words.TOWNS)}; questions go to the keeper of the board."
        )
        keeper = db.execute("SELECT keeper_id FROM fo_board WHERE id = ?", (board,)).fetchone()["keeper_id"]
        title = f"Read this first: how {topic.name} works"
        row = (post, board, keeper, title, body, "", before(dice.randrange(430, 800)), dice.randrange(20, 90), 1)
        db.execute("INSERT INTO fo_post VALUES (?,?,?,?,?,?,?,?,?)", row)
    db.executemany("INSERT INTO fo_member VALUES (1, ?)", [(board,) for board in sorted(dice.sample(range(1, 13), 3))])
    db.executemany(
        "UPDATE fo_post SET author_id = 1 WHERE id = ?", [(post,) for post in dice.sample(range(1, POSTS), 2)]
    )


def _mail(db: sqlite3.Connection, dice: random.Random) -> None:
    texts = (
        ("The key to the boat shed", "It hangs behind board number {n}. Please put it back before {month}."),
        ("Reading group", "We chose the book: chapter {few} first, and we meet in room {n} of the library."),
        ("Your sourdough question", "Try {temp} grams of flour to {n} grams of starter. It worked for me."),
        ("Saturday's walk", "We start at platform {few} in {town}. Bring a lunch."),
    )  # fmt: skip
    for number, (subject, text) in enumerate(texts, 1):
        body = text.format(
            n=dice.randrange(12, 90), few=dice.randrange(2, 10), temp=dice.randrange(20, 60) * 10,
            month=dice.choice(words.MONTHS), town=dice.choice(words.TOWNS),
        )  # fmt: skip
        row = (number, dice.randrange(2, USERS + 1), 1, subject, body, before(20 - number * 3))
        db.execute("INSERT INTO fo_message VALUES (?,?,?,?,?,?)", row)
