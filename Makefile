# Everything a newcomer types. `make demo` and `make test` need nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := operators benchmark evaluators submissions leaderboard

.PHONY: help demo setup test test-all test-agents lint format app clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

demo: setup  ## grade the reference kernels on this machine and print the board
	@$(BIN)/kernelmark demo

setup: $(VENV)/.installed  ## make .venv and install everything into it

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Kernelmark needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (torch is the largest part)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[host,models,app,hub,ray,dev]'
	@touch $@

test: setup  ## all tests but the long sweeps (under 10 minutes on 2 cores)
	@tests/system.sh
	@$(BIN)/python -m pytest -n auto -m 'not slow and not agents'

test-all: setup  ## every test, the long sweeps too
	@tests/system.sh
	@$(BIN)/python -m pytest -n auto -m 'not agents'

test-agents: setup  ## real command-line agents, installed from npm and PyPI, on scripted models
	@tests/system.sh
	@$(BIN)/python tests/agents/install.py
	@$(BIN)/python -m pytest -m agents tests/agents

lint: setup  ## ruff and mypy strict
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@MYPYPATH=.typing $(BIN)/mypy $(PACKAGES:%=-p kernelmark.%)

format: setup  ## rewrite the code as `make lint` wants it
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

app: setup  ## the leaderboard, in a browser
	@$(BIN)/kernelmark leaderboard

clean:  ## remove what the other verbs made here
	rm -rf $(VENV) .agents build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
