"""Whose cart it is."""

from __future__ import annotations

from starlette.responses import Response

from tasks.sites.web import Visit


def owner(visit: Visit) -> str:
    """``user:NAME``, ``guest:N``, or "" for a guest who has not put anything into a cart yet."""
    if visit.username:
        return f"user:{visit.username}"
    guest = visit.request.cookies.get("shopping_guest", "")
    return f"guest:{guest}" if guest.isdigit() else ""


def new_guest(visit: Visit) -> str:
    """A number for a guest, counted from one."""
    visit.db.execute("UPDATE meta SET value = value + 1 WHERE key = 'guests'")
    return visit.meta("guests")


def remember(answer: Response, guest: str) -> None:
    """Give the guest the number to keep."""
    answer.set_cookie("shopping_guest", guest, httponly=True, samesite="lax")
