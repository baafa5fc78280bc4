"""Help pages and letters to the shop."""

from __future__ import annotations

from starlette.responses import Response

from tasks.sites.clock import now
from tasks.sites.shopping.cart import DELIVERY
from tasks.sites.shopping.owner import owner
from tasks.sites.web import Table, Visit, members_only

TOPICS = ("Delivery", "Returns", "Damaged goods", "Warranty", "Something else")


def help_page(visit: Visit) -> Response:
    """Delivery, returns, warranty, opening hours."""
    return visit.page("shopping/help.html", delivery=DELIVERY)


def letter_page(visit: Visit) -> Response:
    """The contact form."""
    return visit.page("shopping/contact.html", topics=TOPICS, errors={}, values={})


def letter(visit: Visit) -> Response:
    """Keep a letter to the shop."""
    form, errors = visit.form, {}
    if form.get("topic", "") not in TOPICS:
        errors["topic"] = "Choose what it is about."
    number = form.get("number", "").upper()
    if number and not visit.row("SELECT 1 FROM sh_order WHERE number = ? AND owner = ?", number, owner(visit)):
        errors["number"] = f"You have no order {form['number']}. Order numbers look like CP-20437."
    if not 10 <= len(form.get("body", "")) <= 3000:
        errors["body"] = "Write at least 10 characters (and at most 3000)."
    if errors:
        return visit.page("shopping/contact.html", 422, topics=TOPICS, errors=errors, values=form)
    visit.db.execute(
        "INSERT INTO sh_letter (owner, topic, number, body, sent) VALUES (?,?,?,?,?)",
        (owner(visit), form["topic"], number, form["body"], now(visit.db)),
    )
    return visit.go("/letters?said=letter")


def letters(visit: Visit) -> Response:
    """Letters sent so far."""
    found = visit.rows("SELECT * FROM sh_letter WHERE owner = ? ORDER BY id DESC", owner(visit))
    return visit.page("shopping/letters.html", letters=found)


TABLE: Table = {
    "/help": (help_page, None),
    "/contact": (members_only(letter_page), members_only(letter)),
    "/letters": (members_only(letters), None),
}
