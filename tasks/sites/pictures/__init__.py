"""Pictures of things and places, drawn from a short name: the same name, the same bytes."""

from __future__ import annotations

from tasks.sites.pictures.draw import alt_text, picture

__all__ = ["alt_text", "picture"]
