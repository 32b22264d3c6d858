# Every target does the set-up it needs by itself: nothing to install, export or start before.
SHELL := /bin/sh
BIN := .venv/bin
SET_UP := .venv/.set-up
CLASSES := .venv/.java-classes

# Tests start hundreds of processes. If bytecode were not kept, each would compile a hundred modules.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo trading payments test test-servers deep-test check quick servers object-store-test cluster-test \
	connect-test tables-test versions newest-numba lowest pythons fuzz fuzz-text fuzz-readers sweep soak bench docs wheel package-test \
	lock clean java warm

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' Makefile | awk -F@ '{printf "%-20s%s\n", $$1, $$2}'

demo: java  ## generate card traffic with planted fraud, stream it through Spark, score the alerts
	$(BIN)/python -m scenarios.fraud $(ARGS)

trading: java  ## generate orders with planted abuse, stream them through Spark, score the alerts
	$(BIN)/python -m scenarios.trading $(ARGS)

payments: java  ## fetch and start Kafka and PostgreSQL, run a shop with its rules, say what arrived where
	@$(BIN)/python tools/servers/fetch.py wheels kafka
	$(BIN)/python -m scenarios.payments $(ARGS)

# Two processes take the files of tests in turn: tests of Spark and servers wait a good deal. A third one was
# not faster on two cores, because it starts a Spark of its own. A session and each server are started once in a process;
# the files of tests/unit are small and come last, so both end together.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder

# The type checker, the list of Java's classes and most of the compilation use one core each, for half a minute.
test: java  ## check, then run all tests
	@$(MAKE) --no-print-directory -j2 check warm $(CLASSES)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

check: $(SET_UP)  ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Of the random cases: those that compare the engine with the oracle, one test for each kind of rules.
RANDOM := tests/property/test_engine.py::test_engine_reports_what_the_oracle_reports \
	tests/property/test_window_rules.py::test_window_rules_have_the_rows_of_the_oracle \
	tests/property/test_tables.py::test_the_engine_reports_what_the_oracle_reports_of_tables \
	tests/property/test_chains.py::test_rules_over_rules_report_what_the_oracle_reports

# Left to the gate: three files that take a seventh of the time. They run thousands of commands over damaged
# checkpoints, and long random lives of pipelines.
NOT_QUICK := $(addprefix --ignore=tests/unit/,commands/test_damaged_checkpoint.py \
	spark_runtime/pipeline/test_corrected_gaps.py spark_runtime/state/test_snapshots_ahead.py)

quick: check warm  ## check, then run the tests that need no Spark, no server and no Java: two minutes
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not spark" $(NOT_QUICK) tests/unit tests/golden $(RANDOM) $(ARGS)

test-servers: servers $(CLASSES)  ## fetch the servers, then run the tests that were left out without them
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --left-out $(ARGS)

deep-test: servers $(CLASSES)  ## the tests that look further than the gate, and twice its random cases
	CEP_SERVERS=required $(BIN)/python -m pytest $(SIDE_BY_SIDE) --deep $(ARGS)
	CEP_DEEP=all $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/property tests/spark/test_random_rules.py $(ARGS)

servers: java warm  ## fetch the servers that tests talk to: Kafka, PostgreSQL, ...
	@$(BIN)/python tools/servers/fetch.py

object-store-test: java warm  ## run pipelines on S3 as moto plays it, kill their drivers, compare with a local run
	@$(BIN)/python tools/servers/fetch.py wheels object-stores
	$(BIN)/python -m pytest -q tests/e2e/object_stores.py $(ARGS)

cluster-test: java warm  ## run pipelines on a standalone cluster, kill its workers and drivers, compare with a local run
	$(BIN)/python -m pytest -q tests/e2e/clusters.py $(ARGS)

wheel: $(SET_UP)  ## build a wheel in dist/ that contains compiled kernels: four minutes of processor time, once
	$(BIN)/python tools/build_wheel.py

package-test: java wheel  ## install the wheel, package a pipeline, run it on a cluster that cannot compile
	$(BIN)/python -m pytest -q -rP tests/e2e/packages.py $(ARGS)

tables-test: java warm  ## run detect on tables of Delta and Iceberg with the connectors that Spark has for them
	@$(BIN)/python tools/servers/fetch.py lake-tables
	$(BIN)/python -m pytest -q tests/e2e/lake_tables.py $(ARGS)

