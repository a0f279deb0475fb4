# `make analyze` and `make test` set up all they need in .venv on a machine with python 3.11+, venv, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: analyze test lint clean

$(VENV)/.analyzer: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: $(VENV)/.analyzer
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0 || true
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[simulator,dev]'
	touch $@

analyze: $(VENV)/.analyzer
	@$(BIN)/ccache analyze $(ARGS)

test: $(VENV)/.dev
	OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist
