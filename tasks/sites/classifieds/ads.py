"""Placing, changing and deleting one's own advertisements."""

from __future__ import annotations

import sqlite3

from starlette.responses import Response

from tasks.sites.classifieds.browse import SELECT
from tasks.sites.clock import now
from tasks.sites.member import my_id
from tasks.sites.seed.classifieds import CONDITIONS, HANDOVERS, STOCK
from tasks.sites.seed.kinds import COLOURS
from tasks.sites.seed.words import TOWNS
from tasks.sites.web import Table, Visit, members_only

KINDS = sorted(kind for kinds in STOCK.values() for kind in kinds)


def mine(visit: Visit) -> Response:
    """The member's own advertisements."""
    ads = visit.rows(SELECT + "WHERE a.seller_id = ? ORDER BY a.posted DESC, a.id", my_id(visit))
    return visit.page("classifieds/mine.html", ads=ads)


def _form(visit: Visit, ad: sqlite3.Row | None, errors: dict[str, str], values: dict[str, str]) -> Response:
    return visit.page(
        "classifieds/place.html", 422 if errors else 200, ad=ad, errors=errors, values=values, towns=TOWNS,
        conditions=CONDITIONS, handovers=HANDOVERS, colours=COLOURS, kinds=KINDS,
    )  # fmt: skip


def _problems(form: dict[str, str]) -> dict[str, str]:
    errors = {}
    if not 5 <= len(form.get("title", "")) <= 90:
        errors["title"] = "Give a title of 5 to 90 characters."
    price = form.get("price", "").removeprefix("$")
    if not (price.isdigit() and 0 < int(price) <= 99999):
        errors["price"] = "Give the price in whole dollars, such as 45."
    for key, known, words in (
        ("category", STOCK, "Choose a category."), ("town", TOWNS, "Choose the town."),
        ("condition", CONDITIONS, "Choose the condition."), ("handover", HANDOVERS, "Choose how it changes hands."),
        ("kind", KINDS, "Choose what the picture shows."), ("colour", COLOURS, "Choose the colour."),
    ):  # fmt: skip
        if form.get(key, "") not in known:
            errors[key] = words
    if not 10 <= len(form.get("text", "")) <= 3000:
        errors["text"] = "Describe it in 10 to 3000 characters."
    return errors


def place_page(visit: Visit) -> Response:
    """An empty form."""
    return _form(visit, None, {}, {"town": "Alder Bay"})


def place(visit: Visit) -> Response:
    """Publish an advertisement."""
    form = visit.form
    errors = _problems(form)
    if errors:
        return _form(visit, None, errors, form)
    number = visit.count("SELECT MAX(id) FROM cl_ad") + 1
    visit.db.execute(
        "INSERT INTO cl_ad VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            number, f"CM-{9999 + number}", form["title"], form["category"], form["kind"], form["colour"],
            int(form["price"].removeprefix("$")), form["town"], form["condition"], "", None, form["handover"],
            now(visit.db), my_id(visit), 0, form["text"], f"{form['kind']}-{form['colour']}-1",
        ),
    )  # fmt: skip
    return visit.go(f"/ad/{number}?said=placed")


def _own(visit: Visit) -> sqlite3.Row | None:
    return visit.row(
        "SELECT * FROM cl_ad WHERE id = ? AND seller_id = ?", visit.request.path_params["id"], my_id(visit)
    )  # fmt: skip


def edit_page(visit: Visit) -> Response:
    """The form with what is there now."""
    ad = _own(visit)
    if ad is None:
        return visit.missing("advertisement of yours")
    return _form(visit, ad, {}, {key: str(ad[key]) for key in ad.keys()})  # noqa: SIM118 - a row, not a dict


def edit(visit: Visit) -> Response:
    """Keep the changes."""
    ad, form = _own(visit), visit.form
    if ad is None:
        return visit.missing("advertisement of yours")
    errors = _problems(form)
    if errors:
        return _form(visit, ad, errors, form)
    visit.db.execute(
        "UPDATE cl_ad SET title = ?, category = ?, kind = ?, colour = ?, price = ?, town = ?, condition = ?, "
        "handover = ?, text = ?, picture = ? WHERE id = ?",
        (
            form["title"], form["category"], form["kind"], form["colour"], int(form["price"].removeprefix("$")),
            form["town"], form["condition"], form["handover"], form["text"], f"{form['kind']}-{form['colour']}-1",
            ad["id"],
        ),
    )  # fmt: skip
    return visit.go(f"/ad/{ad['id']}?said=changed")


def delete(visit: Visit) -> Response:
    """Take an own advertisement down."""
    ad = _own(visit)
    if ad is None:
        return visit.missing("advertisement of yours")
    visit.db.execute("DELETE FROM cl_comment WHERE ad_id = ?", (ad["id"],))
    visit.db.execute("DELETE FROM cl_ad WHERE id = ?", (ad["id"],))
    return visit.go("/mine?said=deleted")


TABLE: Table = {
    "/mine": (members_only(mine), None),
    "/place": (members_only(place_page), members_only(place)),
    "/ad/{id:int}/edit": (members_only(edit_page), members_only(edit)),
    "/ad/{id:int}/delete": (None, members_only(delete)),
}
