"""Copperleaf, the shop."""

from __future__ import annotations

from typing import Any

from tasks.sites.seed.kinds import KINDS
from tasks.sites.shopping import account, browse, cart, help_desk
from tasks.sites.shopping.owner import owner
from tasks.sites.web import SHARED, Table, Visit

TABLE: Table = {
    **browse.TABLE,
    **cart.TABLE,
    **account.TABLE,
    **help_desk.TABLE,
}


def _shared(visit: Visit) -> dict[str, Any]:
    held = visit.count("SELECT COALESCE(SUM(quantity), 0) FROM sh_cart WHERE owner = ?", owner(visit))
    return {"shelves": list(dict.fromkeys(kind.shelf for kind in KINDS.values())), "in_cart": held}


SHARED["shopping"] = _shared
