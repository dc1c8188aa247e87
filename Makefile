# One command per job. Each makes what it needs first: `make demo` and `make test` work on a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# The tests start hundreds of processes, which would each compile the sources again.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
SPARK_CLASSES := $(VENV)/spark-classes.jsa
PYTEST_ARGS ?=
# Processes that run tests at the same time; a file's tests stay together. For two cores; more than those:
# much of a test waits, for a process, a disk or a clock.
PYTEST_WORKERS ?= 5
# Also the tests that `make test` leaves out.
ALL := -m ""
# Slow proofs have tests longer than the time that ends a process of the suite.
UNGUARDED := -o faulthandler_timeout=0
DEMO_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=
CHANGES_ARGS ?= --minutes 60
DRILL_ARGS ?=
FUZZ_ARGS ?= --seconds 60

.PHONY: help env demo test test-all test-seconds test-python docs lint format types contracts keywords diagrams bench soak faults matrices cluster groups bookings confirmations jobs-soak spark-kills spark-cluster fuzz fuzz-jobs hostile lock clean fuzz-web fuzz-broker deploys changes standby shortages pipeline-memory both-servers drill

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(STAMP)  ## the Python environment in .venv, from requirements/lock.txt

$(STAMP): requirements/lock.txt pyproject.toml scripts/make-env
	@scripts/make-env $(VENV)
	@touch $@

demo: env  ## the whole system on a year of real flights; the results go to demo-output/
	@$(BIN)/headrace demo $(DEMO_ARGS)

$(SPARK_CLASSES): $(STAMP) tests/java_start.py
	-@$(BIN)/python tests/java_start.py

test: env $(SPARK_CLASSES)  ## every test but the slow ones (PYTEST_ARGS="tests/wire -k header" for some)
	@$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-all: env $(SPARK_CLASSES)  ## every test, also the slow ones, which `make test` leaves out
	@HEADRACE_GROUP_SEEDS=$${HEADRACE_GROUP_SEEDS:-250} HEADRACE_SPARK_SEEDS=$${HEADRACE_SPARK_SEEDS:-80} \
		HEADRACE_PULL_LIVES=$${HEADRACE_PULL_LIVES:-221} \
		$(BIN)/pytest $(ALL) -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-seconds: env $(SPARK_CLASSES)  ## `make test`, and how long each file takes, into tests/seconds.txt and CONTRIBUTING.md
	@$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --junitxml=$(VENV)/tests.xml $(PYTEST_ARGS)
	@$(BIN)/python tests/suite_times.py $(VENV)/tests.xml

test-python:  ## the tests on another Python (PYTHON=python3.14 PYTEST_ARGS="tests/wire"), in .venv-3.14
	@scripts/test-python -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

docs: env  ## the documentation site, in docs/_build; a warning is an error
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

lint: env  ## style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: env  ## rewrite the sources in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: env  ## mypy --strict, over the tests, too
	@$(BIN)/mypy

contracts: env  ## who may import whom
	@$(BIN)/lint-imports

diagrams: env  ## draw the pictures of the pages again
	@$(BIN)/python scripts/draw-diagrams

keywords: env  ## write the types of keyword arguments again, from the configurations
	@$(BIN)/python scripts/make-keywords

bench: env  ## the figures of docs/benchmarks.md, both servers side by side
	@$(BIN)/python bench/run.py $(BENCH_ARGS)

soak: env  ## kills, power cuts, damages, every fault of the disk's calls, 10,000 seeds, 100,000 of groups
	@HEADRACE_KILLS=$${HEADRACE_KILLS:-2000} HEADRACE_CUTS=$${HEADRACE_CUTS:-100} \
		HEADRACE_FLIPS=$${HEADRACE_FLIPS:-100000} HEADRACE_DAMAGES=$${HEADRACE_DAMAGES:-20000} HEADRACE_FAULTS=$${HEADRACE_FAULTS:-all} \
		HEADRACE_SEEDS=$${HEADRACE_SEEDS:-10000} \
		HEADRACE_GROUP_SEEDS=$${HEADRACE_GROUP_SEEDS:-100000} \
		HEADRACE_SPARK_SEEDS=$${HEADRACE_SPARK_SEEDS:-10000} HYPOTHESIS_PROFILE=soak \
		$(BIN)/pytest $(ALL) -s tests/crash tests/sim --timeout=0 $(UNGUARDED) $(PYTEST_ARGS)

faults: env  ## 1,000 lost connections, 10,000 cancelled calls, one lost at each step, on either server
	@HEADRACE_DISCONNECTS=$${HEADRACE_DISCONNECTS:-1000} HEADRACE_CANCELLATIONS=$${HEADRACE_CANCELLATIONS:-10000} \
		HEADRACE_EVERY_LOSS=1 $(BIN)/pytest $(ALL) -s tests/client/test_disconnects.py tests/client/test_faults.py \
		tests/spark/test_lost_links_of_queries.py tests/spark/test_lost_links_of_whole_queries.py --timeout=7200 $(UNGUARDED) $(PYTEST_ARGS)

matrices: env  ## whatever keeps a place or is promised for a time, and whatever happens to it: every cell, on both servers
	@HEADRACE_EVERY_PLACE=1 $(BIN)/pytest $(ALL) tests/moves tests/jobs/test_times.py tests/conformance/test_readers_and_retention.py --timeout=600 $(PYTEST_ARGS)

cluster: env  ## kill, restart, freeze and cut off the leaders of three nats-servers, HEADRACE_ROUNDS (20) times
	@HEADRACE_ROUNDS=$${HEADRACE_ROUNDS:-20} $(BIN)/pytest $(ALL) -s tests/cluster $(PYTEST_ARGS)

