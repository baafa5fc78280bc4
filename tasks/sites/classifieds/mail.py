"""Messages between members."""

from __future__ import annotations

from starlette.responses import Response

from tasks.sites.classifieds.member import my_id
from tasks.sites.clock import now
from tasks.sites.web import Handler, Visit, members_only

SELECT = (
    "SELECT m.*, s.username AS sender, r.username AS receiver, a.title AS ad FROM cl_message m "
    "JOIN cl_user s ON s.id = m.sender_id JOIN cl_user r ON r.id = m.receiver_id LEFT JOIN cl_ad a ON a.id = m.ad_id "
)


def inbox(visit: Visit) -> Response:
    """What others wrote."""
    found = visit.rows(SELECT + "WHERE m.receiver_id = ? ORDER BY m.id DESC", my_id(visit))
    return visit.page("classifieds/mail.html", mail=found, box="inbox")


def sent(visit: Visit) -> Response:
    """What the member wrote."""
    found = visit.rows(SELECT + "WHERE m.sender_id = ? ORDER BY m.id DESC", my_id(visit))
    return visit.page("classifieds/mail.html", mail=found, box="sent")


def message(visit: Visit) -> Response:
    """One message."""
    number = visit.request.path_params["id"]
    found = visit.row(SELECT + "WHERE m.id = ? AND ? IN (m.sender_id, m.receiver_id)", number, my_id(visit))
    return visit.page("classifieds/message.html", message=found) if found else visit.missing("message")


def write_page(visit: Visit, errors: dict[str, str] | None = None) -> Response:
    """The form to write to a member, perhaps about an advertisement."""
    user = visit.row("SELECT * FROM cl_user WHERE username = ?", visit.request.path_params["username"])
    if user is None:
        return visit.missing("member")
    ad = visit.row("SELECT * FROM cl_ad WHERE id = ?", visit.number("ad", 0))
    values = visit.form if errors else {"subject": ad["title"] if ad else ""}
    return visit.page(
        "classifieds/write.html", 422 if errors else 200, user=user, ad=ad, errors=errors or {}, values=values
    )  # fmt: skip


def write(visit: Visit) -> Response:
    """Send it."""
    user = visit.row("SELECT * FROM cl_user WHERE username = ?", visit.request.path_params["username"])
    if user is None:
        return visit.missing("member")
    errors = {}
    if not 2 <= len(visit.form.get("subject", "")) <= 120:
        errors["subject"] = "Give a subject of 2 to 120 characters."
    if not 2 <= len(visit.form.get("body", "")) <= 3000:
        errors["body"] = "Write between 2 and 3000 characters."
    if user["id"] == my_id(visit):
        errors["body"] = "This is you: choose another member to write to."
    if errors:
        return write_page(visit, errors)
    visit.db.execute(
        "INSERT INTO cl_message (ad_id, sender_id, receiver_id, subject, body, sent) VALUES (?,?,?,?,?,?)",
        (visit.number("ad"), my_id(visit), user["id"], visit.form["subject"], visit.form["body"], now(visit.db)),
    )
    return visit.go("/sent?said=sent")


TABLE: dict[str, tuple[Handler | None, Handler | None]] = {
    "/inbox": (members_only(inbox), None),
    "/sent": (members_only(sent), None),
    "/message/{id:int}": (members_only(message), None),
    "/write/{username}": (members_only(write_page), members_only(write)),
}
