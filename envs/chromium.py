"""Find a Chromium to drive: a variable of ours, Playwright's own download, or one on PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from envs.errors import EnvError

VARIABLE = "CONFKV_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "run `python -m playwright install --with-deps chromium` or `apt-get install chromium`"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-site-isolation-trials",
]


def _playwright_download() -> Path | None:
    """The newest Chromium in Playwright's download folder, without starting Playwright."""
    default = Path.home() / ".cache" / "ms-playwright"
    root = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or default)
    patterns = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")
    found = [path for pattern in patterns for path in root.glob(pattern) if os.access(path, os.X_OK)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def find_chromium() -> str:
    """The path of the browser to start.

    Raises:
        EnvError: there is none, or the variable names something that is not an executable file.
    """
    named = os.environ.get(VARIABLE)
    if named:
        path = shutil.which(named)
        if path is None:
            raise EnvError(f"{VARIABLE}={named} is not an executable file; unset it or name a Chromium ({INSTALL})")
        return path
    download = _playwright_download()
    if download is not None:
        return str(download)
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise EnvError(f"no Chromium found; {INSTALL}, or set {VARIABLE} to its path")
