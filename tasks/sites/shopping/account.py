"""Orders and wishes of whoever is logged in."""

from __future__ import annotations

from starlette.responses import Response

from tasks.sites.shopping.browse import SELECT
from tasks.sites.shopping.owner import owner
from tasks.sites.web import Table, Visit, members_only


def orders(visit: Visit) -> Response:
    """All orders, the newest first."""
    found = visit.rows(
        "SELECT o.*, (SELECT SUM(quantity) FROM sh_line WHERE order_id = o.id) AS pieces FROM sh_order o "
        "WHERE owner = ? ORDER BY id DESC",
        owner(visit),
    )
    return visit.page("shopping/orders.html", orders=found)


def order(visit: Visit) -> Response:
    """One order."""
    found = visit.row(
        "SELECT * FROM sh_order WHERE id = ? AND owner = ?", visit.request.path_params["id"], owner(visit)
    )
    if found is None:
        return visit.missing("order")
    lines = visit.rows("SELECT * FROM sh_line WHERE order_id = ? ORDER BY product_id", found["id"])
    return visit.page("shopping/order.html", order=found, lines=lines)


def wishes(visit: Visit) -> Response:
    """The wish list."""
    found = visit.rows(
        SELECT + "JOIN sh_wish w ON w.product_id = p.id WHERE w.owner = ? GROUP BY p.id ORDER BY p.id", owner(visit)
    )  # fmt: skip
    return visit.page("shopping/wishes.html", products=found)


def wish(visit: Visit) -> Response:
    """Put a product on the wish list, or take it off."""
    item = visit.row("SELECT id FROM sh_product WHERE id = ?", visit.request.path_params["id"])
    if item is None:
        return visit.missing("product")
    if visit.form.get("off"):
        visit.db.execute("DELETE FROM sh_wish WHERE owner = ? AND product_id = ?", (owner(visit), item["id"]))
        return visit.go("/wishlist?said=unwished")
    visit.db.execute("INSERT OR IGNORE INTO sh_wish VALUES (?, ?)", (owner(visit), item["id"]))
    return visit.go("/wishlist?said=wished")


def wish_page(visit: Visit) -> Response:
    """Where a guest comes back to after logging in for the wish list."""
    return visit.go(f"/product/{visit.request.path_params['id']}")


TABLE: Table = {
    "/orders": (members_only(orders), None),
    "/orders/{id:int}": (members_only(order), None),
    "/wishlist": (members_only(wishes), None),
    "/product/{id:int}/wish": (wish_page, members_only(wish)),
}
