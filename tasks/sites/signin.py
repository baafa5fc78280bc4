"""Logging in and out, the same way on each site."""

from __future__ import annotations

from starlette.responses import Response

from tasks.sites.store import PASSWORD, USERNAME
from tasks.sites.web import Table, Visit


def _safe(address: str) -> str:
    inside = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if inside and address.isprintable() else "/"


def _ask(visit: Visit, errors: dict[str, str], status: int = 200) -> Response:
    after = _safe(visit.query("next", "/"))
    return visit.page(
        "login.html", status, errors=errors, values=visit.form, after=after, demo=(USERNAME, PASSWORD)
    )  # fmt: skip


def login_page(visit: Visit) -> Response:
    """The form."""
    return _ask(visit, {})


def login(visit: Visit) -> Response:
    """Check name and password."""
    name, password = visit.form.get("username", ""), visit.form.get("password", "")
    errors = {}
    if not name:
        errors["username"] = "Enter your user name."
    if not password:
        errors["password"] = "Enter your password."
    known = visit.row("SELECT * FROM account WHERE site = ? AND username = ?", visit.site, name)
    if not errors and (known is None or known["password"] != password):
        errors["password"] = "User name and password do not match."
    if errors:
        return _ask(visit, errors, 422)
    answer = visit.go(_safe(visit.query("next", "/")))
    visit.sign_in(answer, name)
    guest = visit.request.cookies.get("shopping_guest", "")
    if visit.site == "shopping" and guest:
        visit.db.execute(
            "INSERT INTO sh_cart SELECT ?, product_id, quantity FROM sh_cart WHERE owner = ? "
            "ON CONFLICT DO UPDATE SET quantity = quantity + excluded.quantity",
            (f"user:{name}", f"guest:{guest}"),
        )
        visit.db.execute("DELETE FROM sh_cart WHERE owner = ?", (f"guest:{guest}",))
    return answer


def logout(visit: Visit) -> Response:
    """Forget who this is."""
    answer = visit.go("/")
    answer.delete_cookie(f"{visit.site}_user")
    return answer


TABLE: Table = {"/login": (login_page, login), "/logout": (None, logout)}
