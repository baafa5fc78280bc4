"""Ids of our own that survive navigation: the same thing on a page has the same id all episode long."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit


class Ids:
    """Hands out e1, e2, ... in first-seen order, keyed on (page, role, name, nth of its kind)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, int], str] = {}
        self._labels: dict[str, str] = {}

    def page(self, url: str) -> PageIds:
        """Begin one rendering of the page at ``url`` (query and fragment do not matter)."""
        parts = urlsplit(url)
        return PageIds(self, f"{parts.scheme}://{parts.netloc}{parts.path}")

    def get(self, key: tuple[str, str, str, int]) -> str:
        """The id of a key, a new one when it was never seen."""
        if key not in self._known:
            self._known[key] = f"e{len(self._known) + 1}"
            self._labels[self._known[key]] = key[1] + (f' "{key[2]}"' if key[2] else "")
        return self._known[key]

    def label(self, element_id: str) -> str:
        """What an id of this episode stands (or stood) for; "" if it was never given out."""
        return self._labels.get(element_id, "")


class PageIds:
    """Counts repeated (role, name) pairs within one rendering."""

    def __init__(self, ids: Ids, page: str) -> None:
        self._ids, self._page = ids, page
        self._seen: Counter[tuple[str, str]] = Counter()

    def __call__(self, role: str, name: str) -> str:
        nth = self._seen[role, name]
        self._seen[role, name] += 1
        return self._ids.get((self._page, role, name, nth))
