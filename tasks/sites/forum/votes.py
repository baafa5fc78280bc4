"""Votes on posts and comments, and membership of boards."""

from __future__ import annotations

from starlette.responses import Response

from tasks.sites.member import my_id
from tasks.sites.web import Table, Visit, members_only

TABLES = {"post": "fo_post", "comment": "fo_comment"}


def vote(visit: Visit) -> Response:
    """Count a vote once; the same vote again takes it back, the other one replaces it."""
    target, number = visit.request.path_params["target"], visit.request.path_params["id"]
    if target not in TABLES:
        return visit.missing("vote")
    found = visit.row(f"SELECT * FROM {TABLES[target]} WHERE id = ?", number)
    if found is None:
        return visit.missing(target)
    value = 1 if visit.form.get("value") == "up" else -1
    key = (my_id(visit), target, number)
    old = visit.row("SELECT value FROM fo_vote WHERE user_id = ? AND target = ? AND target_id = ?", *key)
    before = int(old["value"]) if old else 0
    after = 0 if before == value else value
    visit.db.execute("DELETE FROM fo_vote WHERE user_id = ? AND target = ? AND target_id = ?", key)
    if after:
        visit.db.execute("INSERT INTO fo_vote VALUES (?,?,?,?)", (*key, after))
    visit.db.execute(f"UPDATE {TABLES[target]} SET score = score + ? WHERE id = ?", (after - before, number))
    post = number if target == "post" else found["post_id"]
    return visit.go(f"/post/{post}#{target}-{number}")


def back(visit: Visit) -> Response:
    """Where a guest comes back to after logging in to vote."""
    target, number = visit.request.path_params["target"], visit.request.path_params["id"]
    found = visit.row("SELECT post_id FROM fo_comment WHERE id = ?", number) if target == "comment" else None
    return visit.go(f"/post/{found['post_id'] if found else number}")


def join(visit: Visit) -> Response:
    """Join a board, or leave it."""
    board = visit.row("SELECT * FROM fo_board WHERE slug = ?", visit.request.path_params["slug"])
    if board is None:
        return visit.missing("board")
    if visit.form.get("off"):
        visit.db.execute("DELETE FROM fo_member WHERE user_id = ? AND board_id = ?", (my_id(visit), board["id"]))
        return visit.go(f"/b/{board['slug']}?said=left")
    visit.db.execute("INSERT OR IGNORE INTO fo_member VALUES (?, ?)", (my_id(visit), board["id"]))
    return visit.go(f"/b/{board['slug']}?said=joined")


def back_to_board(visit: Visit) -> Response:
    """Where a guest comes back to after logging in to join."""
    return visit.go(f"/b/{visit.request.path_params['slug']}")


def mine(visit: Visit) -> Response:
    """The boards the member has joined."""
    found = visit.rows(
        "SELECT b.* FROM fo_board b JOIN fo_member m ON m.board_id = b.id WHERE m.user_id = ? ORDER BY b.name",
        my_id(visit),
    )
    return visit.page("forum/mine.html", joined=found)


TABLE: Table = {
    "/vote/{target}/{id:int}": (back, members_only(vote)),
    "/b/{slug}/join": (back_to_board, members_only(join)),
    "/boards/mine": (members_only(mine), None),
}
