# Everything a developer types. `make` alone lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Holdfast needs Python 3.11 or newer: set PYTHON=/path/to/python3.11'; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(INSTALLED) $@

.PHONY: install
install: $(INSTALLED) ## make the virtual environment with Holdfast alone in it

.PHONY: deps
deps: $(READY) ## make the virtual environment with everything in it

.PHONY: lint
lint: $(READY) ## style, formatting, layers
	$(BIN)/ruff check src tests bench scripts
	$(BIN)/ruff format --check --quiet src tests bench scripts
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

.PHONY: types
types: $(READY) ## mypy --strict
	$(BIN)/mypy

.PHONY: test
test: lint types ## the whole check; a third process, since many tests wait for others
	$(BIN)/python -m compileall -q src tests scripts  # hundreds of processes start from these
	$(BIN)/pytest -n 3 --dist worksteal

.PHONY: demo
demo: ## 100 jobs, a kill -9 in the middle, and nothing lost
	@scripts/demo.sh

.PHONY: metrics
metrics: ## what a running daemon counts (HOLDFAST_METRICS_PORT, 9090)
	@$(PYTHON) -c "import os, urllib.request as u; print(u.urlopen('http://127.0.0.1:' \
	  + os.environ.get('HOLDFAST_METRICS_PORT', '9090') + '/metrics').read().decode(), end='')"

.PHONY: soak
soak: $(READY) ## the long versions: more of everything, and 15 minutes of mixed load
	HOLDFAST_TEST_EXAMPLES=5000 HOLDFAST_TEST_KILLS=300 HOLDFAST_TEST_FUZZ_SECONDS=600 \
	  HOLDFAST_TEST_SEEDS=10000 $(BIN)/pytest -n 3 --dist worksteal --timeout 7200 \
	  tests/crash tests/e2e tests/engines tests/simulation
	$(BIN)/python scripts/soak.py

.PHONY: bench
bench: $(READY) ## speed, beside the machine's limits and what people use today
	$(BIN)/python -m bench

.PHONY: docs
docs: $(READY) ## write docs/reference/ anew from the code
	$(BIN)/python scripts/reference.py

.PHONY: build
build: $(READY) ## make the wheel and the source distribution
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt build
	$(BIN)/python -m build

.PHONY: clean
clean: ## remove everything that can be made again
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
