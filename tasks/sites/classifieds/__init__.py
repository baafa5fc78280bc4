"""Corner Market, the classified advertisements."""

from __future__ import annotations

from typing import Any

from tasks.sites.classifieds import ads, browse, mail
from tasks.sites.classifieds.member import me
from tasks.sites.seed.classifieds import STOCK
from tasks.sites.web import SHARED, Handler, Visit

TABLE: dict[str, tuple[Handler | None, Handler | None]] = {**browse.TABLE, **ads.TABLE, **mail.TABLE}


def _shared(visit: Visit) -> dict[str, Any]:
    return {"categories": list(STOCK), "me": me(visit)}


SHARED["classifieds"] = _shared
