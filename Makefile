# SPDX-License-Identifier: Apache-2.0
# Every target that a person calls has a line of help: `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CODE := rdma_plugin tests
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-faults test-kubelet test-guest soak fuzz bench check lint fmt types layers generated manifests proto schema lock image clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements-dev.lock
	@echo "setup: making $(VENV) with the locked packages"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP) ## Make the virtual environment with the locked packages

demo: $(STAMP) ## Show the main job: a DGX node, an embedded kubelet, the real plugin (no root, under 30 s)
	@$(BIN)/python -m tests.demo

test: $(STAMP) ## Run the tests (no root; ARGS='-k name' passes options to pytest)
	@$(BIN)/python -m pytest -q -n 4 --ignore=tests/soak --ignore=tests/fuzz $(ARGS)

test-faults: $(STAMP) ## The short form of `make soak` and `make fuzz` (under a minute)
	@$(BIN)/python -m pytest -q -n 2 tests/soak tests/fuzz $(ARGS)

test-kubelet: $(STAMP) ## Run the kubelet cases against real kubelets (root; builds them the first time, about 15 min)
	@tests/rig/run.sh $(BIN)/python -m pytest -q -m real_kubelet $(ARGS)

test-guest: $(STAMP) ## Follow a real kernel's RDMA devices in an emulated machine (about 3 min; root only to install)
	@$(BIN)/python -m tests.guest.run $(BIN)/python -m pytest -q -p no:cacheprovider -m guest $(ARGS) tests/guest

soak: $(STAMP) ## Faults and storms at length: RDMA_PLUGIN_SOAK kubelet restarts (1000, about 40 min) and the rest in proportion
	@RDMA_PLUGIN_SOAK=$${RDMA_PLUGIN_SOAK:-1000} $(BIN)/python -m pytest -q -s tests/soak $(ARGS)

fuzz: $(STAMP) ## Inputs by chance at length: RDMA_PLUGIN_FUZZ of hypothesis (13000) and 80 times as many plain ones
	@RDMA_PLUGIN_FUZZ=$${RDMA_PLUGIN_FUZZ:-13000} $(BIN)/python -m pytest -q tests/fuzz $(ARGS)

bench: $(STAMP) ## Print the table of docs/performance.md for this machine (about 4 min)
	@$(BIN)/python -m tests.bench.bench $(ARGS)

check: lint types layers generated manifests ## All static checks

lint: $(STAMP)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)

fmt: $(STAMP) ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

types: $(STAMP)
	@$(BIN)/mypy

layers: $(STAMP)
	@$(BIN)/lint-imports

proto: $(STAMP) ## Generate rdma_plugin/pb from proto/
	@$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=. --grpc_python_out=. \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --mypy_out=quiet:. --mypy_grpc_out=quiet:. proto/rdma_plugin/pb/*.proto

schema: $(STAMP) ## Write docs/config.schema.json
	@$(BIN)/rdma-plugin check-config --schema > docs/config.schema.json

generated: proto schema
	@git diff --exit-code --stat -- rdma_plugin/pb docs/config.schema.json || \
	  { echo "generated files differ: run 'make proto schema' and commit the result" >&2; exit 1; }

manifests: $(STAMP)
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/deploy

lock: ## Bring the lock files up to date (needs uv)
	@uv pip compile pyproject.toml --group dev --generate-hashes --no-emit-index-url --no-header --universal \
	  --python-version 3.11 --upgrade -q -o requirements-dev.lock
	@uv pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 \
	  --upgrade -q -c <(sed -n 's/^\([^ #]*==[^ ]*\).*/\1/p' requirements-dev.lock) -o requirements.lock

image: ## Build the container image with docker or buildah (BASE=..., TAG=...)
	@deploy/build-image.sh

clean: ## Remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
