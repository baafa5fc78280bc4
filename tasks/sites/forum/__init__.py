"""Millpond, the forum."""

from __future__ import annotations

from typing import Any

from tasks.sites.forum import boards, mail, posts, votes
from tasks.sites.web import SHARED, Handler, Visit

TABLE: dict[str, tuple[Handler | None, Handler | None]] = {**boards.TABLE, **posts.TABLE, **votes.TABLE, **mail.TABLE}


def _shared(visit: Visit) -> dict[str, Any]:
    return {"boards": visit.rows("SELECT * FROM fo_board ORDER BY name")}


SHARED["forum"] = _shared
