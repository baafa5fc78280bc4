"""Who is logged in at the classifieds."""

from __future__ import annotations

import sqlite3

from tasks.sites.web import Visit


def me(visit: Visit) -> sqlite3.Row | None:
    """The member's row, None for a guest."""
    return visit.row("SELECT * FROM cl_user WHERE username = ?", visit.username) if visit.username else None


def my_id(visit: Visit) -> int:
    """The member's number; 0 for a guest."""
    row = me(visit)
    return int(row["id"]) if row else 0
