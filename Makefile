PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-whole test-processors lint type check records bench bench-rivals clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

test-slow: $(STAMP)  ## the tests that are not needed at every change
	$(BIN)/pytest -n 2 -m slow

test-whole: $(STAMP)  ## whole runs: the demo, the code in docs, runs and sweeps that are killed at every moment
	$(BIN)/pytest -n 2 -m whole

# What other processors do: other kernels, which round otherwise where memory is laid out otherwise.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
PLAINEST := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2
BIT_TESTS := tests/engines tests/contract tests/methods/test_fedhm.py tests/methods/test_flanc.py

test-processors: $(STAMP)  ## the engine and contract tests as on other processors
	$(AVX2) $(BIN)/pytest -n 2 $(BIT_TESTS)
	$(PLAINEST) $(BIN)/pytest -n 2 $(BIT_TESTS)

lint: $(STAMP)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)  ## check types
	$(BIN)/mypy

check: lint type test test-whole test-processors  ## everything CI runs

records: $(STAMP)  ## keep records of finished reproductions (FROM=their folder) in results/, and write their tables into docs/results.md
	$(BIN)/python benchmarks/records.py $(FROM)

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
