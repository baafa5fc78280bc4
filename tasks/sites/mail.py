"""Messages between members, the same way on each site that has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from tasks.sites.clock import now
from tasks.sites.member import PREFIX, my_id, user
from tasks.sites.web import Table, Visit, members_only


def _nothing(visit: Visit) -> dict[str, int | None]:
    return {}


def _no_subject(visit: Visit) -> str:
    return ""


@dataclass(frozen=True)
class Mail:
    """A site's messages.

    Attributes:
        about: further columns of a message that is sent, out of the address of its form.
        subject: what an empty form begins with.
    """

    about: Callable[[Visit], dict[str, int | None]] = _nothing
    subject: Callable[[Visit], str] = _no_subject

    def table(self) -> Table:
        """The pages."""
        return {
            "/inbox": (members_only(inbox), None),
            "/sent": (members_only(sent), None),
            "/message/{id:int}": (members_only(message), None),
            "/write/{username}": (members_only(self.write_page), members_only(self.write)),
        }

    def write_page(self, visit: Visit) -> Response:
        """The form to write to a member."""
        return self._form(visit, {}, {"subject": self.subject(visit)})

    def write(self, visit: Visit) -> Response:
        """Send it."""
        receiver = user(visit, visit.request.path_params["username"])
        if receiver is None:
            return visit.missing("member")
        errors = {}
        if not 2 <= len(visit.form.get("subject", "")) <= 120:
            errors["subject"] = "Give a subject of 2 to 120 characters."
        if not 2 <= len(visit.form.get("body", "")) <= 3000:
            errors["body"] = "Write between 2 and 3000 characters."
        if receiver["id"] == my_id(visit):
            errors["body"] = "This is you: choose another member to write to."
        if errors:
            return self._form(visit, errors, visit.form)
        row = {
            "sender_id": my_id(visit),
            "receiver_id": receiver["id"],
            "subject": visit.form["subject"],
            "body": visit.form["body"],
            "sent": now(visit.db),
        } | self.about(visit)
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        visit.db.execute(f"INSERT INTO {PREFIX[visit.site]}_message ({names}) VALUES ({marks})", tuple(row.values()))
        return visit.go("/sent?said=sent")

    def _form(self, visit: Visit, errors: dict[str, str], values: dict[str, str]) -> Response:
        receiver = user(visit, visit.request.path_params["username"])
        if receiver is None:
            return visit.missing("member")
        return visit.page("write.html", 422 if errors else 200, user=receiver, errors=errors, values=values)


def _select(visit: Visit) -> str:
    prefix = PREFIX[visit.site]
    return (
        f"SELECT m.*, s.username AS sender, r.username AS receiver FROM {prefix}_message m "
        f"JOIN {prefix}_user s ON s.id = m.sender_id JOIN {prefix}_user r ON r.id = m.receiver_id "
    )


def inbox(visit: Visit) -> Response:
    """What others wrote."""
    found = visit.rows(_select(visit) + "WHERE m.receiver_id = ? ORDER BY m.id DESC", my_id(visit))
    return visit.page("mail.html", mail=found, box="inbox")


def sent(visit: Visit) -> Response:
    """What the member wrote."""
    found = visit.rows(_select(visit) + "WHERE m.sender_id = ? ORDER BY m.id DESC", my_id(visit))
    return visit.page("mail.html", mail=found, box="sent")


def message(visit: Visit) -> Response:
    """One message."""
    number = visit.request.path_params["id"]
    found = visit.row(_select(visit) + "WHERE m.id = ? AND ? IN (m.sender_id, m.receiver_id)", number, my_id(visit))
    return visit.page("message.html", message=found) if found else visit.missing("message")
