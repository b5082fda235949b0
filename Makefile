# `make help` lists the targets. Each one installs what it needs first, so it works in a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Measured by `make bench` and counted by `make test-long`, unless the environment names another program.
RELEASED_PROGRAM := $(or $(PRONGHORN),$(TARGET_DIR)/release/pronghorn)
RELEASED_ECHO := $(or $(PRONGHORN_ECHO),$(TARGET_DIR)/release/examples/echo)
# The program of the demo and the tests: it builds in a third of a release build's time (Cargo.toml).
export PRONGHORN ?= $(TARGET_DIR)/quick/pronghorn
# The engine's example handler.
export PRONGHORN_ECHO ?= $(TARGET_DIR)/quick/examples/echo
# The engine's example of WebTransport.
export PRONGHORN_WEBTRANSPORT ?= $(TARGET_DIR)/quick/examples/webtransport

# Set to --locked if Cargo.lock must not change, as in CI.
CARGO_FLAGS ?=
# Extra arguments for pytest, such as PYTEST_FLAGS="-k range".
PYTEST_FLAGS ?=
PYTEST := .venv/bin/python -m pytest -c tests/pytest.ini $(PYTEST_FLAGS)
# Number of parallel end-to-end tests. Half of the time they wait for browsers, timers and packets.
PYTEST_WORKERS ?= $(shell echo $$((2 * $$(nproc))))
CARGO_TEST := $(if $(shell cargo nextest --version 2>/dev/null),nextest run --no-fail-fast,test --no-fail-fast)

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 14

.PHONY: demo
demo: build-lab ## Compare HTTP/2 and HTTP/3 in a real browser; prints a table and the report's path
	$(lab) run packages/lab/plans/demo.toml --out lab-results/demo-$$(date -u +%Y%m%dT%H%M%SZ)

.PHONY: test
test: ## Run all tests except the long ones; prints the time of each stage at the end
	scripts/stages setup build test-rust test-js test-e2e test-serial test-lab instructions fuzz

