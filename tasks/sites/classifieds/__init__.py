"""Corner Market, the classified advertisements."""

from __future__ import annotations

from typing import Any

from tasks.sites.classifieds import ads, browse
from tasks.sites.mail import Mail
from tasks.sites.member import me
from tasks.sites.seed.classifieds import STOCK
from tasks.sites.web import SHARED, Table, Visit


def _advertisement(visit: Visit) -> str:
    ad = visit.row("SELECT title FROM cl_ad WHERE id = ?", visit.number("ad", 0))
    return str(ad["title"]) if ad else ""


MAIL = Mail(about=lambda visit: {"ad_id": visit.number("ad")}, subject=_advertisement)
TABLE: Table = {**browse.TABLE, **ads.TABLE, **MAIL.table()}


def _shared(visit: Visit) -> dict[str, Any]:
    return {"categories": list(STOCK), "me": me(visit)}


SHARED["classifieds"] = _shared
