"""Scripted players that solve the tasks of ``vwa-mini`` as an agent would: by roles and names on the pages they see."""

from __future__ import annotations

from tasks.sites.oracle.player import Oracle, oracle

__all__ = ["Oracle", "oracle"]
