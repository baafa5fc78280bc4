"""Reading, writing, changing and deleting posts and comments."""

from __future__ import annotations

import sqlite3
from typing import Any

from starlette.responses import Response

from tasks.sites.clock import now
from tasks.sites.forum.boards import SELECT
from tasks.sites.member import my_id
from tasks.sites.web import Table, Visit, members_only

COMMENT_SORTS = {
    "oldest": ("Oldest", lambda comment: comment["id"]),
    "newest": ("Newest", lambda comment: -comment["id"]),
    "top": ("Most votes", lambda comment: (-comment["score"], comment["id"])),
}


def _threads(comments: list[sqlite3.Row], sort: str) -> list[dict[str, Any]]:
    """Comments in reading order with their depth: answers below what they answer."""
    below: dict[int | None, list[sqlite3.Row]] = {}
    for comment in comments:
        below.setdefault(comment["parent_id"], []).append(comment)
    key = COMMENT_SORTS[sort][1]
    order: list[dict[str, Any]] = []
    stack = [(comment, 0) for comment in sorted(below.get(None, []), key=key, reverse=True)]
    while stack:
        comment, depth = stack.pop()
        order.append({"row": comment, "depth": min(depth, 4)})
        stack += [(child, depth + 1) for child in sorted(below.get(comment["id"], []), key=key, reverse=True)]
    return order


def post(
    visit: Visit, errors: dict[str, str] | None = None, values: dict[str, str] | None = None, status: int = 200
) -> Response:
    """One post with its comments."""
    found = visit.row(SELECT + "WHERE p.id = ?", visit.request.path_params["id"])
    if found is None:
        return visit.missing("post")
    comments = visit.rows(
        "SELECT c.*, u.username FROM fo_comment c JOIN fo_user u ON u.id = c.author_id "
        "WHERE c.post_id = ? ORDER BY c.id",
        found["id"],
    )
    sort = visit.query("sort") if visit.query("sort") in COMMENT_SORTS else "oldest"
    mine = {(row["target"], row["target_id"]): row["value"] for row in
            visit.rows("SELECT * FROM fo_vote WHERE user_id = ?", my_id(visit))}  # fmt: skip
    return visit.page(
        "forum/post.html", status, post=found, comments=_threads(comments, sort), sort=sort, sorts=COMMENT_SORTS,
        mine=mine, errors=errors or {}, values=values or {},
    )  # fmt: skip


def comment(visit: Visit) -> Response:
    """Publish a comment, or an answer to one."""
    found = visit.row("SELECT id FROM fo_post WHERE id = ?", visit.request.path_params["id"])
    if found is None:
        return visit.missing("post")
    parent = visit.row("SELECT id FROM fo_comment WHERE id = ? AND post_id = ?", visit.query("to"), found["id"])
    body = visit.form.get("body", "")
    if not 2 <= len(body) <= 5000:
        problem = {"body": "Write between 2 and 5000 characters."}
        return reply_page(visit, problem) if parent else post(visit, problem, visit.form, 422)
    visit.db.execute(
        "INSERT INTO fo_comment (post_id, parent_id, author_id, posted, body, score) VALUES (?,?,?,?,?,1)",
        (found["id"], parent["id"] if parent else None, my_id(visit), now(visit.db), body),
    )
    return visit.go(f"/post/{found['id']}?said=commented#comments")


def reply_page(visit: Visit, errors: dict[str, str] | None = None) -> Response:
    """The form that answers a comment."""
    found = visit.row(SELECT + "WHERE p.id = ?", visit.request.path_params["id"])
    parent = visit.row(
        "SELECT c.*, u.username FROM fo_comment c JOIN fo_user u ON u.id = c.author_id "
        "WHERE c.id = ? AND c.post_id = ?",
        visit.query("to"), visit.request.path_params["id"],
    )  # fmt: skip
    if found is None or parent is None:
        return visit.missing("comment")
    status = 422 if errors else 200
    return visit.page("forum/reply.html", status, post=found, parent=parent, errors=errors or {}, values=visit.form)


def _form(visit: Visit, found: sqlite3.Row | None, errors: dict[str, str], values: dict[str, str]) -> Response:
    return visit.page("forum/submit.html", 422 if errors else 200, post=found, errors=errors, values=values)


def _problems(form: dict[str, str]) -> dict[str, str]:
    errors = {}
    if not 5 <= len(form.get("title", "")) <= 140:
        errors["title"] = "Give a title of 5 to 140 characters."
    if not 5 <= len(form.get("body", "")) <= 8000:
        errors["body"] = "Write between 5 and 8000 characters."
    return errors


def submit_page(visit: Visit) -> Response:
    """An empty form; the address may name the board."""
    return _form(visit, None, {}, {"board": visit.query("board")})


def submit(visit: Visit) -> Response:
    """Publish a post."""
    form = visit.form
    errors = _problems(form)
    board = visit.row("SELECT id FROM fo_board WHERE slug = ?", form.get("board", ""))
    if board is None:
        errors["board"] = "Choose a board."
    if errors or board is None:
        return _form(visit, None, errors, form)
    number = visit.count("SELECT MAX(id) FROM fo_post") + 1
    visit.db.execute(
        "INSERT INTO fo_post VALUES (?,?,?,?,?,'',?,1,0)",
        (number, board["id"], my_id(visit), form["title"], form["body"], now(visit.db)),
    )
    return visit.go(f"/post/{number}?said=posted")


def _own(visit: Visit) -> sqlite3.Row | None:
    return visit.row(
        SELECT + "WHERE p.id = ? AND p.author_id = ?", visit.request.path_params["id"], my_id(visit)
    )  # fmt: skip


def edit_page(visit: Visit) -> Response:
    """The form with what is there now."""
    found = _own(visit)
    if found is None:
        return visit.missing("post of yours")
    return _form(visit, found, {}, {"title": found["title"], "body": found["body"], "board": found["slug"]})


def edit(visit: Visit) -> Response:
    """Keep the changes; a post stays on its board."""
    found = _own(visit)
    if found is None:
        return visit.missing("post of yours")
    errors = _problems(visit.form)
    if errors:
        return _form(visit, found, errors, visit.form | {"board": found["slug"]})
    changed = (visit.form["title"], visit.form["body"], found["id"])
    visit.db.execute("UPDATE fo_post SET title = ?, body = ? WHERE id = ?", changed)
    return visit.go(f"/post/{found['id']}?said=changed")


def delete(visit: Visit) -> Response:
    """Take an own post down, with its comments."""
    found = _own(visit)
    if found is None:
        return visit.missing("post of yours")
    visit.db.execute("DELETE FROM fo_comment WHERE post_id = ?", (found["id"],))
    visit.db.execute("DELETE FROM fo_post WHERE id = ?", (found["id"],))
    return visit.go(f"/u/{visit.username}?said=deleted")


TABLE: Table = {
    "/post/{id:int}": (post, None),
    "/post/{id:int}/comment": (members_only(reply_page), members_only(comment)),
    "/post/{id:int}/edit": (members_only(edit_page), members_only(edit)),
    "/post/{id:int}/delete": (None, members_only(delete)),
    "/submit": (members_only(submit_page), members_only(submit)),
}
