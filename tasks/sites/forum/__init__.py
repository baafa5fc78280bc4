"""Millpond, the forum."""

from __future__ import annotations

from typing import Any

from tasks.sites.forum import boards, posts, votes
from tasks.sites.mail import Mail
from tasks.sites.web import SHARED, Table, Visit

TABLE: Table = {**boards.TABLE, **posts.TABLE, **votes.TABLE, **Mail().table()}


def _shared(visit: Visit) -> dict[str, Any]:
    return {"boards": visit.rows("SELECT * FROM fo_board ORDER BY name")}


SHARED["forum"] = _shared
