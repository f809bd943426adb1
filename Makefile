# One command for each thing a newcomer wants. `make demo` is the place to start.
# Every target calls `setup` first, which costs a few milliseconds when nothing is missing.

SHELL := /bin/sh
# Looked for when it is needed: `setup` may have installed it a moment ago.
CARGO = $(shell scripts/setup --print-cargo)
export PATH := $(PATH):$(HOME)/.cargo/bin
TOOLS := $(CURDIR)/.tools
VIREO := target/release/vireo
OUT ?= bench.json

# What cargo does to lint everything.
LINT ?= clippy --workspace --all-targets --locked -- -D warnings
# The binary without the features for demo, benchmarks and experiments.
LINT_PRODUCT ?= clippy --locked -p vireo --no-default-features -- -D warnings

CRASH_KILLS ?= 10000
CRASH_STOPS ?= 1000
SEEDS ?= 1..1000
# Mutated messages of mutate-n2 and mutate-s1, and of mutate-pfcp.
mutate-n2 mutate-s1: MUTATIONS ?= 1000000
mutate-pfcp: MUTATIONS ?= 300000
SEED ?= 1
# Profile of `make dist` and `make test-package`: release or dev.
PROFILE ?= release
DIST ?= dist
# no: `make dist` writes the artefacts of this machine only.
ARM64 ?= yes
# Hosts that join and hosts that are killed.
CHURN ?= 50
CHURN_UES ?= 200
SHARDS ?= 3
# Seeds of chaos; each takes half a minute.
CHAOS_SEEDS ?= 1..20
# Shards that crash-shards kills, at most 10,000 in a run.
KILLS ?= 10000
# Release (tag, commit or binary) whose hosts join the cluster of cluster-upgrade, and how many.
FROM ?= HEAD
JOINS ?= 6

.PHONY: help setup build web dist test-package test-web demo cluster-demo cluster-churn shard-churn cluster-upgrade test test-experiments test-stores test-api test-kube check check-deploy lint licences bench crash crash-shards chaos faults faults-self-check flood mutate-pfcp mutate-n2 mutate-s1 test-kernel-sctp fuzz-smoke docs clean

help:
	@echo 'make demo              build; 100 UEs register, exchange packets and deregister, in network namespaces'
	@echo 'make cluster-demo      build; a cluster with 2,000 UEs under faults, none is lost'
	@echo 'make shard-churn       $(CHURN) of the shards of one process tree are killed under load (CHURN=N), no UE is lost'
	@echo 'make cluster-churn     $(CHURN) hosts join a cluster under load and $(CHURN) are killed (CHURN=N), no UE is lost'
	@echo 'make cluster-upgrade   hosts of another release (FROM=tag, commit or binary) join a cluster under load'
	@echo 'make build             the release binary: $(VIREO)'
	@echo 'make dist              program, Debian package, OCI image, bill of materials and checksums, to dist/; the'
	@echo '                       same for aarch64, if its cross compiler is there (ARM64=no: not)'
	@echo 'make test              every test, with independent witnesses (pycrate, tshark, scapy)'
	@echo 'make test-experiments  the short form of each experiment and benchmark, one after another'
	@echo 'make test-package      the Debian package in a clean root: install, traffic, upgrade, removal, purge; needs root'
	@echo 'make test-web          the web page in a browser (Chromium), against a core with emulated UEs and a cluster'
	@echo 'make test-stores       records and SBA mode over a Redis Cluster and FerretDB on PostgreSQL (MongoDB protocol)'
	@echo 'make test-api          the management API: its OpenAPI document, 10,000 (REQUESTS=N) fuzzed requests, a made client'
	@echo 'make test-kube         the Helm chart and the scaling by controllers against a real API server of Kubernetes'
	@echo 'make check             format, clippy, house rules (make lint), licences (make licences)'
	@echo 'make check-deploy      alert rules, dashboards, Helm chart, cloud templates and compose file, without their servers'
	@echo 'make bench             CPU, rate, latency and memory of the control plane, to $(OUT) (OUT=FILE)'
	@echo 'make crash             worker processes on the state region killed $(CRASH_KILLS) times and stopped $(CRASH_STOPS) times'
	@echo 'make crash-shards      shards killed $(KILLS) times (KILLS=N) at random times while they work, each after its takeover'
	@echo 'make chaos             lost and repeated messages and restarts of RAN nodes, with the seeds $(CHAOS_SEEDS); UEs and core must agree after it'
	@echo 'make faults            the fault campaign: a cluster on a virtual clock for each of the seeds $(SEEDS)'
	@echo 'make faults-self-check whether the fault campaign detects each injected fault, with the seeds $(SEEDS)'
	@echo 'make flood             200,000 half-open registrations of 8 gNBs while UEs of another gNB register'
	@echo 'make mutate-pfcp       300,000 (MUTATIONS=N) mutated PFCP messages to a UPF, to $(OUT); needs root'
	@echo 'make mutate-n2         1,000,000 (MUTATIONS=N) mutated NGAP and NAS messages to a core, to $(OUT); needs root'
	@echo 'make mutate-s1         the same with S1AP and NAS of EPS'
	@echo 'make test-kernel-sctp  the SCTP suite and the hot restart of a balancer on a kernel with SCTP (user-mode Linux)'
	@echo 'make fuzz-smoke        every fuzz target for a few seconds'
	@echo 'make docs              the book of docs/, to target/book'
	@echo 'make web               the files of the web page, from web/ to crates/ops/assets; needs Node.js'
	@echo 'make setup             install what is missing (packages, Rust toolchain)'

