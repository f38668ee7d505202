# The two that everyone needs are `make up` and `make test`; `make` alone lists the rest.

PYTHON ?= python3
CC ?= cc
VENV := .venv
BIN := $(VENV)/bin

CORE := gridstat/core
CORE_C := $(filter-out $(CORE)/_core.c $(CORE)/_ends.c,$(sort $(wildcard $(CORE)/*.c)))
CORE_H := $(sort $(wildcard $(CORE)/*.h))
CORE_PYX := $(wildcard $(CORE)/*.pyx $(CORE)/*.pxd)
OUR_C := $(CORE_C) $(sort $(wildcard tests/fuzz/*.c tests/sanitize/*.c benchmarks/*/*.c examples/*.c lab/*/*.c))
OUR_H := $(CORE_H) $(sort $(wildcard tests/fuzz/*.h tests/sanitize/*.h benchmarks/*/*.h examples/*.h lab/*/*.h))
CODE := $(wildcard gridstat lab tests tools benchmarks examples) setup.py
TYPED := $(wildcard gridstat lab tests tools benchmarks examples)

C_STANDARD := -std=gnu11 -pthread -I$(CORE)
C_STRICT := -Wall -Wextra -Wconversion -Werror
ASAN := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
TSAN := -O1 -g -fno-omit-frame-pointer -fsanitize=thread

FUZZERS := $(patsubst tests/fuzz/%.c,build/fuzz/%,$(sort $(wildcard tests/fuzz/*.c)))
STRESSES := $(patsubst tests/sanitize/%.c,%,$(sort $(wildcard tests/sanitize/*.c)))
STRESS_RUNS := $(addprefix build/sanitize/address/,$(STRESSES)) \
	$(addprefix build/sanitize/thread/,$(STRESSES))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install up test test-apart lint type tidy features sanitize sanitize-python sanitize-c portable fuzz \
	bench instructions wheel pins fmt clean soak-faults soak-pipeline soak-simulation promtool attacks \
	mutants path-searches bands

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

PIPELINE ?= 1

up: install ## Install everything, start a grid and its pipeline; Ctrl-C ends it; PIPELINE=0: grid only
	@$(BIN)/gridstat up $(if $(filter 0,$(PIPELINE)),--without-pipeline)

test: install ## Install everything, check the source, run all tests but those of test-apart
	@tools/test.sh $(BIN)

test-apart: install ## Run the long tests of whole chains: up with its pipeline, pip's Java, seven clouds
	@$(BIN)/pytest -q -m apart tests

install: $(VENV)/.built ## Make .venv with gridstat (editable) and the tools in it

lint: $(VENV)/.tools ## Check style: ruff, clang-format, and a strict compile of our C
	@$(BIN)/ruff check -q $(CODE)
	@$(BIN)/ruff format -q --check $(CODE)
	@$(BIN)/clang-format --dry-run --Werror $(OUR_C) $(OUR_H)
	@for source in $(OUR_C); do \
		$(CC) $(C_STANDARD) $(C_STRICT) -O2 -c -o /dev/null $$source || exit 1; done

type: $(VENV)/.built ## Check types, strictly, and the stub against the built core
	@$(BIN)/mypy --no-error-summary $(TYPED)
	@$(BIN)/stubtest --concise --mypy-config-file pyproject.toml \
		--allowlist tools/stubtest_allowed.txt --ignore-unused-allowlist \
		gridstat.core._core gridstat.core._ends

tidy: $(VENV)/.tools ## Test the source itself: layers, caps, words, docs
	@$(BIN)/pytest -q tests/tidy

features: $(VENV)/.built ## List every checklist row, and what the last make test says of it
	@PYTHONPATH=. $(BIN)/python tools/features.py

pins: ## Renew tools/constraints.txt with the newest versions of all that is installed
	@tools/pins.sh $(PYTHON)

fmt: $(VENV)/.tools ## Format Python and C
	@$(BIN)/ruff check -q --fix --select I $(CODE)
	@$(BIN)/ruff format -q $(CODE)
	@$(BIN)/clang-format -i $(OUR_C) $(OUR_H)
	@$(BIN)/python tools/adr_index.py
	@PYTHONPATH=. $(BIN)/python tools/error_reference.py

sanitize: sanitize-python sanitize-c ## Run the core's tests under ASan+UBSan, its stress under TSan too

sanitize-python: $(VENV)/.built
	@tools/sanitize.sh $(BIN)

sanitize-c: $(STRESS_RUNS)
	@for run in $(STRESS_RUNS); do echo "$$run"; $$run || exit 1; done

build/sanitize/address/%: tests/sanitize/%.c $(OUR_H) $(CORE_C)
	@mkdir -p $(@D)
	@$(CC) $(C_STANDARD) $(ASAN) -o $@ $< $(CORE_C)

build/sanitize/thread/%: tests/sanitize/%.c $(OUR_H) $(CORE_C)
	@mkdir -p $(@D)
	@$(CC) $(C_STANDARD) $(TSAN) -o $@ $< $(CORE_C)

portable: $(VENV)/.tools ## Build the portable core by clang with another C library (musl), and run it
	@tools/portable.sh $(BIN)

fuzz: $(FUZZERS) $(VENV)/.built ## Throw malformed datagrams at every parser, under ASan+UBSan
	@for run in $(FUZZERS); do $$run || exit 1; done
	@for run in $(sort $(wildcard tests/fuzz/*.py)); do \
		PYTHONPATH=. $(BIN)/python $$run || exit 1; done

build/fuzz/%: tests/fuzz/%.c $(OUR_H) $(CORE_C)
	@mkdir -p $(@D)
	@$(CC) $(C_STANDARD) $(ASAN) -o $@ $< $(CORE_C)

soak-faults: install ## Break a cloud 300 times and more, in namespaces: nothing may be lost
	@$(BIN)/python -m lab.soak --trials 300

attacks: install ## Send 2,000,000 forged and replayed datagrams, kill 1,000 processes: no effect
	@$(BIN)/python -m lab.attacks.corpus
	@$(BIN)/python -m lab.attacks.kills

soak-pipeline: install ## Kill drivers and recorders 200 times each: nothing lost, no alarm twice
	@$(BIN)/python -m lab.pipeline.soak --kills 200

path-searches: install ## Hold 5,000 path searches on 200 topologies against a solver
	@$(BIN)/python -m lab.path_comparison

bands: install ## Serve the demands of 300 networks by bands and first come: by bands is worth more
	@$(BIN)/python -m lab.simulation.bands --seeds 300

SIMULATION_SEEDS ?= 10000

soak-simulation: install ## Run 10,000 clouds in virtual time, and find every planted bug in as many
	@$(BIN)/python -m lab.simulation --bugs --seeds $(SIMULATION_SEEDS) --jobs 2
	@$(BIN)/python -m lab.simulation --seeds $(SIMULATION_SEEDS) --jobs 2 --per-minute-min 1000
	@$(BIN)/python -m lab.simulation.tree --bugs --seeds $(SIMULATION_SEEDS) --jobs 2
	@$(BIN)/python -m lab.simulation.tree --seeds $(SIMULATION_SEEDS) --jobs 2 --per-minute-min 500
	@$(BIN)/python -m lab.simulation.tree --failpoints
	@$(BIN)/python -m lab.simulation.tree.disjoint --trees 400

MUTANTS ?=

mutants: install ## Plant small faults in a copy, one at a time: tests must notice; MUTANTS="--list"
	@PYTHONPATH=. $(BIN)/python tools/mutants.py $(MUTANTS)

promtool: install ## Hold a running cloud's metrics against Prometheus' checker (Debian: prometheus)
	@$(BIN)/python tools/promtool.py

bench: install ## Run the forwarding experiment; others: gridstat experiment run NAME
	@$(BIN)/gridstat experiment run forwarding

instructions: ## Count the core's instructions by event (Debian: valgrind); AGAINST=checkout compares
	@$(PYTHON) tools/instructions.py $(if $(AGAINST),--against $(AGAINST))

wheel: $(VENV)/.tools ## Build a wheel and prove that it installs without a compiler
	@tools/wheel.sh $(BIN)

clean: ## Remove all that was built, and the environment
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f $(CORE)/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "gridstat needs Python 3.11 or newer; try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "hint: apt install python3-venv" >&2; exit 1; }

$(VENV)/.tools: pyproject.toml tools/requirements.py tools/constraints.txt | $(BIN)/python
	@echo "Fetching tools and libraries into $(VENV)"
	@$(BIN)/python tools/requirements.py > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
		-r $(VENV)/requirements.txt -c tools/constraints.txt
	@touch $@

$(VENV)/.built: $(VENV)/.tools setup.py $(CORE_C) $(CORE_H) $(CORE_PYX)
	@echo "Compiling the core"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
