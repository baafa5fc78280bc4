#!/usr/bin/env bash
# Prints the path of a Chromium that starts, installing one where none is found. Order: $CONFKV_CHROMIUM,
# Playwright's own, chromium or google-chrome on PATH; else `playwright install`, else Debian's package.
set -uo pipefail
cd "$(dirname "$0")/.."
say() { printf 'setup: %s\n' "$*" >&2; }
starts() { [ -x "$1" ] && timeout 30 "$1" --version >/dev/null 2>&1; }
found() { say "browser: $1 ($(timeout 30 "$1" --version 2>/dev/null))"; echo "$1"; exit 0; }

playwrights_own() {
  .venv/bin/python - <<'PY' 2>/dev/null
from playwright.sync_api import sync_playwright
with sync_playwright() as p:
    print(p.chromium.executable_path)
PY
}
on_path() {
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" && return
  done
}
look() {
  for candidate in "$(playwrights_own)" "$(on_path)"; do
    if [ -n "$candidate" ] && starts "$candidate"; then found "$candidate"; fi
  done
}

if [ -n "${CONFKV_CHROMIUM:-}" ]; then
  starts "$CONFKV_CHROMIUM" && found "$CONFKV_CHROMIUM"
  say "CONFKV_CHROMIUM=$CONFKV_CHROMIUM does not start; unset it or name a Chromium that does"
  exit 2
fi
look
# Whether Playwright's download host can be reached at all: its own retries take most of a minute to find out.
host_answers() {
  .venv/bin/python - "${PLAYWRIGHT_DOWNLOAD_HOST:-https://cdn.playwright.dev}" <<'PY' 2>/dev/null
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError:
    pass  # the host answered
PY
}
playwright=(.venv/bin/python -m playwright)
say "no Chromium found; trying: playwright install chromium"
if host_answers && PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT=15000 timeout 240 "${playwright[@]}" install chromium >&2; then
  look
  # It is there and does not start: libraries are missing, which only root can install.
  [ "$(id -u)" = 0 ] && timeout 240 "${playwright[@]}" install-deps chromium >&2 && look
  "${playwright[@]}" uninstall >&2 # one that cannot start must not be found before one that can
else
  say "Playwright could not download its Chromium"
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "trying: apt-get install chromium"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >&2
  look
fi
say "no Chromium could be installed. Run one of these, then 'make' again:"
say "  .venv/bin/playwright install --with-deps chromium"
say "  sudo apt-get update && sudo apt-get install -y chromium"
exit 2
