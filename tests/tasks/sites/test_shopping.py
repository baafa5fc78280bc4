"""The shop from the outside."""

from __future__ import annotations

import re

from tasks.sites.web import money


def _product(sites, where="stock > 5 AND pieces = 1"):
    return sites.store.db.execute(f"SELECT * FROM sh_product WHERE {where} ORDER BY id LIMIT 1").fetchone()


def test_filters_and_sorting_show_what_they_promise(client, sites):
    shop = client("shopping")
    shop.get("/c/kitchen?max=20&sort=price-up&per=48")
    prices = [float(p) for p in re.findall(r'class="price">\$([\d.]+)', shop.html)]
    expected = sites.store.db.execute(
        "SELECT price FROM sh_product WHERE shelf = 'Kitchen' AND price <= 2000 ORDER BY price"
    ).fetchall()
    assert prices == [row[0] / 100 for row in expected] and len(prices) > 3
    shop.get("/search?q=red+mug&colour=red")
    names = re.findall(r'<a href="/product/\d+">(.*?)</a>', shop.html)
    assert names and all("Mug" in name and name.endswith("Red") for name in names)


def test_pages_divide_the_shelf(client):
    shop = client("shopping")
    seen = []
    for page in range(1, 8):
        shop.get(f"/c/all?per=48&page={page}")
        seen += re.findall(r'<h2><a href="/product/(\d+)">', shop.html)
    assert sorted(map(int, seen)) == list(range(1, 321))
    assert "289-320 of 320" in shop.text


def test_an_order_from_cart_to_history(client, sites):
    item = _product(sites)
    shop = client("shopping")
    shop.post(f"/product/{item['id']}/cart", quantity="2")  # as a guest
    assert item["name"] in shop.text and shop.path.startswith("/cart")
    shop.get("/checkout")
    assert shop.path.startswith("/login")
    shop.post(shop.path, username="mira.holt", password="lantern-42")
    assert shop.path == "/checkout" and item["name"] in shop.text  # the guest's cart came along
    code = sites.store.db.execute("SELECT value FROM meta WHERE key = 'delivery_code'").fetchone()[0]
    shop.post("/checkout", name="Mira Holt", street="1 Mill Lane", town="Dunmere", postcode="12345", delivery="Express",
              code=code.lower(), note="Ring <twice>")  # fmt: skip
    assert "Thank you" in shop.text and "Order CP-20622" in shop.text and "Ring <twice>" in shop.text
    assert "<twice>" not in shop.html and f"Delivery cost {money(0)}" in shop.text
    assert f"Total {money(2 * item['price'])}" in shop.text
    shop.get("/orders")
    assert "CP-20622" in shop.text
    left = sites.store.db.execute("SELECT stock FROM sh_product WHERE id = ?", (item["id"],)).fetchone()[0]
    assert left == item["stock"] - 2


def test_bad_input_is_kept_and_explained(client, sites):
    shop = client("shopping").login()
    shop.post(f"/product/{_product(sites)['id']}/cart", quantity="1")
    shop.post("/checkout", name="Mira Holt", street="", town="Dunmere", postcode="12", delivery="Rocket", code="PLUM-1")
    assert shop.status == 422
    for words in (
        "Enter street and number.",
        "five digits",
        "Choose how we shall deliver",
        "PLUM-1 is not a delivery code",
    ):
        assert words in shop.text
    assert 'value="Dunmere"' in shop.html and 'value="PLUM-1"' in shop.html
    assert sites.store.db.execute("SELECT COUNT(*) FROM sh_order").fetchone()[0] == 5


def test_what_cannot_be_bought_is_said(client, sites):
    gone = _product(sites, "stock = 0")
    shop = client("shopping")
    shop.post(f"/product/{gone['id']}/cart", quantity="1")
    assert shop.status == 422 and "sold out" in shop.text
    shop.post(f"/product/{_product(sites)['id']}/cart", quantity="-3")
    assert "between 1 and 20" in shop.text


def test_a_review_counts_at_once(client, sites):
    item = _product(sites)
    shop = client("shopping").login()
    shop.post(f"/product/{item['id']}/review", stars="", title="No", body="short")
    assert shop.status == 422 and "one to five stars" in shop.text and "3 to 80" in shop.text
    shop.post(f"/product/{item['id']}/review", stars="2", title="Wobbly <b>lid</b>", body="The lid wobbles a lot.")
    assert "your review is published" in shop.text and "&lt;b&gt;lid" in shop.html and "by Mira Holt" in shop.text


def test_wishes_letters_and_strangers_orders(client, sites):
    item = _product(sites)
    shop = client("shopping").login()
    shop.post(f"/product/{item['id']}/wish")
    assert shop.path == "/wishlist?said=wished" and item["name"] in shop.text
    shop.post(f"/product/{item['id']}/wish", off="1")
    assert "Nothing here yet" in shop.text
    shop.post("/contact", topic="Returns", number="CP-99999", body="Please send me a label.")
    assert "You have no order CP-99999" in shop.text and "Please send me a label." in shop.html
    shop.post("/contact", topic="Returns", number="cp-20437", body="Please send me a label.")
    assert "order CP-20437" in shop.text
    assert client("shopping").get("/orders/1") and "Log in" in client("shopping").get("/orders/1")
