"""The seeded databases: how much there is, that it repeats, and that a reset is quick."""

from __future__ import annotations

import time

from tasks.sites.pictures import alt_text
from tasks.sites.store import Store, template


def test_the_same_seed_gives_the_same_bytes():
    first = template(3)
    template.cache_clear()
    assert template(3) == first and template(4) != first


def test_there_is_enough_of_everything():
    db = Store(0).db
    count = {t: db.execute(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in
             ("sh_product", "sh_review", "cl_ad", "cl_comment", "fo_post", "fo_comment")}  # fmt: skip
    assert count["sh_product"] == 320 and count["cl_ad"] == 340 and count["fo_post"] == 300
    assert count["sh_review"] > 2000 and count["cl_comment"] > 500 and count["fo_comment"] > 2000
    for table, column in (("sh_product", "name"), ("sh_product", "sku"), ("cl_ad", "title"), ("cl_ad", "ref"),
                          ("fo_post", "title")):  # fmt: skip
        assert db.execute(f"SELECT COUNT(DISTINCT {column}) FROM {table}").fetchone()[0] == count[table]
    pictures = [row[0] for t in ("sh_product", "cl_ad", "fo_post") for row in db.execute(f"SELECT picture FROM {t}")]
    assert all(alt_text(name) for name in pictures if name)


def test_no_text_has_an_open_slot():
    db = Store(0).db
    for table, column in (("sh_product", "text"), ("sh_review", "body"), ("cl_ad", "text"), ("cl_ad", "title"),
                          ("cl_comment", "body"), ("cl_message", "body"), ("fo_post", "title"), ("fo_post", "body"),
                          ("fo_comment", "body"), ("fo_user", "about"), ("cl_user", "about")):  # fmt: skip
        bad = db.execute(f"SELECT {column} FROM {table} WHERE {column} LIKE '%{{%' OR {column} LIKE '%}}%'").fetchall()
        assert not bad, (table, column, bad[0][0])


def test_a_reset_takes_milliseconds_and_undoes_everything():
    store = Store(0)
    before = store.db.serialize()
    store.db.execute("DELETE FROM cl_ad")
    store.db.execute("UPDATE meta SET value = 7 WHERE key = 'minutes'")
    start = time.perf_counter()
    store.reset()
    assert time.perf_counter() - start < 0.1
    assert store.db.serialize() == before
