# The real cluster: targets of e2e/, included by the root's Makefile. They need root or sudo, Debian 12, Go, git and make.
# What else is missing they install, and what they build they keep outside of the clone.

# Most cases wait most of the time, so that more of them run side by side than there are CPUs.
.PHONY: e2e
e2e: e2e-build ## all tests on a real Kubernetes cluster (10 minutes; the first time 20 more, to build it)
	cd e2e && $(AS_ROOT) go test -count=1 -timeout 40m -parallel 8 ./...

.PHONY: e2e-build
e2e-build: ## what a cluster needs: Kubernetes, containerd, Debian for its nodes
	@cd e2e && $(AS_ROOT) go run ./cmd/cluster build

.PHONY: cluster-up
cluster-up: ## a cluster that stays, with NODES=2; ends with two lines for your shell
	@cd e2e && $(AS_ROOT) go run ./cmd/cluster up -nodes $(or $(NODES),2)

.PHONY: cluster-load
cluster-load: HOST = $(shell $(GO) env GOARCH)
cluster-load: ## give its nodes the images of this source, so that no registry has to
	@$(MAKE) --no-print-directory image ARCH=$(HOST)
	@cd e2e && $(AS_ROOT) go run ./cmd/cluster load $(foreach name,conndrain-node prestop example,$(CURDIR)/bin/images/$(name)-$(HOST).tar)

.PHONY: cluster-down
cluster-down: ## stop it
	@cd e2e && $(AS_ROOT) go run ./cmd/cluster down

# It is about the machine as well: on one with other work the figures say little.
.PHONY: bench-cluster
bench-cluster: e2e-build ## the product on a real cluster beside what is used today (1 hour; ARGS=--quick: 15 minutes)
	@mkdir -p bin && cd e2e && $(GO) build -trimpath -o ../bin/bench-cluster ./bench && $(AS_ROOT) ../bin/bench-cluster $(ARGS)
