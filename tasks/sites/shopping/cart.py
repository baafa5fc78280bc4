"""The cart and the way to an order."""

from __future__ import annotations

import sqlite3

from starlette.responses import Response

from tasks.sites.clock import now
from tasks.sites.shopping.browse import product as product_page
from tasks.sites.shopping.owner import new_guest, owner, remember
from tasks.sites.web import Table, Visit, members_only

DELIVERY = {
    "Standard": (490, "3 to 5 working days"),
    "Express": (1250, "next working day"),
    "Pickup": (0, "at the Alder Bay warehouse, from 10 to 18 o'clock"),
}
MAX_QUANTITY = 20


def lines(visit: Visit) -> list[sqlite3.Row]:
    """What is in the visitor's cart."""
    return visit.rows(
        "SELECT c.quantity, p.* FROM sh_cart c JOIN sh_product p ON p.id = c.product_id "
        "WHERE c.owner = ? ORDER BY p.id",
        owner(visit),
    )


def _quantity(text: str) -> int | None:
    return int(text) if text.isdigit() and len(text) < 4 and 1 <= int(text) <= MAX_QUANTITY else None


def add(visit: Visit) -> Response:
    """Put a product into the cart."""
    item = visit.row("SELECT * FROM sh_product WHERE id = ?", visit.request.path_params["id"])
    if item is None:
        return visit.missing("product")
    quantity = _quantity(visit.form.get("quantity", "1"))
    if quantity is None:
        return product_page(visit, {"quantity": f"Order between 1 and {MAX_QUANTITY}."}, 422)
    if item["stock"] < quantity:
        left = f"only {item['stock']} left" if item["stock"] else "sold out"
        return product_page(visit, {"quantity": f"There are not that many: {left}."}, 422)
    holder, guest = owner(visit), ""
    if not holder:
        guest = new_guest(visit)
        holder = f"guest:{guest}"
    visit.db.execute(
        "INSERT INTO sh_cart VALUES (?,?,?) ON CONFLICT DO UPDATE SET quantity = min(?, quantity + excluded.quantity)",
        (holder, item["id"], quantity, MAX_QUANTITY),
    )
    answer = visit.go("/cart?said=added")
    if guest:
        remember(answer, guest)
    return answer


def cart(visit: Visit, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    """The cart."""
    held = lines(visit)
    subtotal = sum(line["price"] * line["quantity"] for line in held)
    return visit.page("shopping/cart.html", status, lines=held, subtotal=subtotal, errors=errors or {})


def update(visit: Visit) -> Response:
    """Change how many of a product; 0 takes it out."""
    identity, text = visit.request.path_params["id"], visit.form.get("quantity", "")
    if text == "0" or "remove" in visit.form:
        visit.db.execute("DELETE FROM sh_cart WHERE owner = ? AND product_id = ?", (owner(visit), identity))
        return visit.go("/cart?said=removed")
    quantity = _quantity(text)
    if quantity is None:
        return cart(visit, {str(identity): f"Order between 1 and {MAX_QUANTITY}, or remove it."}, 422)
    visit.db.execute(
        "UPDATE sh_cart SET quantity = ? WHERE owner = ? AND product_id = ?", (quantity, owner(visit), identity)
    )  # fmt: skip
    return visit.go("/cart?said=updated")


def _checkout(visit: Visit, errors: dict[str, str], values: dict[str, str], status: int = 200) -> Response:
    held = lines(visit)
    if not held:
        return visit.go("/cart")
    subtotal = sum(line["price"] * line["quantity"] for line in held)
    return visit.page(
        "shopping/checkout.html", status, lines=held, subtotal=subtotal, delivery=DELIVERY, errors=errors, values=values
    )  # fmt: skip


def checkout_page(visit: Visit) -> Response:
    """The form for address and delivery, with the last address filled in."""
    last = visit.row("SELECT * FROM sh_order WHERE owner = ? ORDER BY id DESC", owner(visit))
    values = {key: str(last[key]) for key in ("name", "street", "town", "postcode")} if last else {}
    return _checkout(visit, {}, values)


def checkout(visit: Visit) -> Response:
    """Make the order."""
    form, held = visit.form, lines(visit)
    errors = {}
    for key, words in (("name", "your name"), ("street", "street and number"), ("town", "the town")):
        if not 2 <= len(form.get(key, "")) <= 80:
            errors[key] = f"Enter {words}."
    if not (form.get("postcode", "").isdigit() and len(form["postcode"]) == 5):
        errors["postcode"] = "A postcode has five digits."
    if form.get("delivery", "") not in DELIVERY:
        errors["delivery"] = "Choose how we shall deliver."
    code = form.get("code", "").upper()
    if code and code != visit.meta("delivery_code"):
        errors["code"] = f"{form['code']} is not a delivery code that we know."
    if len(form.get("note", "")) > 300:
        errors["note"] = "Keep the note under 300 characters."
    if errors or not held:
        return _checkout(visit, errors, form, 422)
    subtotal = sum(line["price"] * line["quantity"] for line in held)
    cost = 0 if code else DELIVERY[form["delivery"]][0]
    number = visit.count("SELECT MAX(id) FROM sh_order") + 1
    visit.db.execute(
        "INSERT INTO sh_order VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            number, f"CP-{20400 + number * 37}", owner(visit), now(visit.db), form["name"], form["street"],
            form["town"],
            form["postcode"], form["delivery"], code, form.get("note", ""), subtotal, cost, subtotal + cost, "Received",
        ),
    )  # fmt: skip
    for line in held:
        visit.db.execute(
            "INSERT INTO sh_line VALUES (?,?,?,?,?)",
            (number, line["id"], line["name"], line["quantity"], line["price"]),
        )
        visit.db.execute("UPDATE sh_product SET stock = max(0, stock - ?) WHERE id = ?", (line["quantity"], line["id"]))
    visit.db.execute("DELETE FROM sh_cart WHERE owner = ?", (owner(visit),))
    return visit.go(f"/orders/{number}?said=ordered")


TABLE: Table = {
    "/product/{id:int}/cart": (None, add),
    "/cart": (cart, None),
    "/cart/{id:int}": (None, update),
    "/checkout": (members_only(checkout_page), members_only(checkout)),
}
