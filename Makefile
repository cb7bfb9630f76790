# Two commands for newcomers: `make demo` and `make test`. `make help` lists the rest.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled at install: where PYTHONDONTWRITEBYTECODE is set, every Python process would compile them for itself.
SHIPPED := keyedwm pyspark_wm_source pyspark_wm_sink
UV := uv==0.13.9
PYTHON_CHECK := 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "keyedwm needs Python 3.10 or newer; found %s: install it, or name one with make PYTHON=..." % sys.version.split()[0])'
# Spark looks formats up with this interpreter, and runs its workers with it.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
# Empty is unset: otherwise each of the hundreds of Python processes that tests start compiles modules for itself.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install java demo demo-installed demo-spark demo-packages test check quick lint unit campaign upgrade soak mutants fuzz simulate bench bench-guard profile cluster cluster-test matrix platforms broker docs docs-figures lock version wheel release-check clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## a virtual environment with everything pinned by requirements.lock

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c $(PYTHON_CHECK)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q $(SHIPPED) conformance
	@touch $@

java: install
	@$(BIN)/python -m keyedwm.testing.java

demo: $(VENV)/.demo  ## the main job on real flights and a real Kafka, side by side with Spark's own watermark
	@$(BIN)/keyedwm demo

# Less than `install`: no tests and no linters. Spark is built from its sources, which takes as long as all the others;
# its Ivy then fetches jars while these are installed.
SPARKS := pyspark|py4j
PINNED := $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps

$(VENV)/.demo: requirements.demo.lock pyproject.toml
	@$(PYTHON) -c $(PYTHON_CHECK)
	@$(PYTHON) -m keyedwm.testing.java
	@test -f $(VENV)/.installed || $(MAKE) --no-print-directory demo-installed
	@touch $@

demo-installed:
	@echo "step 1 of 4: an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) && mkdir -p build
	@echo "step 2 of 4: installing Spark, the other packages, and fetching Kafka, side by side (a minute or two)"
	@$(MAKE) --no-print-directory --jobs 2 demo-spark demo-packages
	@echo "step 3 of 4: installing keyedwm, and compiling what reading needs"
	@$(PINNED:--require-hashes=) --no-build-isolation -e .
	@$(BIN)/python -m compileall -q $(SHIPPED)
	@echo "step 4 of 4: the demo"

demo-spark:
	@awk '/^[^ ]/ {keep = /^($(SPARKS))==/} keep' requirements.demo.lock > build/demo-spark.txt
	@$(PINNED) -r build/demo-spark.txt && echo "  Spark is installed" && $(BIN)/python -m examples.demo.fetch && echo "  jars are fetched"

demo-packages:
	@awk '/^[^ ]/ {keep = !/^($(SPARKS))==/} keep' requirements.demo.lock > build/demo-packages.txt
	@$(PINNED) -r build/demo-packages.txt && echo "  the other packages are installed"

test: java  ## linters and every test; what CI runs
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint build/spark-classes.jsa build/compiled.txt
	@$(MAKE) --no-print-directory unit

check: build/compiled.txt  ## linters and the tests that start no broker, no Spark and no process, of long files one case each: a minute and a half
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint quick

quick: install
	@$(BIN)/pytest -q --quick -n 2 --dist worksteal

lint: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# A test file runs in one of these processes, each with a broker and a Spark of its own: tests mostly wait for them.
WORKERS ?= 3

# Half the processor time of each of the hundred times that tests start Spark or Kafka.
build/kafka-classes.jsa: $(VENV)/.installed | java
	@$(BIN)/python -W ignore -m tests.shared_classes kafka $@

build/spark-classes.jsa: $(VENV)/.installed | build/kafka-classes.jsa
	@$(BIN)/python -W ignore -m tests.shared_classes spark $@

# Compiled once: else each of the processes that tests start at the same time compiles the same functions.
KERNELS := $(shell grep -rl 'runtime.compiled import' $(SHIPPED) --include='*.py')
build/compiled.txt: $(VENV)/.installed $(KERNELS)
	@mkdir -p build
	@$(BIN)/keyedwm warm --worker > $@

unit: install
	@$(MAKE) --no-print-directory --jobs 2 build/spark-classes.jsa build/compiled.txt
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=10

campaign: java  ## break running pipelines in every way (KILLS=40 SEED=7 WHERE=cluster TARGET=iceberg), and count what is lost, doubled, reordered
	@$(BIN)/python -m tests.e2e.campaign --kills $(or $(KILLS),40) $(if $(SEED),--seed $(SEED)) $(if $(WHERE),--where $(WHERE)) $(if $(TARGET),--targets $(TARGET))

upgrade: java build/compiled.txt  ## start pipelines of earlier versions, kill them in mid-batch, continue with this checkout, and count rows (ARGS="--from 0.4.0 --how savepoint"; minutes a trial)
	@$(BIN)/python -m tests.upgrade $(ARGS)

soak: java build/compiled.txt  ## two queries at 20,000 events/s for two hours, with kills; nothing may be lost or grow (ARGS="--minutes 10 --seed 7")
	@$(BIN)/python -m tests.soak $(ARGS)

simulate: install  ## play seeds of a simulated cluster with faults (SEEDS=200 FROM=1): rows must be exact, once, in order; WEEK=1 plays a week of each
	@$(BIN)/python -m tests.system.world --seeds $(or $(SEEDS),200) --from $(or $(FROM),1) $(if $(WEEK),--week)

