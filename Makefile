# `make help` lists the targets. Each one installs what it needs first, so it works in a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
# What `make bench` measures and `make test-long` counts, unless the environment names another program.
RELEASED_PROGRAM := $(or $(PRONGHORN),$(TARGET_DIR)/release/pronghorn)
RELEASED_ECHO := $(or $(PRONGHORN_ECHO),$(TARGET_DIR)/release/examples/echo)
# The program that the demo and the tests run: built in a third of the time that a release takes (Cargo.toml).
export PRONGHORN ?= $(TARGET_DIR)/quick/pronghorn
# The engine's example handler.
export PRONGHORN_ECHO ?= $(TARGET_DIR)/quick/examples/echo
# The engine's example of WebTransport.
export PRONGHORN_WEBTRANSPORT ?= $(TARGET_DIR)/quick/examples/webtransport

# Set to --locked where Cargo.lock must not change, as CI does.
CARGO_FLAGS ?=
# More arguments for pytest, such as PYTEST_FLAGS="-k range".
PYTEST_FLAGS ?=
PYTEST := .venv/bin/python -m pytest -c tests/pytest.ini $(PYTEST_FLAGS)
# Number of end-to-end tests that run at a time. They wait for browsers, timers and each other's packets half of the time.
PYTEST_WORKERS ?= $(shell echo $$((2 * $$(nproc))))
CARGO_TEST := $(if $(shell cargo nextest --version 2>/dev/null),nextest run,test --no-fail-fast)

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 14

.PHONY: demo
demo: build-lab ## Compare HTTP/2 and HTTP/3 in a real browser; prints a table and the report's path
	$(lab) run packages/lab/plans/demo.toml --out lab-results/demo-$$(date -u +%Y%m%dT%H%M%SZ)

.PHONY: test
test: ## All tests but the long ones; prints the time of each stage at its end
	scripts/stages setup build test-rust test-js test-e2e test-serial test-lab instructions fuzz

.PHONY: lint
lint: setup ## Formatting and lints of every language
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- --deny warnings
	npm run lint
	.venv/bin/ruff format --check tests bench
	.venv/bin/ruff check tests bench
	.venv/bin/ruff format --config tests/ruff.toml --check notebooks profiles
	.venv/bin/ruff check --config tests/ruff.toml notebooks profiles
	test -z "$$(gofmt -l tests/clients tests/applications bench/peers)" || { gofmt -d tests/clients tests/applications bench/peers; exit 1; }
	cd tests/clients/quic-go && go vet ./...
	cd tests/clients/ecosystem/go && go vet ./...
	cd tests/applications/fastcgi && go vet ./...
	cd bench/peers/quic-go && go vet ./...
	for peer in rust tokio-quiche; do cargo fmt --manifest-path bench/peers/$$peer/Cargo.toml --check; done

.PHONY: test-long
test-long: build setup-java static optimized ## Soak tests, the static and the optimized program, an hour of fuzzing, many simulations, ten million paths, the calibration of the emulated link; wants a quiet machine
	$(PYTEST) -m long --timeout 1800
	PRONGHORN=$(TARGET_DIR)/optimized/pronghorn $(PYTEST) -n auto -m "not serial and not long" tests/e2e
	$(MAKE) instructions-released
	npm test --workspace packages/pronghorn
	PRONGHORN_SIM_SEEDS=50000 cargo test $(CARGO_FLAGS) -p pronghorn-engine --lib simulation
	cargo test $(CARGO_FLAGS) --profile quick -p pronghorn-target --lib -- --ignored
	$(MAKE) fuzz FUZZ_SECONDS=3600
	CARGO_FLAGS="$(CARGO_FLAGS)" npm run build --workspace packages/pronghorn
	npm run test:fastify --workspace packages/pronghorn
	npm run test:compat --workspace packages/pronghorn
	npm run test:versions --workspace packages/pronghorn
	npm run test:memory --workspace packages/pronghorn
	for profile in $(CALIBRATED_PROFILES); do $(PRONGHORN) link --calibrate $$profile; done

