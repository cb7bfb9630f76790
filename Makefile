# Two commands for newcomers: `make demo` and `make test`. `make help` lists the rest.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Spark looks formats up with this interpreter, and runs its workers with it.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help install java demo test lint unit campaign mutants bench profile broker lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## a virtual environment with everything pinned by requirements.lock

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "keyedwm needs Python 3.10 or newer; found %s: install it, or name one with make PYTHON=..." % sys.version.split()[0])'
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

java: install
	@$(BIN)/python -m keyedwm.testing.java

demo: java  ## the main job on real flights and a real Kafka, side by side with Spark's own watermark
	@$(BIN)/keyedwm demo

test: java lint unit  ## linters and every test; what CI runs

lint: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: install
	@$(BIN)/pytest

campaign: java  ## break running pipelines in every way (KILLS=40 SEED=7), and count what is lost, doubled, reordered
	@$(BIN)/python -m tests.e2e.campaign --kills $(or $(KILLS),40) $(if $(SEED),--seed $(SEED))

mutants: install  ## break every rule on purpose: the suite must notice each (a quarter of an hour)
	@$(BIN)/python tests/mutants/run.py

# What workers and Spark say beside the figures goes into build/bench-NAME.log.
bench: java  ## our jobs and Spark's in turn (ONLY=NAME: one part; nexmark by its name alone), and docs/performance.md out of what came out
	@mkdir -p build
	@for one in $(or $(ONLY),source sink windows restart latency planning memory); do \
	  echo "$$one, from $$(date +%H:%M)"; \
	  $(BIN)/python -W ignore -m benchmarks.$$one 2>build/bench-$$one.log || { tail -n 20 build/bench-$$one.log; exit 1; }; \
	done
	@$(BIN)/python -m benchmarks.table

profile: java  ## where the time of a micro-batch goes: a table, and a flame graph of each part in build/profile
	@$(BIN)/python -W ignore -m benchmarks.profiles

broker: java  ## keep a real Kafka running and print its address
	@$(BIN)/keyedwm broker

lock: install  ## pin the dependencies anew
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.10 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --quiet -o requirements.lock

clean:  ## remove what make made
	rm -rf $(VENV) build
