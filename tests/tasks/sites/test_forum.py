"""The forum from the outside."""

from __future__ import annotations

import re


def test_sorting_and_search(client, sites):
    pond = client("forum")
    pond.get("/b/bread?sort=top")
    scores = [int(s) for s in re.findall(r'class="score"[^>]*>(-?\d+)<', pond.html)]
    assert scores[1:] == sorted(scores[1:], reverse=True) and len(scores) == 24  # the pinned post comes first
    pond.get("/search?q=sourdough")
    titles = re.findall(r'<a href="/post/\d+">(.*?)</a>', pond.html)
    rows = sites.store.db.execute(
        "SELECT COUNT(*) FROM fo_post WHERE lower(title || body) LIKE '%sourdough%'"
    ).fetchone()
    assert len(titles) == min(24, rows[0]) > 2


def test_votes_count_once_and_can_be_taken_back(client, sites):
    pond = client("forum").login()
    score = lambda: sites.store.db.execute("SELECT score FROM fo_post WHERE id = 1").fetchone()[0]  # noqa: E731
    before = score()
    for value, change in (("up", 1), ("up", 0), ("up", 1), ("down", -1), ("down", 0)):
        pond.post("/vote/post/1", value=value)
        assert score() == before + change
    pond.post("/vote/poem/1", value="up")
    assert pond.status == 404


def test_posts_comments_and_answers(client):
    pond = client("forum").login()
    pond.post("/submit", board="", title="Hey", body="A long enough text.")
    assert (
        pond.status == 422
        and "Choose a board" in pond.text
        and "5 to 140" in pond.text
        and "A long enough" in pond.html
    )
    pond.post("/submit", board="bread", title="Crumbs & crusts", body="First line.\nSecond <line>.")
    assert pond.path == "/post/301?said=posted" and "Crumbs & crusts" in pond.text and "&lt;line&gt;" in pond.html
    pond.post("/post/301/comment", body="I answer myself.")
    number = re.search(r'id="comment-(\d+)"', pond.html)[1]
    pond.get(f"/post/301/comment?to={number}")
    assert "I answer myself." in pond.text
    pond.post(f"/post/301/comment?to={number}", body="And once more.")
    assert re.search(r'class="comment depth-1".*?And once more\.', pond.html, re.S)
    pond.post("/post/301/edit", title="Crumbs only", body="Changed text.")
    assert "Crumbs only" in pond.text
    pond.post("/post/1/edit", title="Mine now", body="Not mine at all.")
    assert pond.status == 404
    pond.post("/post/301/delete")
    pond.get("/post/301")
    assert pond.status == 404


def test_boards_can_be_joined_and_left(client, sites):
    pond = client("forum").login()
    free = sites.store.db.execute(
        "SELECT slug, name FROM fo_board WHERE id NOT IN (SELECT board_id FROM fo_member WHERE user_id = 1)"
    ).fetchone()
    pond.post(f"/b/{free['slug']}/join")
    assert "You are now a member" in pond.text
    pond.get("/boards/mine")
    assert len(re.findall(r'<li><a href="/b/', pond.html)) == 4 and free["name"] in pond.text
    pond.post(f"/b/{free['slug']}/join", off="1")
    assert "You have left" in pond.text


def test_threads_show_answers_below_what_they_answer(client, sites):
    pond = client("forum")
    pond.get("/post/23")
    shown = [int(n) for n in re.findall(r'id="comment-(\d+)"', pond.html)]
    rows = {r["id"]: r["parent_id"] for r in sites.store.db.execute("SELECT * FROM fo_comment WHERE post_id = 23")}
    assert sorted(shown) == sorted(rows) and len(shown) > 100
    assert all(shown.index(parent) < shown.index(child) for child, parent in rows.items() if parent)