fuzz: install  ## made-up bytes for every reader, by coverage (SECONDS=600); what reaches new code is kept in tests/fuzzing/corpus
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade --target build/fuzz -r tests/fuzzing/requirements.txt
	@PYTHONPATH=$(CURDIR):$(CURDIR)/build/fuzz $(BIN)/python -m tests.fuzzing.by_coverage --seconds $(or $(SECONDS),600)

mutants: install  ## break every rule on purpose: the suite must notice each (a quarter of an hour)
	@$(BIN)/python tests/mutants/run.py

# What workers and Spark say beside the figures goes into build/bench-NAME.log.
bench: java  ## our jobs and Spark's in turn by the rules of benchmarks/README.md, some hours (ONLY=NAME: one part; ARGS="--pairs 2": options of that part), and docs/reference/performance.md out of what came out
	@mkdir -p build
	@for one in $(or $(ONLY),source formats sink windows join nexmark store state restart start small_batch latency planning control_rows memory idle); do \
	  echo "$$one, from $$(date +%H:%M)"; \
	  $(BIN)/python -W ignore -m benchmarks.$$one $(ARGS) 2>build/bench-$$one.log || { tail -n 20 build/bench-$$one.log; exit 1; }; \
	done
	@$(BIN)/python -m benchmarks.table

bench-guard: java  ## short forms of source, windows, join and start; fails if a ratio to Spark's fell by more than a tenth in two runs (ONLY=source; ARGS=--store stores those in which two runs agree)
	@$(BIN)/python -W ignore -m benchmarks.guard $(addprefix --only ,$(ONLY)) $(ARGS)

profile: java  ## where the time of a micro-batch goes: a table, and a flame graph of each part in build/profile
	@$(BIN)/python -W ignore -m benchmarks.profiles

cluster: java  ## keep three Kafka brokers, a Spark cluster of three workers and an object store running, and say how to use them
	@$(BIN)/python -m tests.support

cluster-test: install  ## the tests that start a Spark cluster, of which make test runs a minute (half an hour)
	@$(BIN)/pytest -q -m cluster tests/cluster

matrix: install  ## the contract tests with other versions of Python, PySpark and the dependencies (CELLS="lowest python-3.13"; ten minutes a cell)
	@UV_PACKAGE=$(UV) $(BIN)/python -m tests.matrix $(CELLS)

platforms: java  ## trials with servers, clusters and catalogs of other makers, downloaded on first use (TRIALS="kfake yarn"; an hour)
	@$(BIN)/python -m tests.platforms $(TRIALS)

broker: java  ## keep a real Kafka running and print its address
	@$(BIN)/keyedwm broker

docs-figures: install  ## draw the figures of docs/design/rules.md and docs/design/architecture.md again, from the code
	@$(BIN)/python docs/figures/draw.py
	@$(BIN)/python docs/figures/packages.py

docs:  ## the documentation site in build/site, from the pages of docs/ and the docstrings
	@test -f build/docs/.installed || { $(PYTHON) -m venv build/docs && build/docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r docs/site/requirements.txt && touch build/docs/.installed; }
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --quiet
	@echo "build/site/index.html: $$(find build/site -name '*.html' | wc -l) pages, $$(du -sm build/site | cut -f1) MB"

# Not `kerberos`: gssapi is compiled against the Kerberos library of the machine.
LOCKED := plot iceberg prometheus otel demo test build

lock:  ## pin the dependencies again
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/pip install --quiet --disable-pip-version-check $(UV)
	@build/lock/bin/uv pip compile pyproject.toml $(LOCKED:%=--extra %) --universal --python-version 3.10 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --quiet -o requirements.lock
	@build/lock/bin/uv pip compile pyproject.toml --extra demo --extra build -c requirements.lock --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --quiet -o requirements.demo.lock
	@build/lock/bin/uv pip compile docs/site/requirements.in --universal --python-version 3.10 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --quiet -o docs/site/requirements.txt
	@build/lock/bin/uv pip compile tests/packaging/requirements.in --universal --python-version 3.10 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --quiet -o tests/packaging/requirements.txt

# What the wheel is built with, by the hashes of requirements.lock, in an environment without Spark, tests and linters.
BUILD := build/wheel
BUILD_TOOLS := hatchling|packaging|pathspec|pluggy|tomli|tomlkit|trove-classifiers

$(BUILD)/.installed: requirements.lock
	@$(PYTHON) -m venv $(BUILD)
	@awk '/^[^ ]/ {keep = /^($(BUILD_TOOLS))==/} keep' requirements.lock > $(BUILD)/requirements.txt
	@$(BUILD)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(BUILD)/requirements.txt
	@touch $@

version:  ## write a new version into the package, README, changelog, quickstart and conda recipe (TO=0.5.0, or 0.6.0.dev0)
	@test -n "$(TO)" || { echo "say which: make version TO=0.5.0"; exit 2; }
	@$(PYTHON) -m tests.packaging.version $(TO)

wheel: $(BUILD)/.installed  ## dist/keyedwm-VERSION-py3-none-any.whl, half a minute, for pip install
	@$(BUILD)/bin/python -m hatchling build -t wheel

release-check: install  ## build wheel and sdist twice, and look at bytes, metadata, contents, vulnerabilities, licences, import time; install them on Python 3.10 to 3.14 (ONLY="licences installs" PYTHONS="3.10 3.14"; half an hour)
	@test -f build/release/.installed || { $(PYTHON) -m venv build/release && build/release/bin/pip install --quiet --disable-pip-version-check --require-hashes -r tests/packaging/requirements.txt && touch build/release/.installed; }
	@$(BIN)/python -m tests.packaging.release $(ONLY)

clean:  ## remove what make made
	rm -rf $(VENV) build dist
