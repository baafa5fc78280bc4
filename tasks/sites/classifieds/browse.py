"""The front page, search with filters, an advertisement, a member's page."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tasks.sites.clock import now
from tasks.sites.member import my_id, user
from tasks.sites.seed.classifieds import CONDITIONS, STOCK
from tasks.sites.seed.kinds import COLOURS
from tasks.sites.seed.words import TOWNS
from tasks.sites.web import Table, Visit, members_only, pager, slug

SORTS = {
    "newest": ("Newest first", "a.posted DESC, a.id"),
    "oldest": ("Oldest first", "a.posted, a.id"),
    "price-up": ("Price: low to high", "a.price, a.id"),
    "price-down": ("Price: high to low", "a.price DESC, a.id"),
    "views": ("Most viewed", "a.views DESC, a.id"),
}
SIZES = (12, 24, 48)
SELECT = (
    "SELECT a.*, u.username AS seller, u.name AS seller_name, u.rating, u.hours, u.phone, u.joined, "
    "(SELECT COUNT(*) FROM cl_comment c WHERE c.ad_id = a.id) AS comments "
    "FROM cl_ad a JOIN cl_user u ON u.id = a.seller_id "
)


def home(visit: Visit) -> Response:
    """The notice about the market, the categories, the newest advertisements."""
    counts = {row["category"]: row["n"] for row in
              visit.rows("SELECT category, COUNT(*) AS n FROM cl_ad GROUP BY category")}  # fmt: skip
    newest = visit.rows(SELECT + "ORDER BY a.posted DESC, a.id LIMIT 12")
    notice = {key: visit.meta(f"market_{key}") for key in ("code", "day", "town")}
    return visit.page("classifieds/home.html", counts=counts, newest=newest, notice=notice)


def listing(visit: Visit) -> Response:
    """Advertisements that fit the words and the filters in the address."""
    wanted = visit.request.path_params.get("category", "")
    names = {slug(name): name for name in STOCK}
    if wanted and wanted not in names:
        return visit.missing("category")
    category = names.get(wanted) or (visit.query("category") if visit.query("category") in STOCK else "")
    where, values = "1 = 1", []
    q = visit.query("q")
    for word in q.split()[:8]:
        where += " AND instr(lower(a.title || ' ' || a.text || ' ' || a.ref || ' ' || a.brand || ' ' || a.category), ?)"
        values.append(word.lower())
    chosen: dict[str, Any] = {key: visit.query(key) for key in ("town", "condition", "colour")}
    chosen |= {"min": visit.number("min"), "max": visit.number("max")}
    for condition, value in (
        ("a.category = ?", category), ("a.town = ?", chosen["town"]), ("a.condition = ?", chosen["condition"]),
        ("a.colour = ?", chosen["colour"]), ("a.price >= ?", chosen["min"]), ("a.price <= ?", chosen["max"]),
    ):  # fmt: skip
        if value:
            where += f" AND {condition}"
            values.append(value)
    total = visit.count(f"SELECT COUNT(*) FROM cl_ad a WHERE {where}", *values)
    sort = visit.query("sort") if visit.query("sort") in SORTS else "newest"
    asked = visit.number("per", 24)
    part = pager(visit, total, asked if asked in SIZES else 24)
    found = visit.rows(
        f"{SELECT} WHERE {where} ORDER BY {SORTS[sort][1]} LIMIT ? OFFSET ?", *values, part.size, part.offset
    )  # fmt: skip
    title = category or "All advertisements"
    if q:
        title = f"Search results for “{q}”"
    return visit.page(
        "classifieds/listing.html", title=title, ads=found, part=part, sort=sort, sorts=SORTS, sizes=SIZES,
        towns=TOWNS, colours=COLOURS, conditions=CONDITIONS, chosen=chosen, q=q, category=category, fixed=wanted,
    )  # fmt: skip


def advertisement(
    visit: Visit, errors: dict[str, str] | None = None, values: dict[str, str] | None = None, status: int = 200
) -> Response:
    """One advertisement with its questions."""
    ad = visit.row(SELECT + "WHERE a.id = ?", visit.request.path_params["id"])
    if ad is None:
        return visit.missing("advertisement")
    comments = visit.rows(
        "SELECT c.*, u.username, u.name FROM cl_comment c JOIN cl_user u ON u.id = c.author_id "
        "WHERE ad_id = ? ORDER BY c.id",
        ad["id"],
    )
    saved = visit.row("SELECT 1 FROM cl_saved WHERE user_id = ? AND ad_id = ?", my_id(visit), ad["id"])
    others = visit.rows(SELECT + "WHERE a.seller_id = ? AND a.id != ? ORDER BY a.id LIMIT 4", ad["seller_id"], ad["id"])
    return visit.page(
        "classifieds/ad.html", status, ad=ad, comments=comments, saved=saved, others=others, errors=errors or {},
        values=values or {},
    )  # fmt: skip


def ask(visit: Visit) -> Response:
    """Publish a question or an answer under an advertisement."""
    ad = visit.row("SELECT id FROM cl_ad WHERE id = ?", visit.request.path_params["id"])
    if ad is None:
        return visit.missing("advertisement")
    body = visit.form.get("body", "")
    if not 3 <= len(body) <= 1000:
        return advertisement(visit, {"body": "Write between 3 and 1000 characters."}, visit.form, 422)
    visit.db.execute(
        "INSERT INTO cl_comment (ad_id, author_id, posted, body) VALUES (?,?,?,?)",
        (ad["id"], my_id(visit), now(visit.db), body),
    )
    return visit.go(f"/ad/{ad['id']}?said=asked#questions")


def back_to_ad(visit: Visit) -> Response:
    """Where a guest comes back to after logging in to write or save."""
    return visit.go(f"/ad/{visit.request.path_params['id']}")


def member(visit: Visit) -> Response:
    """A member and what they sell."""
    found = user(visit, visit.request.path_params["username"])
    if found is None:
        return visit.missing("member")
    ads = visit.rows(SELECT + "WHERE a.seller_id = ? ORDER BY a.posted DESC, a.id", found["id"])
    return visit.page("classifieds/member.html", user=found, ads=ads)


def save(visit: Visit) -> Response:
    """Put an advertisement on the member's list, or take it off."""
    ad = visit.row("SELECT id FROM cl_ad WHERE id = ?", visit.request.path_params["id"])
    if ad is None:
        return visit.missing("advertisement")
    if visit.form.get("off"):
        visit.db.execute("DELETE FROM cl_saved WHERE user_id = ? AND ad_id = ?", (my_id(visit), ad["id"]))
        return visit.go("/saved?said=unsaved")
    visit.db.execute("INSERT OR IGNORE INTO cl_saved VALUES (?, ?)", (my_id(visit), ad["id"]))
    return visit.go("/saved?said=saved")


def saved(visit: Visit) -> Response:
    """The member's list."""
    ads = visit.rows(SELECT + "JOIN cl_saved s ON s.ad_id = a.id WHERE s.user_id = ? ORDER BY a.id", my_id(visit))
    return visit.page("classifieds/saved.html", ads=ads)


def safety(visit: Visit) -> Response:
    """How to buy and sell safely."""
    return visit.page("classifieds/safety.html")


TABLE: Table = {
    "/": (home, None),
    "/ads": (listing, None),
    "/c/{category}": (listing, None),
    "/ad/{id:int}": (advertisement, None),
    "/ad/{id:int}/ask": (back_to_ad, members_only(ask)),
    "/ad/{id:int}/save": (back_to_ad, members_only(save)),
    "/member/{username}": (member, None),
    "/saved": (members_only(saved), None),
    "/safety": (safety, None),
}
