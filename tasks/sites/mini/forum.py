"""The forum's 25 tasks."""

from __future__ import annotations

import re
import sqlite3
from datetime import datetime

from tasks.sites.clock import day
from tasks.sites.mini.draft import Drafts, Look, text_of

POST = (
    "SELECT p.*, b.slug, b.name AS board, u.username, (SELECT COUNT(*) FROM fo_comment c WHERE c.post_id = p.id) AS n "
    "FROM fo_post p JOIN fo_board b ON b.id = p.board_id JOIN fo_user u ON u.id = p.author_id "
    "WHERE p.pinned = 0 AND p.author_id > 1"
)
SEARCHABLE = POST + " AND p.title NOT LIKE '%,%' AND p.title NOT LIKE '%:%'"
BOARD = "SELECT b.*, u.username AS keeper FROM fo_board b JOIN fo_user u ON u.id = b.keeper_id WHERE 1 = 1"


def _day(moment: str) -> str:
    """A day as the site writes it, and as others do."""
    when = datetime.fromisoformat(moment)
    return " |OR| ".join((day(moment), f"{when:%-d %B %Y}", f"{when:%B %-d, %Y}", f"{when:%Y-%m-%d}"))


def _commented(post: int, *texts: str) -> list[Look]:
    look = (f"/post/{post}?sort=newest", text_of("#comments article"), {"must_include": ["mira.holt", *texts]})
    return [look]


def _posted(board: str, title: str, *texts: str) -> list[Look]:
    """Looks at the next post."""
    return [
        ("/post/301", text_of("h1"), {"exact_match": title}),
        ("/post/301", text_of("nav.crumbs"), {"must_include": [board]}),
        ("/post/301", text_of("#text"), {"must_include": list(texts)}),
    ]


def _voted(post: int) -> list[Look]:
    pressed = "document.querySelector('.post .vote[value=up]').getAttribute('aria-pressed')"
    return [(f"/post/{post}", pressed, {"exact_match": "true"})]


def drafts(db: sqlite3.Connection) -> Drafts:
    """All of them."""
    d = Drafts("forum", 301, db)
    _questions(d)
    _writing(d)
    _messages(d)
    _pictures(d)
    user = d.pick("user", "SELECT * FROM fo_user WHERE id > 1")
    d.add(
        350, "In which year was the member {{user}} born?", {"user": user["username"]}, level=(1, 0),
        start=f"/u/{user['username']}", impossible="Profiles tell since when somebody is a member, but no birthday.",
    )  # fmt: skip
    return d


def _questions(d: Drafts) -> None:
    board = d.pick("board", BOARD)
    d.add(
        301,
        "On which day was the board {{board}} founded?",
        {"board": board["name"]},
        includes=[_day(board["founded"])],
    )
    post = d.pick("post", SEARCHABLE + " AND u.town != 'Alder Bay'")
    town = d.one("SELECT town FROM fo_user WHERE id = ?", post["author_id"])["town"]
    d.add(
        302, 'In which town does the author of the post "{{title}}" live?', {"title": post["title"]}, includes=[town],
        level=(1, 0),
    )  # fmt: skip
    board = d.pick("board", BOARD)
    top = d.rows(f"{POST} AND b.id = ? ORDER BY score DESC LIMIT 2", board["id"])
    d.add(
        303, "How many comments does the post with the most votes on the board {{board}} have? Answer with the number.",
        {"board": board["name"]}, includes=[str(top[0]["n"])],
    )  # fmt: skip
    for number in (2, 3):
        boards = [d.pick("member boards", BOARD) for _ in range(number)]
        ranked = sorted(boards, key=lambda board: -board["members"])
        names = ", ".join(board["name"] for board in boards[:-1]) + " or " + boards[-1]["name"]
        d.add(
            304, "Which of these boards has the most members: {{boards}}? Answer with its name only.",
            {"boards": names},
            includes=[ranked[0]["name"]], excludes=[board["name"] for board in ranked[1:]], level=(2, 0),
            carries="the members of each board",
        )  # fmt: skip
    post = d.pick("post", POST + " AND n > 100")
    first, second = d.rows(
        "SELECT c.*, u.username FROM fo_comment c JOIN fo_user u ON u.id = c.author_id WHERE post_id = ? AND "
        "parent_id IS NULL ORDER BY score DESC LIMIT 2", post["id"],
    )  # fmt: skip
    assert first["score"] > second["score"]
    d.add(
        305,
        "You are looking at a long thread. Who wrote the comment with the most votes among those that answer the post "
        "itself? Answer with the user name.",
        {}, start=f"/post/{post['id']}", includes=[first["username"]], level=(2, 1),
    )  # fmt: skip


def _writing(d: Drafts) -> None:
    board = d.pick("board", BOARD)
    title, text = "A bench by the water", "Who would help to build one on a weekend in June?"
    d.add(
        306, 'Write a post on the board {{board}} with the title "{{title}}" and the text "{{text}}"',
        {"board": board["name"], "title": title, "text": text}, login=True,
        looks=_posted(board["name"], title, text),
    )  # fmt: skip
    for title, text in (
        ("Hello from Alder Bay", "I have been reading along for a year."),
        ("A question before the summer", "What should a beginner buy first?"),
        ("Notes from a wet week", "It rained on six days out of seven."),
    ):
        board = d.pick("word boards", BOARD)
        word = d.one("SELECT value FROM meta WHERE key = ?", f"board_word_{board['id']}")["value"]
        d.add(
            307,
            'Write a post on the board {{board}} with the title "{{title}}". Its text is "{{text}}", followed by the '
            "board word that the pinned post of that board asks for.",
            {"board": board["name"], "title": title, "text": text}, login=True, level=(2, 0),
            carries="the board word in the pinned post", looks=_posted(board["name"], title, text, word),
        )  # fmt: skip
    post, text = d.pick("post", SEARCHABLE), "This helped me a lot, thank you."
    d.add(
        308, 'Comment on the post "{{title}}": "{{text}}"', {"title": post["title"], "text": text}, login=True,
        looks=_commented(post["id"], text),
    )  # fmt: skip
    for _ in range(2):
        post, board = d.pick("post", SEARCHABLE), d.pick("keeper boards", BOARD)
        d.add(
            309,
            'Find out who keeps the board {{board}}. Then comment on the post "{{title}}": "You should ask NAME", with '
            "the user name of the keeper.",
            {"board": board["name"], "title": post["title"]}, login=True, level=(2, 0),
            carries="the keeper's user name",
            looks=_commented(post["id"], f"You should ask {board['keeper']}"),
        )  # fmt: skip
    board = d.pick("vote boards", BOARD)
    newest = d.rows(f"{POST} AND b.id = ? ORDER BY posted DESC LIMIT 2", board["id"])
    latest = d.one("SELECT MAX(posted) AS t FROM fo_post WHERE board_id = ?", board["id"])["t"]
    assert newest[0]["posted"] == latest > newest[1]["posted"]
    d.add(
        310, "Vote up the newest post on the board {{board}}.", {"board": board["name"]}, login=True,
        looks=_voted(newest[0]["id"]),
    )  # fmt: skip
    board = d.pick("joined boards", BOARD + " AND b.id NOT IN (SELECT board_id FROM fo_member WHERE user_id = 1)")
    d.add(
        311, "Join the board whose rule is: {{rule}}", {"rule": board["rule"]}, login=True, level=(1, 0),
        looks=[("/boards/mine", text_of("#joined"), {"must_include": [board["name"]]})],
    )  # fmt: skip
    own = d.rows("SELECT * FROM fo_post WHERE author_id = 1 ORDER BY id")[0]
    d.add(
        312, 'Change the title of my post "{{title}}" to "{{new}}". Leave its text as it is.',
        {"title": own["title"], "new": "From hut to hut with my aunt"}, login=True, level=(1, 0),
        looks=[(f"/post/{own['id']}", text_of("h1"), {"exact_match": "From hut to hut with my aunt"}),
               (f"/post/{own['id']}", text_of("#text p"), {"exact_match": own["body"].splitlines()[0]})],
    )  # fmt: skip


def _messages(d: Drafts) -> None:
    for _ in range(2):
        first, second = d.pick("post", SEARCHABLE), d.pick("post", SEARCHABLE)
        d.add(
            313, 'How many votes does the post "{{a}}" have? Write to the author of the post "{{b}}", with the subject '
            '"Votes" and the text "It has NUMBER votes".',
            {"a": first["title"], "b": second["title"]}, login=True, level=(2, 0),
            carries="the votes of the first post",
            looks=[("/sent", text_of("#mail tbody tr"),
                    {"must_include": [second["username"], f"It has {first['score']} votes"]})],
        )  # fmt: skip
    mail = d.one("SELECT m.*, u.username FROM fo_message m JOIN fo_user u ON u.id = m.sender_id WHERE m.id = 1")
    found = re.search(r"board number (\d+)", mail["body"])
    assert found is not None
    post = d.pick("post", SEARCHABLE)
    d.add(
        314,
        "{{sender}} has sent me a message about a key. Write to the author of the post \"{{title}}\", with the subject "
        '"Key" and the text "Look behind board number NUMBER", with the number in the message.',
        {"sender": mail["username"], "title": post["title"]}, login=True, level=(2, 0),
        carries="the number in a message",
        looks=[("/sent", text_of("#mail tbody tr"),
                {"must_include": [post["username"], f"Look behind board number {found[1]}"]})],
    )  # fmt: skip


def _shown(d: Drafts) -> sqlite3.Row:
    """A post whose picture no other post on its board shows."""
    row = d.pick("picture", f"SELECT * FROM ({POST} AND picture != '') GROUP BY board_id, picture HAVING COUNT(*) = 1",
                 key="picture")  # fmt: skip
    also = d.rows("SELECT id FROM fo_post WHERE board_id = ? AND picture = ?", row["board_id"], row["picture"])
    return row if len(also) == 1 else _shown(d)


def _pictures(d: Drafts) -> None:
    for _ in range(2):
        post = _shown(d)
        d.add(
            320,
            "One post on the board {{board}} has the same picture as this task. Who wrote it? Answer with the user "
            "name.",
            {"board": post["board"]}, images=[post["picture"]], includes=[post["username"]], level=(0, 1),
        )  # fmt: skip
    for _ in range(2):
        post = _shown(d)
        d.add(
            321, "Vote up the post on the board {{board}} that has the same picture as this task.",
            {"board": post["board"]}, images=[post["picture"]], login=True, level=(1, 1), looks=_voted(post["id"]),
        )  # fmt: skip
    post, text = _shown(d), "Where was this picture taken?"
    d.add(
        322, 'Comment on the post on the board {{board}} that has the same picture as this task: "{{text}}"',
        {"board": post["board"], "text": text}, images=[post["picture"]], login=True, level=(1, 2),
        looks=_commented(post["id"], text),
    )  # fmt: skip
