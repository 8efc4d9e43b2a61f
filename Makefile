PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint type check clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

setup: $(STAMP)  ## create .venv with everything Potluck needs

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Potluck needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)  ## three federations of unequal devices on handwritten digits, side by side
	$(BIN)/potluck demo

test: $(STAMP)  ## run the tests (a few minutes on 2 cores)
	$(BIN)/pytest -n 2 -m 'not slow'

test-slow: $(STAMP)  ## run the tests that take longer
	$(BIN)/pytest -m slow

lint: $(STAMP)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)  ## check types
	$(BIN)/mypy

check: lint type test  ## everything CI runs

clean:  ## remove .venv and caches (never your runs)
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
