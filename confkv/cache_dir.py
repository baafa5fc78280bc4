"""Where confkv keeps what it fetches and converts."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "CONFKV_CACHE"


def cache_dir() -> Path:
    """The cache root: ``$CONFKV_CACHE``, or ``~/.cache/confkv``. It need not exist yet."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "confkv"
