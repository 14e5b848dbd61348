# headrace: every chore in one place. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS := -n 3 --dist loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install serve test check format map test-clients test-spark-cluster soak sim chaos bench bench-spark demo clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

install: $(STAMP) ## make .venv with headrace in it
	@$(BIN)/python -m compileall -q headrace pyspark_headrace

$(STAMP): pyproject.toml setup.py constraints.txt examples/declarative/requirements.txt $(wildcard headrace/*/*.pyx headrace/*/*.pxi) tools/venv.sh
	@PYTHON=$(PYTHON) sh tools/venv.sh $(VENV)
	@touch $@

serve: install ## run a broker on 127.0.0.1:9092 with its data in ./data
	@exec $(BIN)/headrace serve --data data

test: install ## run the tests (under 12 minutes on two cores)
	@exec $(BIN)/python -m pytest tests $(WORKERS)

check: $(STAMP) ## lint, types, layers, tidiness
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/unit/test_tidy.py tests/unit/test_index.py

format: $(STAMP) ## put the code into the house format
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

map: $(STAMP) ## bring the map in docs/architecture.md up to date with the tree
	@exec $(BIN)/python tools/draw_map.py

test-clients: $(STAMP) ## the Java client, franz-go and kcat too; writes docs/compatibility.md
	@exec $(BIN)/python -m tests.clients.foreign

test-spark-cluster: $(STAMP) ## source and sink on a standalone Spark cluster: a master and two workers
	@exec $(BIN)/python -m tests.spark.standalone

soak: $(STAMP) ## tests at full length, in parts of at most 45 minutes: PART=name, PART=all; alone it lists them
	@$(BIN)/python -m tests.parts $(PART)

sim: $(STAMP) ## simulated clusters under faults: SEEDS=100, or one with SEED=17
	@exec $(BIN)/python -m sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100))

chaos: $(STAMP) ## a real cluster under real faults, as root: MINUTES=5 SEED=1
	@exec $(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1)

bench: $(STAMP) ## headrace beside Apache Kafka in one run
	@exec $(BIN)/python -m bench

bench-spark: $(STAMP) ## headrace's Spark source and sink beside Spark's own Kafka connector
	@exec $(BIN)/python -m bench.spark

demo: $(STAMP) ## a broker, web logs, and pipelines on Spark that deduplicate, archive and aggregate them
	@exec $(BIN)/python -m examples.demo $(if $(SECONDS),--seconds $(SECONDS))

clean: ## remove the environment and everything built
	rm -rf $(VENV) build *.egg-info headrace/*/_*.c headrace/*/_*.so
