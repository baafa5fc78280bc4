"""Classifieds, a shop and a forum that live in this package: same seed, same bytes."""

from __future__ import annotations

from tasks.sites.server import LocalSites, Sites

__all__ = ["LocalSites", "Sites"]
