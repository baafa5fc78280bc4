"""The database of one set of sites: in memory, copied from a template that is built once a process and seed."""

from __future__ import annotations

import sqlite3
import threading
from functools import lru_cache
from pathlib import Path

from tasks.sites.seed import classifieds, forum, shopping

USERNAME, PASSWORD = "mira.holt", "lantern-42"
SITES = ("classifieds", "shopping", "forum")
_SCHEMA = Path(__file__).with_name("schema.sql")


def _connect() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    db.row_factory = sqlite3.Row
    return db


@lru_cache(maxsize=4)
def template(seed: int) -> bytes:
    """The seed's database as SQLite's own bytes; the same seed gives the same bytes."""
    db = _connect()
    db.executescript(_SCHEMA.read_text(encoding="utf-8"))
    db.execute("BEGIN")
    db.executemany("INSERT INTO meta VALUES (?, 0)", [("minutes",), ("guests",)])
    db.execute("INSERT INTO meta VALUES ('seed', ?)", (seed,))
    rows = [(site, USERNAME, "Mira Holt", PASSWORD) for site in SITES]
    db.executemany("INSERT INTO account VALUES (?, ?, ?, ?)", rows)
    for part in (classifieds, shopping, forum):
        part.fill(db, seed)
    db.execute("COMMIT")
    held = db.serialize()
    db.close()
    return held


class Store:
    """One database; ``lock`` is held by whoever reads or writes it."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.lock = seed, threading.RLock()
        self.db = _connect()
        self.reset()

    def reset(self) -> None:
        """Back to the seed's bytes."""
        with self.lock:
            self.db.deserialize(template(self.seed))

    def close(self) -> None:
        """Free the memory."""
        with self.lock:
            self.db.close()
