PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint type check bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv with everything Potluck needs

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Potluck needs Python 3.11 or newer; try make PYTHON=python3.11")'
	@echo "Setting up $(VENV) (a minute or two the first time) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)  ## five federations of unequal devices on handwritten digits, side by side
	$(BIN)/potluck demo

test: $(STAMP)  ## run the tests (a few minutes on 2 cores)
	$(BIN)/pytest -n 2

lint: $(STAMP)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)  ## check types
	$(BIN)/mypy

check: lint type test  ## everything CI runs

bench: $(STAMP)  ## measure speed, as ratios of things timed side by side
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/aggregation.py
	$(BIN)/python benchmarks/fedhm_server.py
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/flanc_forms.py

clean:  ## remove .venv and caches (never your runs)
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
