# Two commands do everything on a fresh machine: `make lmc` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup lmc test lint bench claims figures clean

help:
	@echo "make lmc      set up if needed, then the main job: linear mode connectivity of ResNet-20 (minutes)"
	@echo "make test     set up if needed, then the test suite"
	@echo "make setup    the environment alone, in $(VENV)"
	@echo "make lint     format check, lint and types"
	@echo "make bench    speed ratios"
	@echo "make claims   work out which claims hold, write their lists into the READMEs"
	@echo "make figures  draw all figures from results/"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "asym needs Python 3.11 or newer; name one with: make PYTHON=python3.12 setup" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -e ".[dev]"
	@touch $(STAMP)

lmc: $(STAMP)
	$(BIN)/python -m studies.lmc --arch resnet20

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(STAMP)
	$(BIN)/python -m benchmarks

claims: $(STAMP)
	$(BIN)/python -m studies.claims --docs README.md results/README.md

figures: $(STAMP)
	$(BIN)/python -m figures

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
