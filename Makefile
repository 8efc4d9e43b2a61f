PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint type check bench bench-rivals clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

bench: $(STAMP)  ## measure speed and memory, as ratios of things timed side by side (half an hour); bench.json has all
	$(BIN)/python benchmarks/all.py bench.json
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/flanc_forms.py

bench-rivals:  ## install pfl and Flower in .venv-rivals, so that make bench measures them, too
	$(PYTHON) -m venv .venv-rivals
	.venv-rivals/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	.venv-rivals/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r benchmarks/rivals/requirements.txt

clean:  ## remove .venv and caches (never your runs)
	rm -rf $(VENV) .venv-rivals build .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