setup:
	@scripts/setup build

build: setup
	$(CARGO) build --release --locked -p vireo

web:
	scripts/web-assets build

dist: setup
	@scripts/setup dist
	$(CARGO) build --profile $(PROFILE) --locked -p vireo
	PATH="$(dir $(CARGO)):$$PATH" scripts/dist $(PROFILE) $(DIST)
	@[ "$(ARM64)" = no ] || PATH="$(dir $(CARGO)):$$PATH" scripts/dist-arm64 $(PROFILE) $(DIST)

# PROFILE=release tries the package that `make dist` makes. The emulator is that of the tests.
test-package: PROFILE := dev
test-package: ARM64 := no
test-package: DIST := target/dist
test-package: dist
	@scripts/setup package
	VIREO_PACKAGE="$$(echo $(CURDIR)/$(DIST)/*.deb)" VIREO_IMAGE="$$(echo $(CURDIR)/$(DIST)/*.oci.tar)" \
		VIREO_ROOT="$(CURDIR)/.tools/root.tar" \
		$(CARGO) test --locked -p vireo --test package -- --ignored --nocapture

demo: build
	$(VIREO) demo $(ARGS)

cluster-demo: build
	@scripts/setup cluster
	$(VIREO) demo --cluster --ues 2000 $(ARGS)

cluster-churn: build
	$(VIREO) demo --churn $(CHURN) --ues $(CHURN_UES) --gnbs 4 $(ARGS)

shard-churn: build
	$(VIREO) demo --shards $(SHARDS) --churn $(CHURN) --ues $(CHURN_UES) --gnbs 4 $(ARGS)

cluster-upgrade: build
	PATH="$(dir $(CARGO)):$$PATH" scripts/cluster-upgrade $(VIREO) $(FROM) $(JOINS) $(CHURN_UES)

check: lint licences

# With the features that xtask has been built with beside all others.
lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) $(LINT)
	$(CARGO) $(LINT_PRODUCT)
	$(CARGO) run --quiet --locked --bin xtask -- tidy
	scripts/web-assets check

licences: setup
	@scripts/setup check
	PATH="$(TOOLS)/bin:$$PATH" $(CARGO) deny --log-level error check --hide-inclusion-graph licenses bans sources

# One script per line.
check-deploy: build
	@scripts/setup deploy
	HELM=$(TOOLS)/bin/helm $(TOOLS)/deploy/bin/python3 scripts/check-charts $(VIREO)
	$(TOOLS)/deploy/bin/python3 scripts/check-cloud $(VIREO)
	$(TOOLS)/deploy/bin/python3 scripts/check-compose $(VIREO)
	PATH="$(TOOLS)/bin:$$PATH" scripts/check-watch

test-api: REQUESTS ?= 10000
test-api: build
	@scripts/setup api
	scripts/test-api $(VIREO) $(TOOLS)/api/bin $(REQUESTS)

test: setup
	@scripts/setup test
	scripts/test

# In release mode: the short forms measure, and an unoptimised core keeps up with no load.
test-experiments: setup
	@scripts/setup test
	$(CARGO) test --release --locked -p vireo --test experiment --test bench -- --include-ignored --test-threads=1

# PICTURE=FILE also writes a picture of the overview.
test-web: setup
	@scripts/setup web
	scripts/web-assets compare
	$(CARGO) build --locked -p vireo
	$(TOOLS)/web/bin/python3 tests/web/run.py target/debug/vireo $(if $(PICTURE),--picture $(PICTURE)) $(ARGS)

# Builds kube-apiserver once, for minutes.
test-kube: setup
	@scripts/setup kube
	$(CARGO) build --locked -p vireo
	$(TOOLS)/deploy/bin/python3 tests/kube/run.py target/debug/vireo $(TOOLS)/bin/kube-apiserver $(TOOLS)/bin/helm

test-stores: setup
	@scripts/setup stores
	PATH="$(TOOLS)/bin:$$PATH" $(CARGO) test --locked -p vireo-store --features mongodb --test records -- --include-ignored --test-threads=1 --nocapture
	PATH="$(TOOLS)/bin:$$PATH" $(CARGO) test --locked -p vireo --features mongodb --test demo stores_ -- --ignored --test-threads=1 --nocapture

bench: build
	$(VIREO) bench control --json $(OUT)

crash: setup
	VIREO_KILLS=$(CRASH_KILLS) VIREO_STOPS=$(CRASH_STOPS) \
		$(CARGO) test --release --locked -p vireo-store --test crash -- --nocapture --test-threads=1

# One to two kills a second.
crash-shards: build
	$(VIREO) demo --shards $(SHARDS) --churn $(KILLS) --ues $(CHURN_UES) --gnbs 4 $(ARGS)

chaos: build
	$(VIREO) demo --scenario chaos --rat both --seed $(CHAOS_SEEDS) $(ARGS)

mutate-pfcp: build
	scripts/mutate-pfcp $(VIREO) $(MUTATIONS) $(SEED) $(OUT)

mutate-n2: build
	scripts/mutate-n2 $(VIREO) $(MUTATIONS) $(SEED) $(OUT)

mutate-s1: build
	scripts/mutate-n2 $(VIREO) $(MUTATIONS) $(SEED) $(OUT) eps

faults: build
	$(VIREO) simulate --faults --seeds $(SEEDS)

faults-self-check: build
	$(VIREO) simulate --faults --self-check --seeds $(SEEDS)

flood: setup
	$(CARGO) test --release --locked -p vireo --test bad_input -- flood_of_200000 --ignored --nocapture

test-kernel-sctp: setup
	@scripts/setup uml
	scripts/test-kernel-sctp

fuzz-smoke: setup
	scripts/fuzz-smoke

# The options of the command line come from the binary.
docs: build
	@scripts/setup docs
	@mkdir -p target/docs
	scripts/cli-reference $(VIREO) >target/docs/cli.md
	$(TOOLS)/bin/mdbook build docs

clean:
	$(CARGO) clean
	rm -rf .tools .venv
