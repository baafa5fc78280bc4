"""Real text for the benchmarks that need some: a file, or the Python language reference that every Python carries."""

from __future__ import annotations

from pathlib import Path
from pydoc_data.topics import topics


def read(path: Path | None) -> str:
    """The text of ``path``, or about 700 kB of the Python reference.

    Raises:
        SystemExit: the file cannot be read; one line.
    """
    if path is None:
        return "\n\n".join(topics[name] for name in sorted(topics))
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"cannot read {path}: {error}") from error
