# Everyday commands; `make help` lists them. Only the demo writes results to standard output.
BIN := .venv/bin
STAMP := .venv/.setup-done
ARGS ?=
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo up test matrix check ci docs bench bench-service clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv and install everything, the demo model included
	@:

# Again only when what is to be installed has changed. Everything it says goes to standard error.
$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@scripts/setup.sh >&2
	@touch $@

demo: setup ## the whole farm on this machine: five agents, serial against paged (ARGS="--exit --json")
	@$(BIN)/dynofarm demo $(ARGS)

up: setup ## controller, dashboard and one agent on this machine, until Ctrl-C
	@$(BIN)/dynofarm up $(ARGS)

test: setup ## the whole test suite (ARGS are pytest's)
	@$(BIN)/pytest $(ARGS)

matrix: setup ## every iOS version against every fault, on emulated iPhones; takes minutes
	@DEVICE_MATRIX=whole $(BIN)/pytest tests/device_agent tests/e2e -m phone $(ARGS)

check: setup ## lint, types, import rules, schema freshness, migrations
	@scripts/check.sh

ci: ## what CI runs: check and test on a bare machine
	@.ci/run

docs: setup ## write the generated documents again: contract schema, state diagrams
	@scripts/docs.sh

bench: setup ## peers and our runtime, interleaved, on a quiet machine (ARGS="--budget-minutes 60"); docs/benchmarks.md
	@$(BIN)/python -m benchmarks.run $(ARGS)

bench-service: setup ## what the controller costs (ARGS=claims), JSON; docs/service-costs.md
	@$(BIN)/python -m benchmarks.service $(ARGS)

clean: ## remove caches and build output; .venv and data stay
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build *.egg-info
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
