# Everything that is done to Holdfast is done from here. `make` alone lists it.

# The Python that .venv is made of; where it is too old, setup looks for a newer one by name.
PYTHON ?= python3
# More words for pytest: make test ARGS="-k limits -x"
ARGS ?=

BIN := .venv/bin
# What `make check` checks the types of; `make proof` checks those of all tests.
TYPED := src tests/typing_examples.py
# What `make compare` runs: us, on each engine the queues that users compare us with, and the bare drivers.
COMPARED := $(addprefix --only ,holdfast huey@sqlite persistqueue pgqueuer procrastinate huey@redis \
	dramatiq rq raw_sqlite@1 raw_postgres@1 raw_redis@1)

# Bytecode is kept, and out of the tree: tests start hundreds of processes that import the same files.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run demo screenshots docs test check size fix proto bench cpu compare proof versions pythons kept

help: ## show this text
	@echo "Holdfast, a durable job queue for Python."
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make test ARGS=\"-k limits\"      hand more words to pytest"
	@echo "  make setup PYTHON=python3.12    choose the Python that .venv is made of"

setup: ## make .venv with all that is needed; at once when nothing has changed
	@PYTHON="$(PYTHON)" bash tools/setup.sh

run: ## see it at work: examples/tour.py
	@PYTHON="$(PYTHON)" bash tools/setup.sh run
	@$(BIN)/python examples/tour.py

demo: setup ## the full thing until Ctrl-C: server, dashboard, worker and jobs: examples/demo.py
	@$(BIN)/python examples/demo.py

screenshots: setup ## take the pictures of docs/dashboard.md again, of a demo that runs
	@$(BIN)/python tools/screenshots.py

docs: setup ## build the documentation site in .cache/site; ARGS=serve shows it while you write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build)

test: check ## check, then all tests but the long ones
	@# Each process imports and collects everything: more than one per processor, for waits, but not many.
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

size: setup ## lines of code and files, by package
	@$(BIN)/python tools/size.py -v

check: setup ## layout, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@# On a busy machine its processes may not start in time (exit code 2): then by one process.
	$(BIN)/mypy -n 2 $(TYPED) || { test $$? = 2 && $(BIN)/mypy $(TYPED); }
	@$(BIN)/python tools/size.py

fix: setup ## put the layout right, and what lint can put right by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: setup ## compile proto/holdfast/v1/queue.proto, after a change
	$(BIN)/python -m grpc_tools.protoc -Iproto --descriptor_set_out=src/holdfast/proto/queue.binpb \
		proto/holdfast/v1/queue.proto

bench: setup ## measure what programs do, on this machine
	$(BIN)/holdfast bench

cpu: setup ## processor time of single adds beside other job queues; a minute or two
	@test -x .cache/bench-venvs/cpu/bin/python || $(PYTHON) -m venv .cache/bench-venvs/cpu
	@.cache/bench-venvs/cpu/bin/python -m pip install -q -e '.[postgres,redis]' huey redis 'pgqueuer[asyncpg,psycopg]'
	@.cache/bench-venvs/cpu/bin/python bench/cpu_add.py $(ARGS)

compare: setup ## measure beside other job queues, three times; about half an hour
	BENCH_VENVS=$(CURDIR)/.cache/bench-venvs $(BIN)/python bench/run.py --runs 3 $(COMPARED) $(ARGS)

proof: setup ## types of the tests, and the long tests: many histories, many processes
	$(BIN)/mypy
	HYPOTHESIS_PROFILE=proof $(BIN)/python -m pytest -m proof --timeout 7200 $(ARGS)

kept: setup ## keep a store of today's layout for the tests of later versions, at each release
	$(BIN)/python -m tests.upgrades.keep

versions: setup ## the suites of the stores on other versions of PostgreSQL and Redis, and on Valkey
	tools/versions.sh $(ARGS)

pythons: setup ## the tests on every Python from 3.11 on that this machine has
	tools/pythons.sh $(ARGS)
