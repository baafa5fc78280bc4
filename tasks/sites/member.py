"""Who is logged in at a site whose members have pages of their own."""

from __future__ import annotations

import sqlite3

from tasks.sites.web import Visit

#: Site -> what the names of its tables begin with.
PREFIX = {"classifieds": "cl", "forum": "fo"}


def user(visit: Visit, username: str) -> sqlite3.Row | None:
    """A member's row, None where there is none of this name."""
    return visit.row(f"SELECT * FROM {PREFIX[visit.site]}_user WHERE username = ?", username)


def me(visit: Visit) -> sqlite3.Row | None:
    """The visitor's row, None for a guest."""
    return user(visit, visit.username) if visit.username else None


def my_id(visit: Visit) -> int:
    """The visitor's number; 0 for a guest."""
    row = me(visit)
    return int(row["id"]) if row else 0
