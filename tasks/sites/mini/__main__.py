"""``python -m tasks.sites.mini``: write the suite's file anew."""

from tasks.sites.mini import FILE
from tasks.sites.mini.build import text

FILE.write_text(text(), encoding="utf-8")