CALIBRATED_PROFILES ?= $(sort $(wildcard profiles/*.toml))

# More arguments for the bench, such as BENCH_ARGS="--only pronghorn,h2o --workloads small-10x100 --rounds 5".
BENCH_ARGS ?=

.PHONY: bench
bench: bench-setup build-program ## Measure the server beside others: CPU, rates, latency, memory (BENCHMARKING.md); wants a quiet machine
	PRONGHORN=$(RELEASED_PROGRAM) bench/.venv/bin/python -m bench $(BENCH_ARGS)

.PHONY: bench-quick
bench-quick: build-program ## The same in a minute: one small round of what is there
	bench/setup python
	PRONGHORN=$(RELEASED_PROGRAM) bench/.venv/bin/python -m bench --quick --out $$(mktemp -d)/quick $(BENCH_ARGS)

.PHONY: bench-node
bench-node: build-program optimized ## Measure the npm package beside Bun, uWebSockets.js, node:http and others (BENCHMARKING.md); wants a quiet machine
	bench/setup node
	PRONGHORN=target/optimized/pronghorn bench/.venv/bin/python -m bench --suite node --name node $(BENCH_ARGS)

.PHONY: bench-proxy
bench-proxy: build-program optimized ## Measure the gateway beside nginx and Caddy as reverse proxies (BENCHMARKING.md); wants a quiet machine
	bench/setup caddy
	PRONGHORN=$(RELEASED_PROGRAM) bench/.venv/bin/python -m bench --suite proxy --name proxy $(BENCH_ARGS)

.PHONY: bench-scale
bench-scale: build-program ## Measure how cost grows with sites, certificates, routes, upstreams, connections, beside nginx (BENCHMARKING.md)
	PRONGHORN=$(RELEASED_PROGRAM) python3 -m bench.scale $(BENCH_ARGS)

# The parts of the targets above, each usable by itself.

.PHONY: bench-setup
bench-setup: ## Install what the bench needs, and build those peers that registries have
	bench/setup

.PHONY: test-rust
test-rust: build-debug ## Unit and integration tests of the crates
	cargo $(CARGO_TEST) $(CARGO_FLAGS) --workspace --all-targets
	cargo test $(CARGO_FLAGS) --workspace --doc

# Such as --update, after a change that is meant to cost more.
INSTRUCTIONS_ARGS ?=

.PHONY: instructions
instructions: build ## What a request, a handshake and a MiB cost in instructions, against what they may (BENCHMARKING.md)
	python3 -m bench.instructions --build quick $(INSTRUCTIONS_ARGS)

.PHONY: instructions-released
instructions-released: build-program ## The same for the program as released
	cargo build $(CARGO_FLAGS) --release -p pronghorn-engine --example echo
	PRONGHORN=$(RELEASED_PROGRAM) PRONGHORN_ECHO=$(RELEASED_ECHO) python3 -m bench.instructions --build release $(INSTRUCTIONS_ARGS)

# How long the fuzzer looks for inputs that break a parser, all targets together.
FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: setup ## Search for inputs that break a parser; the replay of those that were found is part of test-rust
	CARGO_FLAGS="$(CARGO_FLAGS)" scripts/fuzz $(FUZZ_SECONDS)

.PHONY: test-js
test-js: setup build-debug ## Tests of the npm packages
	npm run build --workspace packages/lab
	npm test

.PHONY: test-node-versions
test-node-versions: setup ## Tests of the npm package under Node.js 20 to 26, which npm has as packages
	CARGO_FLAGS="$(CARGO_FLAGS)" PRONGHORN_PROFILE=debug npm run build --workspace packages/pronghorn
	npm run test:versions --workspace packages/pronghorn

.PHONY: test-e2e
test-e2e: build ## The program under clients that others wrote
	$(PYTEST) -n $(PYTEST_WORKERS) -m "not serial and not long" tests/e2e bench/tests

.PHONY: test-serial
test-serial: build ## Those that measure the machine, one after the other
	$(PYTEST) -m "serial and not long"

.PHONY: test-lab
test-lab: build ## Small campaigns of the lab in Chromium
	npm run test:e2e

.PHONY: build
build: setup ## The program and what the tests run, optimised, and the lab
	cargo build $(CARGO_FLAGS) --profile quick --bins --examples -p pronghorn-cli -p pronghorn-engine -p pronghorn-server -p custom-layer -p h3-crate-client
	npm run build --workspace packages/lab

# One command for all, since cargo chooses the features of libraries for the packages of a command: others would build the libraries again.
.PHONY: build-debug
build-debug: setup ## The crates with their tests, and the addon of the npm package, in debug
	cargo build $(CARGO_FLAGS) --workspace --all-targets
	npm run build --workspace packages/pronghorn -- --addon $(TARGET_DIR)/debug/libpronghorn_node.so

.PHONY: build-lab
build-lab: setup-lab
	cargo build $(CARGO_FLAGS) --profile quick -p pronghorn-cli
	npm run build --workspace packages/lab

.PHONY: build-program
build-program: ## The program as released
	cargo build $(CARGO_FLAGS) --release -p pronghorn-cli

# What cargo calls this machine.
HOST_TARGET = $(shell rustc --version --verbose | sed -n 's/^host: //p')

# A target of its own, so that what runs while it is built (macros, build scripts) is linked as ever.
.PHONY: static
static: ## The program as one file that needs no shared library, in target/static (docs/gateway/operations.md)
	RUSTFLAGS="$(RUSTFLAGS) -C target-feature=+crt-static" \
	    cargo build $(CARGO_FLAGS) --release --target $(HOST_TARGET) -p pronghorn-cli
	mkdir -p $(TARGET_DIR)/static
	cp $(TARGET_DIR)/$(HOST_TARGET)/release/pronghorn $(TARGET_DIR)/static/pronghorn

.PHONY: optimized
optimized: setup-optimized ## The program and the addon as published: laid out by what runs in them, in target/optimized (docs/gateway/operations.md)
	CARGO_FLAGS="$(CARGO_FLAGS)" scripts/optimized

.PHONY: setup
setup: ## Install what is missing (Debian, npm, Python packages; test clients)
	scripts/setup all

.PHONY: setup-lab
setup-lab:
	scripts/setup lab

.PHONY: setup-java
setup-java:
	scripts/setup java

.PHONY: setup-optimized
setup-optimized:
	scripts/setup optimized

lab := node packages/lab/dist/cli.js
