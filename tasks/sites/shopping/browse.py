"""The front page, shelves, search, and a product with its reviews."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tasks.sites.clock import now
from tasks.sites.seed.kinds import COLOURS, KINDS
from tasks.sites.seed.words import BRANDS
from tasks.sites.shopping.owner import owner
from tasks.sites.web import Table, Visit, members_only, pager, slug

SORTS = {
    "featured": ("Featured", "p.id"),
    "price-up": ("Price: low to high", "p.price, p.id"),
    "price-down": ("Price: high to low", "p.price DESC, p.id"),
    "rating": ("Best rated", "stars DESC, reviews DESC, p.id"),
    "reviews": ("Most reviewed", "reviews DESC, p.id"),
    "newest": ("Newest", "p.added DESC, p.id"),
    "name": ("Name", "p.name, p.id"),
}
REVIEW_SORTS = {
    "newest": ("Newest", "posted DESC, id"),
    "oldest": ("Oldest", "posted, id"),
    "best": ("Highest stars", "stars DESC, posted DESC, id"),
    "worst": ("Lowest stars", "stars, posted DESC, id"),
    "helpful": ("Most helpful", "helpful DESC, id"),
}
SIZES = (12, 24, 48)
SELECT = (
    "SELECT p.*, COUNT(r.id) AS reviews, ROUND(AVG(r.stars), 1) AS stars FROM sh_product p "
    "LEFT JOIN sh_review r ON r.product_id = p.id "
)


def home(visit: Visit) -> Response:
    """The notice with the delivery code, the shelves, and some products."""
    newest = visit.rows(SELECT + "GROUP BY p.id ORDER BY p.added DESC, p.id LIMIT 8")
    best = visit.rows(SELECT + "GROUP BY p.id HAVING reviews > 7 ORDER BY stars DESC, reviews DESC, p.id LIMIT 8")
    reduced = visit.rows(SELECT + "WHERE p.was IS NOT NULL GROUP BY p.id ORDER BY p.was - p.price DESC, p.id LIMIT 4")
    code = visit.meta("delivery_code")
    return visit.page("shopping/home.html", newest=newest, best=best, reduced=reduced, code=code)


def _listing(visit: Visit, title: str, where: str, values: list[Any], **data: Any) -> Response:
    """Products that fit the filters in the address."""
    low, high = visit.number("min"), visit.number("max")
    colour, brand, kind = visit.query("colour"), visit.query("brand"), visit.query("kind")
    for condition, value in (
        ("p.price >= ?", low and low * 100), ("p.price <= ?", high and high * 100), ("p.colour = ?", colour),
        ("p.brand = ?", brand), ("p.kind = ?", kind),
    ):  # fmt: skip
        if value:
            where += f" AND {condition}"
            values.append(value)
    if visit.query("stock"):
        where += " AND p.stock > 0"
    total = visit.count(f"SELECT COUNT(*) FROM sh_product p WHERE {where}", *values)
    sort = visit.query("sort") if visit.query("sort") in SORTS else "featured"
    asked = visit.number("per", 24)
    part = pager(visit, total, asked if asked in SIZES else 24)
    found = visit.rows(
        f"{SELECT} WHERE {where} GROUP BY p.id ORDER BY {SORTS[sort][1]} LIMIT ? OFFSET ?",
        *values, part.size, part.offset,
    )  # fmt: skip
    kinds = {key: kind.label for key, kind in KINDS.items() if not data.get("shelf") or kind.shelf == data["shelf"]}
    chosen = {"min": low, "max": high, "colour": colour, "brand": brand, "kind": kind, "stock": visit.query("stock")}
    return visit.page(
        "shopping/listing.html", title=title, products=found, part=part, sort=sort, sorts=SORTS, sizes=SIZES,
        colours=COLOURS, brands=BRANDS, kinds=kinds, chosen=chosen, **data,
    )  # fmt: skip


def shelf(visit: Visit) -> Response:
    """One shelf."""
    wanted = visit.request.path_params["shelf"]
    names = {slug(kind.shelf): kind.shelf for kind in KINDS.values()}
    if wanted == "all":
        return _listing(visit, "All products", "1 = 1", [], shelf="", q="")
    if wanted not in names:
        return visit.missing("shelf")
    return _listing(visit, names[wanted], "p.shelf = ?", [names[wanted]], shelf=names[wanted], q="")


def search(visit: Visit) -> Response:
    """Products whose name, maker, number, material or text holds every word."""
    q = visit.query("q")
    where, values = "1 = 1", []
    for word in q.split()[:8]:
        where += " AND instr(lower(p.name || ' ' || p.sku || ' ' || p.material || ' ' || p.shelf || ' ' || p.text), ?)"
        values.append(word.lower())
    title = f"Search results for “{q}”" if q else "All products"
    return _listing(visit, title, where, values, shelf="", q=q)


def product(visit: Visit, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    """A product, its facts and its reviews."""
    item = visit.row(SELECT + "WHERE p.id = ? GROUP BY p.id", visit.request.path_params["id"])
    if item is None:
        return visit.missing("product")
    sort = visit.query("reviews") if visit.query("reviews") in REVIEW_SORTS else "newest"
    reviews = visit.rows(
        f"SELECT * FROM sh_review WHERE product_id = ? ORDER BY {REVIEW_SORTS[sort][1]}", item["id"]
    )  # fmt: skip
    alike = visit.rows(
        SELECT + "WHERE p.kind = ? AND p.id != ? GROUP BY p.id ORDER BY p.id LIMIT 4", item["kind"], item["id"]
    )  # fmt: skip
    counts = {stars: sum(review["stars"] == stars for review in reviews) for stars in (5, 4, 3, 2, 1)}
    wished = visit.row("SELECT 1 FROM sh_wish WHERE owner = ? AND product_id = ?", owner(visit), item["id"])
    return visit.page(
        "shopping/product.html", status, item=item, reviews=reviews, alike=alike, counts=counts, sort=sort,
        sorts=REVIEW_SORTS, wished=wished, errors=errors or {}, values=visit.form,
    )  # fmt: skip


def review_page(visit: Visit) -> Response:
    """The form for a review."""
    item = visit.row("SELECT * FROM sh_product WHERE id = ?", visit.request.path_params["id"])
    if item is None:
        return visit.missing("product")
    return visit.page("shopping/review.html", item=item, errors={}, values={})


def review(visit: Visit) -> Response:
    """Keep a review."""
    item = visit.row("SELECT * FROM sh_product WHERE id = ?", visit.request.path_params["id"])
    if item is None:
        return visit.missing("product")
    form, errors = visit.form, {}
    if form.get("stars", "") not in ("1", "2", "3", "4", "5"):
        errors["stars"] = "Choose from one to five stars."
    if not 3 <= len(form.get("title", "")) <= 80:
        errors["title"] = "Give your review a title of 3 to 80 characters."
    if not 10 <= len(form.get("body", "")) <= 4000:
        errors["body"] = "Write at least 10 characters (and at most 4000)."
    if errors:
        return visit.page("shopping/review.html", 422, item=item, errors=errors, values=form)
    visit.db.execute(
        "INSERT INTO sh_review (product_id, author, stars, title, body, posted, helpful) VALUES (?,?,?,?,?,?,0)",
        (item["id"], _name(visit), int(form["stars"]), form["title"], form["body"], now(visit.db)),
    )
    return visit.go(f"/product/{item['id']}?said=review#reviews")


def _name(visit: Visit) -> str:
    known = visit.row("SELECT name FROM account WHERE site = 'shopping' AND username = ?", visit.username)
    return str(known["name"]) if known else visit.username


TABLE: Table = {
    "/": (home, None),
    "/c/{shelf}": (shelf, None),
    "/search": (search, None),
    "/product/{id:int}": (product, None),
    "/product/{id:int}/review": (members_only(review_page), members_only(review)),
}
