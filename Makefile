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

# The real model is 92 MB; without it the tests that need its weights are skipped and say so.
$(VENV)/.model: $(VENV)/.dev
	$(BIN)/ccache simulate model --fetch && touch $@ || true

test: $(VENV)/.dev $(VENV)/.model
	OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n auto

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist
