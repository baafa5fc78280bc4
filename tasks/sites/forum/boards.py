"""The front page, a board, search, and a member's page."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tasks.sites.member import my_id, user
from tasks.sites.web import Table, Visit, pager

SORTS = {
    "newest": ("Newest", "p.posted DESC, p.id"),
    "oldest": ("Oldest", "p.posted, p.id"),
    "top": ("Most votes", "p.score DESC, p.id"),
    "comments": ("Most comments", "comments DESC, p.id"),
}
SIZE = 24
SELECT = (
    "SELECT p.*, b.slug, b.name AS board, u.username, "
    "(SELECT COUNT(*) FROM fo_comment c WHERE c.post_id = p.id) AS comments "
    "FROM fo_post p JOIN fo_board b ON b.id = p.board_id JOIN fo_user u ON u.id = p.author_id "
)


def _listing(visit: Visit, where: str, values: list[Any], default: str = "newest") -> dict[str, Any]:
    total = visit.count(f"SELECT COUNT(*) FROM fo_post p JOIN fo_user u ON u.id = p.author_id WHERE {where}", *values)
    sort = visit.query("sort") if visit.query("sort") in SORTS else default
    part = pager(visit, total, SIZE)
    posts = visit.rows(
        f"{SELECT} WHERE {where} ORDER BY p.pinned DESC, {SORTS[sort][1]} LIMIT ? OFFSET ?",
        *values, part.size, part.offset,
    )  # fmt: skip
    return {"posts": posts, "part": part, "sort": sort, "sorts": SORTS}


def home(visit: Visit) -> Response:
    """The boards and what is new in all of them."""
    counts = {row["board_id"]: row["n"] for row in
              visit.rows("SELECT board_id, COUNT(*) AS n FROM fo_post GROUP BY board_id")}  # fmt: skip
    return visit.page("forum/home.html", counts=counts, **_listing(visit, "p.pinned = 0", []))


def board(visit: Visit) -> Response:
    """One board: its rule, its keeper, its posts."""
    found = visit.row(
        "SELECT b.*, u.username AS keeper FROM fo_board b JOIN fo_user u ON u.id = b.keeper_id WHERE slug = ?",
        visit.request.path_params["slug"],
    )
    if found is None:
        return visit.missing("board")
    joined = visit.row("SELECT 1 FROM fo_member WHERE user_id = ? AND board_id = ?", my_id(visit), found["id"])
    newcomers = visit.count("SELECT COUNT(*) FROM fo_member WHERE board_id = ?", found["id"])
    shown = _listing(visit, "p.board_id = ?", [found["id"]])
    return visit.page("forum/board.html", board=found, joined=joined, members=found["members"] + newcomers, **shown)


def search(visit: Visit) -> Response:
    """Posts whose title, text or author holds every word."""
    q, where, values = visit.query("q"), "1 = 1", []
    for word in q.split()[:8]:
        where += " AND instr(lower(p.title || ' ' || p.body || ' ' || u.username), ?)"
        values.append(word.lower())
    return visit.page("forum/search.html", q=q, **_listing(visit, where, values))


def member(visit: Visit) -> Response:
    """A member: what they say about themselves, their posts and last comments."""
    found = user(visit, visit.request.path_params["username"])
    if found is None:
        return visit.missing("member")
    posts = visit.rows(SELECT + "WHERE p.author_id = ? ORDER BY p.posted DESC, p.id", found["id"])
    comments = visit.rows(
        "SELECT c.*, p.title FROM fo_comment c JOIN fo_post p ON p.id = c.post_id WHERE c.author_id = ? "
        "ORDER BY c.posted DESC, c.id LIMIT 15",
        found["id"],
    )
    total = visit.count("SELECT COUNT(*) FROM fo_comment WHERE author_id = ?", found["id"])
    return visit.page("forum/member.html", user=found, posts=posts, comments=comments, total=total)


TABLE: Table = {
    "/": (home, None),
    "/b/{slug}": (board, None),
    "/search": (search, None),
    "/u/{username}": (member, None),
}
