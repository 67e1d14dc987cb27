# `make run` starts the demo, `make test` runs the tests; both set up what they need first.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info < (3,14))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.stamp-run
DEV_STAMP := $(VENV)/.stamp-dev
PEERS := tests/peers
NOT_INSTALLED := echo "the packages above could not be installed: is there a network, or an index named by PIP_INDEX_URL? The same command tries again"; exit 1
APT_RUN := python3-venv mosquitto libsystemd-dev
APT_TEST := mosquitto mosquitto-clients mbpoll systemd-container

.PHONY: run test setup setup-dev apt-run apt-test lint unit integration bench gpu nightly lock clean

run: $(RUN_STAMP)
	@exec $(BIN)/python -m gateway.cli.demo --dir var/demo

test: $(DEV_STAMP) lint unit integration

setup: $(RUN_STAMP)
setup-dev: $(DEV_STAMP)

apt-run:
	@packaging/apt-ensure $(APT_RUN)

apt-test:
	@packaging/apt-ensure $(APT_TEST)

$(VENV)/bin/python: | apt-run
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.13 found: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv"; exit 1; }

$(RUN_STAMP): requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing the locked runtime packages into $(VENV) (once)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -q --require-hashes --only-binary :all: -r requirements.lock || { $(NOT_INSTALLED); }
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-build-isolation --no-deps -e .
	@touch $@

$(DEV_STAMP): requirements-dev.lock pyproject.toml | apt-test $(VENV)/bin/python
	@echo "installing the locked development packages into $(VENV) (once)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -q --require-hashes --only-binary :all: -r requirements-dev.lock || { $(NOT_INSTALLED); }
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-build-isolation --no-deps -e .
	@if command -v npm >/dev/null && [ -f $(PEERS)/package-lock.json ]; then cd $(PEERS) && npm ci --no-audit --no-fund --silent; fi
	@touch $(RUN_STAMP) $@

lint: $(DEV_STAMP)
	$(BIN)/ruff format --check gateway tests
	$(BIN)/ruff check gateway tests
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(DEV_STAMP)
	$(BIN)/pytest -m "not nightly" tests/unit tests/property tests/architecture

integration: $(DEV_STAMP)
	$(BIN)/pytest -m "not nightly" tests/integration tests/fuzz tests/mutation

bench: $(DEV_STAMP)
	$(BIN)/python -m tests.bench

gpu: $(DEV_STAMP)
	$(BIN)/pytest -m gpu tests/gpu; status=$$?; \
	  test ! -f tests/gpu/record.json || $(BIN)/python -m tests.gpu.table; exit $$status

nightly: $(DEV_STAMP)
	$(BIN)/pytest -m nightly tests

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes -q --extra build pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes -q --extra dev --extra models --extra build pyproject.toml -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) build dist *.egg-info var
