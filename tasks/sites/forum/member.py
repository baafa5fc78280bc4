"""Who is logged in at the forum."""

from __future__ import annotations

from tasks.sites.web import Visit


def my_id(visit: Visit) -> int:
    """The member's number; 0 for a guest."""
    row = visit.row("SELECT id FROM fo_user WHERE username = ?", visit.username) if visit.username else None
    return int(row["id"]) if row else 0
