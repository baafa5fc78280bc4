"""The sites' own time: it stands still and moves on by a minute with each thing written."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

START = datetime(2026, 5, 18, 9, 30)


def before(days: int, minutes: int = 0) -> str:
    """The moment that many days (and minutes) before the sites' start."""
    return (START - timedelta(days=days, minutes=minutes)).isoformat(" ", "minutes")


def now(db: sqlite3.Connection) -> str:
    """The time of the next thing written."""
    db.execute("UPDATE meta SET value = value + 1 WHERE key = 'minutes'")
    minutes = int(db.execute("SELECT value FROM meta WHERE key = 'minutes'").fetchone()["value"])
    return (START + timedelta(minutes=minutes)).isoformat(" ", "minutes")


def day(moment: str) -> str:
    """``2026-05-18 09:30`` as ``18 May 2026``."""
    when = datetime.fromisoformat(moment)
    return f"{when.day} {when:%b %Y}"
