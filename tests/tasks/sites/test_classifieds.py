"""The classifieds from the outside."""

from __future__ import annotations

import re

AD = {
    "title": "Blue kite, hardly flown", "category": "Outdoors", "price": "17", "condition": "Good", "town": "Dunmere",
    "handover": "Pickup only", "kind": "kite", "colour": "blue", "text": "It flew twice and wants to fly again.",
}  # fmt: skip


def test_filters_and_sorting_show_what_they_promise(client, sites):
    market = client("classifieds")
    market.get("/ads?category=Vehicles&max=900&sort=price-down&per=48")
    prices = [int(p.replace(",", "")) for p in re.findall(r'class="price">\$([\d,]+)', market.html)]
    rows = sites.store.db.execute(
        "SELECT price FROM cl_ad WHERE category = 'Vehicles' AND price <= 900 ORDER BY price DESC"
    )
    assert prices == [row[0] for row in rows] and len(prices) > 5


def test_placing_changing_and_deleting_an_ad(client):
    market = client("classifieds").login()
    market.post("/place", **(AD | {"price": "cheap", "town": ""}))
    assert market.status == 422 and "whole dollars" in market.text and "Choose the town" in market.text
    assert 'value="cheap"' in market.html and AD["text"] in market.html
    market.post("/place", **AD)
    assert market.path == "/ad/341?said=placed" and AD["title"] in market.text and "$17" in market.text
    assert 'alt="A blue kite"' in market.html
    market.post("/ad/341/edit", **(AD | {"price": "15"}))
    assert "$15" in market.text
    market.post("/ad/341/delete")
    assert market.path == "/mine?said=deleted" and AD["title"] not in market.text
    market.post("/ad/1/delete")
    assert market.status == 404  # somebody else's


def test_messages_questions_and_saved_ads(client, sites):
    row = sites.store.db.execute(
        "SELECT a.*, u.username FROM cl_ad a JOIN cl_user u ON u.id = a.seller_id WHERE a.seller_id > 1 LIMIT 1"
    ).fetchone()
    market = client("classifieds")
    market.get(f"/write/{row['username']}")
    assert market.path.startswith("/login?next=")
    market.login()
    market.post(f"/write/{row['username']}?ad={row['id']}", subject="", body="Hello")
    assert market.status == 422 and "Give a subject" in market.text and ">Hello</textarea>" in market.html
    market.post(f"/write/{row['username']}?ad={row['id']}", subject="Your ad", body="Is Monday fine?")
    assert market.path == "/sent?said=sent" and f"{row['username']}" in market.text and "Is Monday fine?" in market.text
    market.post(f"/ad/{row['id']}/ask", body="Does it float?")
    assert "Does it float?" in market.text
    market.post(f"/ad/{row['id']}/save")
    assert market.path == "/saved?said=saved" and row["title"] in market.text


def test_mail_is_private(client):
    market = client("classifieds").login()
    market.get("/inbox")
    assert len(re.findall(r'href="/message/\d+"', market.html)) == 5
    guest = client("classifieds")
    guest.get("/message/1")
    assert guest.path.startswith("/login")
    guest.cookies["classifieds_user"] = "mira.holt/" + "0" * 24
    guest.get("/message/1")
    assert guest.path.startswith("/login")
