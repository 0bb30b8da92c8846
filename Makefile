# Targets that people call. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
PREFIX  ?= /usr/local
ARGS    ?=
# A count and not a time: with a time a slow machine can end in the middle of an input.
FUZZTIME ?= 300000x
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# Where build puts its programs. GOOS and GOARCH on make's command line reach the compiler.
OUT     ?= bin
# What the names of the images begin with and end with, and for what they are made.
REGISTRY ?= ghcr.io/conndrain
TAG      ?= v0
ARCH     ?= amd64,arm64

# Tests make network namespaces, which only root may. Everyone else compiles as
# themselves, and only the test binaries run as root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E env 'PATH=$(PATH)')
EXEC    := $(if $(AS_ROOT),-exec "$(AS_ROOT)",)

# The linter has a go.mod of its own, so that it never changes what is linked.
LINTER := $(GO) tool -modfile=e2e/tools/lint/go.mod golangci-lint
# So has what renders the manifests.
KUSTOMIZE := $(GO) tool -modfile=e2e/tools/kustomize/go.mod kustomize

-include e2e/e2e.mk

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## static binaries of every command in bin/
	@mkdir -p $(OUT)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(OUT)/ ./cmd/...
	@ln -sf kubectl-conndrain $(OUT)/kubectl_complete-conndrain

# the application that manifests/examples/ runs
.PHONY: build-example
build-example:
	@mkdir -p $(OUT)
	cd e2e && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(abspath $(OUT))/ ./cmd/traffic

# Root may have no Go: what was built stands.
bin/conndrain:
	@$(MAKE) --no-print-directory build

.PHONY: install
install: bin/conndrain ## copy bin/conndrain to /usr/local/bin (or PREFIX=)
	install -D -m 0755 bin/conndrain $(DESTDIR)$(PREFIX)/bin/conndrain

# The tool has a go.mod of its own, and reads the Dockerfile.
IMAGE = cd e2e/tools/image && $(GO) run . -source $(CURDIR) -out $(CURDIR)/bin/images -version $(VERSION) -registry $(REGISTRY) -tag $(TAG) -arch $(ARCH)

.PHONY: image
image: ## the images as archives in bin/images/, without a daemon (ARCH=amd64 for one of the two)
	@$(IMAGE)

.PHONY: push
push: ## the images to a registry: REGISTRY=registry.example.com/team TAG=v0
	@[ '$(origin REGISTRY)' != file ] && [ -n '$(REGISTRY)' ] || \
		{ echo 'Name the registry: make push REGISTRY=registry.example.com/team TAG=v0' >&2; exit 1; }
	@$(IMAGE) -push

.PHONY: manifests
manifests: ## render manifests/ into manifests/install.yaml
	$(KUSTOMIZE) build manifests > manifests/install.yaml.new
	mv manifests/install.yaml.new manifests/install.yaml

.PHONY: demo
demo: build ## watch a pod's sessions end, in throw-away namespaces (no root needed)
	@bin/conndrain demo $(ARGS)

.PHONY: test
test: vet ## all tests, on this machine's kernel (root or sudo; RACE=1: with the race detector, which needs a C compiler)
	@[ -z '$(RACE)' ] || command -v cc >/dev/null || { echo "The race detector needs a C compiler: apt-get install gcc libc6-dev" >&2; exit 1; }
	$(if $(RACE),CGO_ENABLED=1) $(GO) test $(if $(RACE),-race) -count=1 $(EXEC) ./...
	cd e2e/tools/image && $(GO) test -count=1 ./...
	cd lifecycle/requests/bench && $(GO) test -count=1 $(EXEC) ./...
	@$(MAKE) --no-print-directory resize

# This test resizes the machine's one conntrack table, so it runs last and alone.
.PHONY: resize
resize:
	$(GO) test -count=1 -tags resize -p 1 -run Resize $(EXEC) ./conntrack/...

# Other systems have to compile, if only to say that they are not supported.
.PHONY: vet
vet:
	$(GO) vet ./...
	$(GO) vet -tags resize ./conntrack/...
	cd lifecycle/requests/bench && $(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) build ./...

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (300000x inputs, or a time)
	@grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | \
	while IFS=: read -r file func; do \
		dir=$$(dirname "$$file"); name=$${func#func }; \
		echo "fuzz $$dir $$name $(FUZZTIME)"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null; \
	done

.PHONY: lint
lint: ## golangci-lint; its first build takes some minutes
	nice -n 10 $(LINTER) run --allow-parallel-runners ./...
	cd e2e && nice -n 10 $(GO) tool -modfile=tools/lint/go.mod golangci-lint run --allow-parallel-runners --config ../.golangci.yml ./...
	cd lifecycle/requests/bench && nice -n 10 $(GO) tool -modfile=../../../e2e/tools/lint/go.mod golangci-lint run --allow-parallel-runners --config ../../../.golangci.yml ./...
	cd e2e/tools/image && nice -n 10 $(GO) tool -modfile=../lint/go.mod golangci-lint run --allow-parallel-runners --config ../../../.golangci.yml ./...

.PHONY: bench
bench: build ## conndrain beside `conntrack -L` on large tables (root; ARGS=--quick leaves out 1M)
	@command -v conntrack >/dev/null || { echo "The bench compares with the conntrack command: apt-get install conntrack" >&2; exit 1; }
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/bench ./conntrack/bench
	@$(AS_ROOT) bin/bench --conndrain bin/conndrain $(ARGS)

# It has a go.mod of its own: gRPC must not become a part of the product.
.PHONY: bench-requests
bench-requests: ## requests told from pauses, on nginx, Node.js, gunicorn and Go (root; 6 minutes; ARGS="--looks 1000000 --lasts 120s --check": 10)
	@lifecycle/requests/bench/install.sh
	@mkdir -p bin && cd lifecycle/requests/bench && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/bin/bench-requests .
	@$(AS_ROOT) bin/bench-requests $(ARGS)

.PHONY: clean
clean: ## remove bin/
	rm -rf bin
