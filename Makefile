# confkv: `make demo` and `make test` do all the set-up they need on a fresh machine.
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.confkv-ready
export PYTHONUNBUFFERED := 1
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: help setup demo test test-all check bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh scripts/chromium.sh
	scripts/setup.sh
	@touch $@

setup: $(STAMP) ## virtual environment, packages, browser

demo: $(STAMP) ## fetch the default model and play the embedded shop task under the policy confkv
	.venv/bin/confkv models --fetch default
	.venv/bin/confkv run --task demo/shop --policy confkv --out runs/demo

test: $(STAMP) ## the tests (without those marked slow)
	$(PY) -m pytest -q -m "not slow"

test-all: $(STAMP) ## all tests, with real models and MiniWoB
	$(PY) -m pytest -q

check: $(STAMP) ## ruff, and mypy --strict on confkv, confkv_kernels and agent
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(STAMP) ## decode ratios, a 30-turn episode, time to first token, INT8 error (about 20 minutes on 2 cores)
	.venv/bin/confkv models --fetch smollm2
	mkdir -p runs/bench
	$(PY) benchmarks/decode.py --json > runs/bench/decode.json
	$(PY) benchmarks/turns.py > runs/bench/turns.json
	$(PY) benchmarks/first_token.py > runs/bench/first_token.json
	$(PY) benchmarks/int8_error.py > runs/bench/int8_error.json

clean: ## remove the virtual environment and tool caches (models stay in ~/.cache/confkv)
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info
