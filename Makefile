# make run        the demo: a recorded agent session and its dashboard; PORT=9000 chooses its port
# make quick      the tests of what changed since the last commit, and a core set
# make test       every test but the deep ones; the same examples every time; BROWSER=no without
#                 those in a browser, FIFTH=SEED a fifth of the files, which the seed draws
# make explore    new examples for SECONDS=600; SEED=… the same ones again
# make test-deep  faults at every system call, long fuzzing, new examples of all that draws;
#                 SAMPLE=20 takes that many, SEED=…
# make test-clients  real agents, installed from npm and PyPI into a cache; LATEST=1 the newest,
#                 ONLY="codex or gemini" these
# make check      what must pass before a push; .ci/run is what CI runs
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	&& echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
TESTING := $(VENV)/test-tools $(VENV)/needs
PYTEST := $(BIN)/python -m pytest
ALL_TESTS := $(strip $(BIN)/python .ci/all.py $(if $(filter no,$(BROWSER)),--no-browser) \
	$(if $(FIFTH),--fifth $(FIFTH)))
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run quick test said-how-long explore test-deep test-clients check bench screenshots reference schema lock fmt clean

run: $(VENV)/installed
	$(BIN)/loom-audit demo $(if $(PORT),--port $(PORT))

# a set is iterated in the same order every time
quick test test-deep test-clients check: export PYTHONHASHSEED := 0
# hundreds of processes read the bytecode that the first one writes
quick test explore test-deep test-clients check: export PYTHONDONTWRITEBYTECODE :=

quick: $(TESTING)
	$(BIN)/python .ci/quick.py

test: said-how-long $(TESTING)
	$(ALL_TESTS)

# before anything is installed; it is the first that `make test` needs
said-how-long:
	@echo "make test: the first time it installs for some minutes; then all tests take about ten minutes on two cores"

explore: $(TESTING)
	$(BIN)/python .ci/explore.py --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))

test-deep: $(TESTING)
	$(PYTEST) -m "(deep or drawn) and not clients" -n auto --dist loadfile --no-loadscope-reorder \
		--seed $(or $(SEED),new) $(if $(SAMPLE),--sample $(SAMPLE))

test-clients: export LATEST := $(LATEST)
test-clients: $(TESTING)
	.ci/needs node
	$(PYTEST) -m clients -n 2 --dist loadgroup tests/real_clients $(if $(ONLY),-k "$(ONLY)")

check: $(TESTING)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(ALL_TESTS)

# what things cost, beside what they are compared with; ARGS=--quick, ARGS="--only write"
bench: $(VENV)/installed
	$(BIN)/python -m benchmarks $(ARGS)

# the pictures in docs/, from the dashboard over a new demonstration
screenshots: $(TESTING)
	$(BIN)/python -m tests.web.browser.screenshots docs

# docs/cli.md and docs/tools-reference.md, from the commands and the tools
reference: $(VENV)/installed
	$(BIN)/python -m docs.reference

# the SQL that makes a new store, from loom_audit/sql/tables.py
schema: $(VENV)/installed
	$(BIN)/python -m loom_audit.sql.definition loom_audit/sql/schema.sql

fmt: $(VENV)/test-tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(VENV)/python
	$(BIN)/python .ci/lock.py

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/python:
	@test -n "$(PYTHON)" || { echo "loom-audit needs Python 3.11 or newer" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/python .ci/run.lock pyproject.toml
	@echo "installing what it needs into $(VENV), about a minute"
	$(BIN)/python -m pip install --quiet -r .ci/run.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/test-tools: $(VENV)/installed .ci/test.lock
	@echo "installing what the tests need into $(VENV)"
	$(BIN)/python -m pip install --quiet -r .ci/run.lock -r .ci/test.lock
	touch $@

$(VENV)/needs: .ci/needs $(VENV)/python
	.ci/needs
	touch $@
