# Needs only Python (3.11 to 3.13), make and git.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.stamp

.DEFAULT_GOAL := help
.PHONY: help quickstart test lint bench study clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*##/\1\t/p' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "fastsim needs Python 3.11, 3.12 or 3.13; give it as make PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,dask]'
	touch $@

quickstart: $(STAMP)  ## eight routers on long documents: a table with intervals and a figure
	$(BIN)/fastsim run sweeps/quickstart.toml

lint: $(STAMP)  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint  ## lint, then all tests compiled, then the small ones uncompiled
	$(BIN)/pytest -q
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q -m small

bench: $(STAMP)  ## benchmarks, printed as ratios where there is something to compare with
	$(BIN)/pytest -q -s tests/bench --benchmark-only --benchmark-disable-gc

study: $(STAMP)  ## statistical studies that take long: coverage, error rates of the overload test, closed forms
	$(BIN)/python -m tests.study.coverage
	$(BIN)/python -m tests.study.cluster_coverage
	$(BIN)/python -m tests.study.stability load
	$(BIN)/python -m tests.study.stability queues
	$(BIN)/python -m tests.study.stability drift
	$(BIN)/python -m tests.study.queueing
	$(BIN)/python -m tests.study.flips

clean:  ## caches and build output; results and .venv stay
	rm -rf .pytest_cache .ruff_cache .hypothesis .benchmarks dist
	find fastsim tests -name __pycache__ -type d -prune -exec rm -rf {} +
