"""The suite ``vwa-mini``: 75 tasks on the embedded sites, in the schema of VisualWebArena.

The file ``vwa_mini.json`` is made by ``python -m tasks.sites.mini``: every reference answer in it is computed from the
seeded database.
"""

from __future__ import annotations

from pathlib import Path

SEED = 0
FILE = Path(__file__).resolve().parent.parent / "vwa_mini.json"
CARRIES = "carries a fact"  # begins the ``comments`` of tasks that need something seen many turns earlier
