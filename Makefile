# Everything a developer types. `make` alone lists it, with when to use what.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Tests that need no daemon, no server and no browser.
QUICK := tests/model tests/engines/embedded tests/engines/conformance/test_engines.py tests/engines/protocol \
  tests/operations tests/worker tests/testing tests/style

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  While you edit: make check. Before you push: make test. After a change to the journal,'
	@echo '  the worker or PostgreSQL: make soak over night, and make bench on a quiet machine.'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Holdfast needs Python 3.11 or newer: set PYTHON=/path/to/python3.11'; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Every file that is installed has one of the hashes of requirements/; what builds Holdfast too.
PIP := $(BIN)/pip --quiet --disable-pip-version-check

$(INSTALLED): pyproject.toml requirements/install.txt | $(BIN)/python
	$(PIP) install --no-deps --require-hashes -r requirements/install.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(READY): pyproject.toml requirements/dev.txt | $(BIN)/python
	$(PIP) install --no-deps --require-hashes -r requirements/dev.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $(INSTALLED) $@

.PHONY: install
install: $(INSTALLED) ## create the virtual environment, with Holdfast only

.PHONY: deps
deps: $(READY) ## create the virtual environment, with all development tools

.PHONY: lint
lint: $(READY) ## style, formatting, import layers
	$(BIN)/ruff check src tests bench scripts examples
	$(BIN)/ruff format --check --quiet src tests bench scripts examples
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

.PHONY: types
types: $(READY) ## mypy --strict
	$(BIN)/mypy

.PHONY: check
check: lint types ## the quick check, about two minutes: lint, types, tests without servers
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK)

.PHONY: test
test: lint types ## the whole check, as CI runs it
	$(BIN)/python -m compileall -q src tests scripts  # hundreds of processes start from these
	$(BIN)/pytest -n 3 --dist worksteal  # a third process, since many tests wait for others

.PHONY: demo
demo: ## 100 jobs, a kill -9 in the middle, and no job lost
	@scripts/demo.sh

.PHONY: library
library: $(INSTALLED) ## the example: events, a bug in a projection, its fix, replay, rebuild
	@$(PIP) install -c constraints.txt -r examples/library/requirements.txt
	@cd examples/library && ../../$(BIN)/python -m library demo

.PHONY: metrics
metrics: ## print the metrics of a running daemon (HOLDFAST_METRICS_PORT, 9090)
	@$(PYTHON) scripts/metrics.py

.PHONY: soak
soak: $(READY) ## the long tests: more of each kind, and 15 minutes of mixed load
	HOLDFAST_TEST_EXAMPLES=5000 HOLDFAST_TEST_KILLS=300 HOLDFAST_TEST_FUZZ_SECONDS=600 \
	  HOLDFAST_TEST_SEEDS=10000 $(BIN)/pytest -n 3 --dist worksteal --timeout 7200 \
	  tests/crash tests/e2e tests/engines tests/simulation
	$(BIN)/python scripts/soak.py

.PHONY: bench
bench: $(READY) ## speed, beside the machine's limits and other queues
	$(BIN)/python -m bench

.PHONY: docs
docs: $(READY) ## generate docs/reference/ from the code
	$(BIN)/python scripts/reference.py

.PHONY: lock
lock: $(BIN)/python ## write constraints.txt and requirements/ anew, within the bounds of pyproject.toml
	$(PIP) install 'uv>=0.9,<1'
	BIN=$(BIN) scripts/lock.sh

.PHONY: audit
audit: $(READY) ## look for known vulnerabilities of what requirements/ names
	@$(PIP) install -c constraints.txt pip-audit
	@$(BIN)/python scripts/audit.py

.PHONY: build
build: $(READY) ## build the wheel and the source distribution
	$(BIN)/python -m build --no-isolation

.PHONY: clean
clean: ## remove everything that can be built again, and ./data unless it holds work
	@scripts/clean_data.sh
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