groups: env  ## members of groups as processes: HEADRACE_GROUP_EVENTS (200) random events on each kind of server, changes under kills
	@HEADRACE_GROUP_EVENTS=$${HEADRACE_GROUP_EVENTS:-200} \
		$(BIN)/pytest $(ALL) -s tests/group_processes --timeout=3600 $(UNGUARDED) $(PYTEST_ARGS)

bookings: env  ## HEADRACE_BOOKINGS (10,000) payments on each server while workers, the broker or both are killed
	@HEADRACE_BOOKINGS=$${HEADRACE_BOOKINGS:-10000} \
		$(BIN)/pytest $(ALL) -s tests/group_processes/test_booking.py --timeout=3600 $(UNGUARDED) $(PYTEST_ARGS)

deploys: env  ## a worker is deployed HEADRACE_DEPLOYS (200) times under load, on each kind of server
	@HEADRACE_DEPLOYS=$${HEADRACE_DEPLOYS:-200} \
		$(BIN)/pytest $(ALL) -s tests/client/test_deploys.py --timeout=7200 $(UNGUARDED) $(PYTEST_ARGS)

changes: env  ## random changes of everything under traffic (CHANGES_ARGS="--minutes 60 --server nats-server --jobs postgres")
	@$(BIN)/python tests/changes/soak.py $(CHANGES_ARGS)

confirmations: env  ## how many confirmed acknowledgements come again after 40 kills, on either server
	@$(BIN)/python tests/crash/confirmations.py $${HEADRACE_KILLS:-40}

jobs-soak: env  ## 100,000 jobs while workers, the service and PostgreSQL are killed
	@$(BIN)/python tests/jobs_load.py $(SOAK_ARGS)

spark-kills: env  ## kill Spark's driver, its workers and the broker 15 times, in a query that writes exactly once
	@HEADRACE_SPARK_KILLS=$${HEADRACE_SPARK_KILLS:-15} \
		$(BIN)/pytest $(ALL) -s tests/spark/sink/test_kills.py --timeout=0 $(UNGUARDED) $(PYTEST_ARGS)

spark-cluster: env  ## a pipeline on a Spark cluster, beside three NATS servers; a leader and a worker are killed
	@HEADRACE_SPARK_CLUSTER=1 $(BIN)/pytest $(ALL) -s tests/spark/test_spark_cluster.py --timeout=0 $(UNGUARDED) $(PYTEST_ARGS)

standby: env  ## runners of a pipeline killed and frozen, under each kind of lease on each kind of server
	@HEADRACE_EVERY_LEASE=1 $(BIN)/pytest $(ALL) -s tests/pipeline/test_whole_runs.py tests/pipeline/test_surplus.py tests/pipeline/test_lost_java.py --timeout=0 $(UNGUARDED) $(PYTEST_ARGS)

both-servers: env  ## all tests of Spark and of pipelines on both servers; the suite plays on ours what Spark decides
	@HEADRACE_EVERY_SERVER=1 HEADRACE_EVERY_LEASE=1 $(BIN)/pytest $(ALL) -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder tests/spark tests/pipeline $(PYTEST_ARGS)

shortages: env  ## whole runs of pipelines on full disks and with too little memory for Java
	@HEADRACE_SHORTAGES=1 $(BIN)/pytest $(ALL) -s tests/pipeline/test_short_of_disk_and_memory.py --timeout=0 $(UNGUARDED) $(PYTEST_ARGS)

pipeline-memory: env  ## 10,000 short batches of a pipeline: what Java, workers and runner take (BENCH_ARGS="2000 10")
	@$(BIN)/python bench/pipeline_memory.py $(BENCH_ARGS)

drill: env  ## make each thing that stands still on both servers: how long each tool takes to tell (DRILL_ARGS="--seconds 150")
	@$(BIN)/python tests/findings/drill.py $(DRILL_ARGS)

fuzz: env  ## feed the parsers garbage (FUZZ_ARGS="conf --inputs 10000000 --processes 2 --total counts.json")
	@$(BIN)/python fuzz/run.py $(FUZZ_ARGS)

hostile: env  ## how long a neighbour waits while a job service is attacked, a minute of each attack (BENCH_ARGS="--seconds 10 heads")
	@$(BIN)/python bench/hostile_jobs.py $(BENCH_ARGS)

fuzz-jobs: env  ## hostile requests, endpoints, disks against a running job service, for an hour (FUZZ_ARGS="--seconds 600 --seed 7")
	@$(BIN)/python fuzz/jobs_service.py $(if $(filter file,$(origin FUZZ_ARGS)),,$(FUZZ_ARGS))

fuzz-web: env  ## hostile requests and peers against the console and the pages of numbers, for an hour
	@$(BIN)/python fuzz/web_service.py $(if $(filter file,$(origin FUZZ_ARGS)),,$(FUZZ_ARGS))

fuzz-broker: env  ## hostile protocol over sockets against a running broker, beside clients that are served, for an hour
	@$(BIN)/python fuzz/broker_service.py $(if $(filter file,$(origin FUZZ_ARGS)),,$(FUZZ_ARGS))

lock: env  ## resolve the dependencies again, with hashes, into requirements/lock.txt
	@scripts/make-lock $(BIN)/python

clean:  ## remove what the other commands made
	rm -rf $(VENV) .venv-[0-9]* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build docs/_build
	rm -rf spark-warehouse metastore_db derby.log demo-output bench/results
	find src tests bench fuzz -name __pycache__ -type d -prune -exec rm -rf {} +
