"""The suite's file as text."""

from __future__ import annotations

import json
from typing import Any

from tasks.sites.mini import SEED, classifieds, forum, shopping
from tasks.sites.store import Store


def records() -> list[dict[str, Any]]:
    """All tasks with their reference answers, out of the seeded database."""
    store = Store(SEED)
    try:
        return [task for part in (classifieds, shopping, forum) for task in part.drafts(store.db).tasks]
    finally:
        store.close()


def text() -> str:
    """The tasks as JSON."""
    return json.dumps(records(), ensure_ascii=False, indent=1) + "\n"
