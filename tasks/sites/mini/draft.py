"""One site's tasks under construction."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from typing import Any

from tasks.sites.mini import CARRIES

Look = tuple[str, str, dict[str, Any]]  # address, locator, what is required
LEVELS = ("easy", "medium", "hard")


class Drafts:
    """Tasks of one site, numbered from ``first``, with facts out of a database.

    ``db`` is only read. Each thing is chosen once (``pick``), so that tasks do not help each other.
    """

    def __init__(self, site: str, first: int, db: sqlite3.Connection) -> None:
        self.site, self.first, self.db = site, first, db
        self.home = f"__{site.upper()}__"
        self.dice = random.Random(f"vwa-mini-{site}")
        self.tasks: list[dict[str, Any]] = []
        self._used: set[tuple[str, Any]] = set()

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self.db.execute(sql, values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row:
        """The only row of a query.

        Raises:
            ValueError: there is none, or more than one.
        """
        found = self.rows(sql, *values)
        if len(found) != 1:
            raise ValueError(f"{len(found)} rows instead of one: {sql} {values}")
        return found[0]

    def pick(self, kind: str, sql: str, *values: Any, key: str = "id") -> sqlite3.Row:
        """A row that no earlier task has taken."""
        free = [row for row in self.rows(sql, *values) if (kind, row[key]) not in self._used]
        chosen: sqlite3.Row = self.dice.choice(free)
        self._used.add((kind, chosen[key]))
        return chosen

    def add(
        self,
        template: int,
        text: str,
        values: dict[str, str],
        *,
        level: tuple[int, int] = (0, 0),
        start: str = "/",
        login: bool = False,
        images: Sequence[str] = (),
        carries: str = "",
        includes: Sequence[str] = (),
        excludes: Sequence[str] = (),
        url: str = "",
        looks: Sequence[Look] = (),
        impossible: str = "",
    ) -> None:
        """One task.

        Args:
            template: number of the template; the oracle knows what to do by it.
            text: the intent, with ``{{name}}`` for each of ``values``.
            level: reasoning and visual difficulty, 0 (easy) to 2.
            start: address below the site's.
            carries: the fact that has to be remembered, "" if there is none.
            includes, excludes: what the answer must and must not say.
            url: address below the site's that the agent must end on.
            looks: what pages must say at the end.
            impossible: why it cannot be done; the right answer is N/A.
        """
        intent = text
        for name, value in values.items():
            intent = intent.replace("{{" + name + "}}", value)
        reference: dict[str, Any] | None = None
        if impossible:
            reference = {"fuzzy_match": "N/A"}
        elif includes:
            reference = {"must_include": list(includes)} | ({"must_exclude": list(excludes)} if excludes else {})
        kinds = [
            kind for kind, given in (("string_match", reference), ("url_match", url), ("program_html", looks)) if given
        ]
        images = [f"__HOMEPAGE__/images/{name}.png" for name in images]
        self.tasks.append(
            {
                "sites": [self.site],
                "task_id": self.first + len(self.tasks),
                "require_login": login,
                "storage_state": f"./.auth/{self.site}_state.json" if login else None,
                "start_url": self.home + start,
                "geolocation": None,
                "intent_template": text,
                "intent": intent,
                "instantiation_dict": dict(values),
                "require_reset": True,
                "eval": {
                    "eval_types": kinds,
                    "reference_answers": reference,
                    "reference_url": self.home + url if url else "",
                    "program_html": [
                        {"url": self.home + path, "locator": locator, "required_contents": required}
                        for path, locator, required in looks
                    ],
                    "string_note": impossible,
                    "url_note": "EXACT",
                    "reference_answer_raw_annotation": "N/A" if impossible else ", ".join(includes),
                    "page_image_query": [],
                },
                "reasoning_difficulty": LEVELS[level[0]],
                "visual_difficulty": LEVELS[level[1]],
                "overall_difficulty": LEVELS[max(level)],
                "image": None if not images else images[0] if len(images) == 1 else images,
                "viewport_size": None,
                "intent_template_id": template,
                "comments": f"{CARRIES}: {carries}" if carries else None,
            }
        )


def text_of(selector: str) -> str:
    """A locator: the text of the first element that a CSS selector finds."""
    return f"document.querySelector('{selector}').outerText"


def count_of(selector: str) -> str:
    """A locator: how many elements a CSS selector finds."""
    return f"document.querySelectorAll('{selector}').length"