.PHONY: lint
lint: setup ## Check formatting and lints of every language
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- --deny warnings
# Everything else builds it with all features.
	cargo clippy $(CARGO_FLAGS) -p pronghorn-server --no-default-features -- -D warnings
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
	for peer in bench/peers/rust bench/peers/tokio-quiche tests/clients/ecosystem/rust; do cargo fmt --manifest-path $$peer/Cargo.toml --check; done
	$(TARGET_DIR)/test-clients/actionlint .github/workflows/*.yml
	$(MAKE) package
	scripts/import-cycles

.PHONY: doc
doc: ## Build the API documentation of the crates, in target/doc; warnings are errors
	RUSTDOCFLAGS="--deny warnings" cargo doc $(CARGO_FLAGS) --workspace --no-deps

# Set to empty to also build each crate from its package, which takes minutes.
PACKAGE_FLAGS ?= --no-verify

.PHONY: package
package: ## Build the crate and npm packages of a release, without uploading them
	cargo package $(CARGO_FLAGS) --workspace --allow-dirty --quiet $(PACKAGE_FLAGS)
	npm pack --dry-run --ignore-scripts --workspaces --loglevel error >/dev/null

.PHONY: test-long
test-long: build setup-long static optimized ## Run soak tests, the static and the optimized program, an hour of fuzzing, many simulations, ten million paths, the calibration of the emulated link; needs a quiet machine
# Not in `make lint`, which would build gRPC for it.
	cd tests/clients/rpc/go && go vet ./...
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

# Extra arguments for the bench, such as BENCH_ARGS="--only pronghorn,h2o --workloads small-10x100 --rounds 5".
BENCH_ARGS ?=

.PHONY: bench
bench: bench-setup build-program ## Compare the server with others: CPU, rates, latency, memory (BENCHMARKING.md); needs a quiet machine
	PRONGHORN=$(RELEASED_PROGRAM) bench/.venv/bin/python -m bench $(BENCH_ARGS)

.PHONY: bench-quick
bench-quick: build-program ## Run the same in a minute: one small round of the installed servers
	bench/setup python
	PRONGHORN=$(RELEASED_PROGRAM) bench/.venv/bin/python -m bench --quick --out $$(mktemp -d)/quick $(BENCH_ARGS)

.PHONY: bench-node
bench-node: build-program optimized ## Compare the npm package with Bun, uWebSockets.js, node:http and others (BENCHMARKING.md); needs a quiet machine
	bench/setup node
	PRONGHORN=target/optimized/pronghorn bench/.venv/bin/python -m bench --suite node --name node $(BENCH_ARGS)

.PHONY: bench-proxy
bench-proxy: build-program optimized ## Compare the gateway with nginx and Caddy as reverse proxies (BENCHMARKING.md); needs a quiet machine
	bench/setup caddy
	PRONGHORN=$(RELEASED_PROGRAM) bench/.venv/bin/python -m bench --suite proxy --name proxy $(BENCH_ARGS)

.PHONY: bench-scale
bench-scale: build-program ## Measure how cost grows with sites, certificates, routes, upstreams, connections, compared with nginx (BENCHMARKING.md)
	PRONGHORN=$(RELEASED_PROGRAM) python3 -m bench.scale $(BENCH_ARGS)

.PHONY: bench-fleet
bench-fleet: build-program ## Measure what sessions in Redis and keys on a signer cost (BENCHMARKING.md); needs a quiet machine
	PRONGHORN=$(RELEASED_PROGRAM) python3 -m bench.fleet $(BENCH_ARGS)

# Parts of the targets above, usable separately.

.PHONY: bench-setup
bench-setup: ## Install the requirements of the bench, and build the peers that registries have
	bench/setup

.PHONY: test-rust
test-rust: build-debug ## Run unit and integration tests of the crates
	tests=0; cargo $(CARGO_TEST) $(CARGO_FLAGS) --workspace --all-targets || tests=$$?; \
		cargo test $(CARGO_FLAGS) --workspace --doc && exit $$tests

# For example --update, after a change that intentionally costs more.
INSTRUCTIONS_ARGS ?=

.PHONY: instructions
instructions: build ## Count instructions per request, handshake and MiB, and compare them with their bounds (BENCHMARKING.md)
	python3 -m bench.instructions --build quick $(INSTRUCTIONS_ARGS)

.PHONY: instructions-released
instructions-released: build-program ## Count the same for the release build
	cargo build $(CARGO_FLAGS) --release -p pronghorn-engine --example echo
	PRONGHORN=$(RELEASED_PROGRAM) PRONGHORN_ECHO=$(RELEASED_ECHO) python3 -m bench.instructions --build release $(INSTRUCTIONS_ARGS)

# Total fuzzing time of all targets.
FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: setup ## Fuzz the parsers; test-rust replays the inputs found before
	CARGO_FLAGS="$(CARGO_FLAGS)" scripts/fuzz $(FUZZ_SECONDS)

.PHONY: test-js
test-js: setup build-debug ## Run tests of the npm packages
	npm run build --workspace packages/lab
	npm test

.PHONY: test-node-versions
test-node-versions: setup ## Run tests of the npm package under Node.js 20 to 26, installed from npm
	CARGO_FLAGS="$(CARGO_FLAGS)" PRONGHORN_PROFILE=debug npm run build --workspace packages/pronghorn
	npm run test:versions --workspace packages/pronghorn

.PHONY: test-e2e
test-e2e: build ## Run end-to-end tests of the program with independent clients
	$(PYTEST) -n $(PYTEST_WORKERS) -m "not serial and not long" tests/e2e bench/tests

.PHONY: test-serial
test-serial: build ## Run the tests that measure time, one after the other
	$(PYTEST) -m "serial and not long"

.PHONY: test-lab
test-lab: build ## Run small campaigns of the lab in Chromium
	npm run test:e2e

.PHONY: build
build: setup ## Build the program and the test programs, optimized, and the lab
	cargo build $(CARGO_FLAGS) --profile quick --bins --examples -p pronghorn-cli -p pronghorn-engine -p pronghorn-server -p custom-layer -p h3-crate-client
	npm run build --workspace packages/lab

# One command for all: cargo selects library features per command, so separate commands would rebuild the libraries.
.PHONY: build-debug
build-debug: setup ## Build the crates with their tests, and the addon of the npm package, in debug
	cargo build $(CARGO_FLAGS) --workspace --all-targets
	npm run build --workspace packages/pronghorn -- --addon $(TARGET_DIR)/debug/libpronghorn_node.so

.PHONY: build-lab
build-lab: setup-lab
	cargo build $(CARGO_FLAGS) --profile quick -p pronghorn-cli
	npm run build --workspace packages/lab

.PHONY: build-program
build-program: ## Build the program in release mode
	cargo build $(CARGO_FLAGS) --release -p pronghorn-cli

# Target triple of this machine.
HOST_TARGET = $(shell rustc --version --verbose | sed -n 's/^host: //p')

# With an explicit target, macros and build scripts, which run during the build, are still linked dynamically.
.PHONY: static
static: ## Build the program as one file without shared libraries, in target/static (docs/gateway/operations.md)
	RUSTFLAGS="$(RUSTFLAGS) -C target-feature=+crt-static" \
	    cargo build $(CARGO_FLAGS) --release --target $(HOST_TARGET) -p pronghorn-cli
	mkdir -p $(TARGET_DIR)/static
	cp $(TARGET_DIR)/$(HOST_TARGET)/release/pronghorn $(TARGET_DIR)/static/pronghorn

.PHONY: optimized
optimized: setup-optimized ## Build the program and the addon as published, with profile-guided optimization, in target/optimized (docs/gateway/operations.md)
	CARGO_FLAGS="$(CARGO_FLAGS)" scripts/optimized

.PHONY: setup
setup: ## Install missing requirements (Debian, npm, Python packages; test clients)
	scripts/setup all

.PHONY: setup-lab
setup-lab:
	scripts/setup lab

.PHONY: setup-long
setup-long:
	scripts/setup long

.PHONY: setup-optimized
setup-optimized:
	scripts/setup optimized

lab := node packages/lab/dist/cli.js