connect-test: java warm  ## run the tests of `detect` against a server of Spark Connect
	CEP_SPARK_CONNECT=1 $(BIN)/python -m pytest tests/spark tests/spark/connect.py tests/spark/declarative.py $(ARGS)

versions: java warm  ## try the older versions of PySpark that are supported, in a short form
	$(BIN)/python -m tests.e2e.versions $(ARGS)

newest-numba: $(SET_UP)  ## run the tests of cep/jit with the newest numba, which pyproject.toml may not allow yet
	@$(BIN)/python -m tests.e2e.newest_numba

lowest: $(SET_UP)  ## try the lowest versions of packages that pyproject.toml allows: tests/unit, some of Spark
	$(BIN)/python -m tests.e2e.environments lowest

pythons: $(SET_UP)  ## the same with the other supported Pythons that this machine has
	$(BIN)/python -m tests.e2e.environments pythons

fuzz: warm  ## compare engine and oracle on new random rules and streams: ARGS="--minutes 10 --jobs 2"
	$(BIN)/python -m tests.property $(or $(ARGS),--minutes 10)

fuzz-text: $(SET_UP)  ## read random and damaged rule and streams files: ARGS="--examples 100000 --jobs 2"
	$(BIN)/python -m tests.property.text $(or $(ARGS),--minutes 10)

fuzz-readers: warm  ## read random and damaged files of events: ARGS="--examples 100000 --jobs 2"
	$(BIN)/python -m tests.property.readers $(or $(ARGS),--minutes 10)

sweep: java warm  ## kill pipelines over all pairs of sources and sinks, compare what they write: ARGS="--kills 200"
	@$(BIN)/python tools/servers/fetch.py
	$(BIN)/python -m tests.e2e.sweep $(or $(ARGS),--kills 200)

soak: java warm  ## run a pipeline for hours, disturb it, compare with a batch, print what grows: ARGS="--hours 2"
	$(BIN)/python -m tests.soak $(ARGS)

bench: java warm .venv/.bench  ## run all benchmarks, each figure beside a no-op; a short form: ARGS=--quick
	$(BIN)/python -m tests.bench $(ARGS)

docs: .venv/.docs  ## build the site of docs/ in out/site, check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

.venv/.bench: $(SET_UP) requirements-bench.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-bench.lock
	@touch $@

.venv/.docs: $(SET_UP) requirements-docs.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

lock:  ## choose the newest packages pyproject.toml allows and pin them (needs python3.11)
	python3.11 -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check pip-tools
	.venv-lock/bin/pip-compile --quiet --upgrade --generate-hashes --extra all --extra lsp --extra mcp \
		--extra dev --strip-extras --allow-unsafe \
		--no-header --no-annotate --no-emit-options --output-file .venv-lock/requirements.lock pyproject.toml
	{ sed -n '/^#/p;/^#/!q' requirements.lock; \
		sed '/^# WARNING/,/^spark-cep @/d' .venv-lock/requirements.lock; } > .venv-lock/new
	mv .venv-lock/new requirements.lock
	for extra in java servers docs bench; do \
		.venv-lock/bin/python -c 'import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
			print("\n".join(project["optional-dependencies"][sys.argv[1]]))' $$extra > .venv-lock/$$extra.in && \
		.venv-lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header \
			--no-annotate --no-emit-options --constraint requirements.lock \
			--output-file .venv-lock/requirements-$$extra.lock .venv-lock/$$extra.in && \
		{ sed -n '/^#/p;/^#/!q' requirements-$$extra.lock; cat .venv-lock/requirements-$$extra.lock; } > .venv-lock/new && \
		mv .venv-lock/new requirements-$$extra.lock || exit 1; \
	done
	rm -rf .venv-lock

clean:  ## remove what was generated; .venv stays
	rm -rf out build dist spark-warehouse metastore_db derby.log *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name .venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

warm: $(SET_UP)  ## compile all of the engine; make demo compiles what it needs
	$(BIN)/python -m cep warm

# Tests start Spark many times; with its classes in a file, each start takes half of the processor time.
$(CLASSES): $(SET_UP) tests/java_classes.py | java
	$(BIN)/python -m tests.java_classes

java: $(SET_UP)
	@tools/require_java.sh

$(SET_UP): pyproject.toml requirements.lock tools/set_up.sh
	@tools/set_up.sh
