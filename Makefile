# Set-up, training and tests from a bare clone. Needs Python 3.11 or newer, and nothing else.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: train test check lint format clean

train: $(VENV)/.ready-mpi
	$(BIN)/exarl train --agent DQN-v0 --env CartPole-v1 --total_steps 150000 --target_reward 475 --seed 4

# Two at a time, but for tests that measure how long or how busily somebody waits.
ALONE := tests/mpi/test_seed.py tests/mpi/test_waiting.py
test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ALONE:%=--ignore=%)
	$(BIN)/python -m pytest $(ALONE)

# The gate: what must hold before a change goes in.
check: lint test

lint: $(VENV)/.ready-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(VENV)/.ready-dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf $(VENV) build dist src/exarl.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# -- set-up; the stamps are newer than what they were made from when nothing is to be done ----------

$(VENV)/.ready-mpi: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing EXARL into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[mpi]'
	@touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing EXARL and its developers' tools into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.ready-mpi $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	"EXARL needs Python 3.11 or newer ('$(PYTHON)' is not): make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@
