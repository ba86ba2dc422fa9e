# Every target sets up what it needs, once, in .venv; see tools/setup.sh.
.DEFAULT_GOAL := help
.PHONY: help test test-browser test-cdk demo bench fast soak lint format mirror mutants walk docs docs-serve pictures reference build changelog clean

BIN := $(or $(VENV),.venv)/bin

help: ## list all targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

test: ## run everything that CI runs
	@tools/setup.sh dev cdk
	@$(BIN)/python tools/check.py

test-browser: ## check the pages in a real browser; installs Debian's chromium if permitted
	@tools/setup.sh dev
	@tools/browser.sh
	@$(BIN)/python -m pytest tests/browser -q -rs

test-cdk: ## create stacks with the real AWS CDK; installs it into .engines/, and Debian's node if permitted
	@tools/setup.sh dev cdk
	@$(BIN)/python -m pytest tests/infra/test_cdk.py tests/docs/test_programs.py -k cdk -q -rs

demo: ## watch the limiter at work
	@tools/setup.sh
	@# Ctrl-C ends it with its summary. The trap keeps the shell alive until then.
	@trap : INT; $(BIN)/zae-limiter demo || [ $$? -eq 130 ]

.PHONY: record-demo
record-demo: ## record the demo as the pictures of the README, docs/images/demo*.svg
	@tools/setup.sh dev
	@$(BIN)/python tools/record_demo.py

bench: ## compare its speed with similar libraries
	@bench/run

fast: ## run the fast loop: tests of the pure parts, in seconds
	@tools/setup.sh dev
	@$(BIN)/python -m pytest tests/core tests/schema -q

soak: ## run real processes on one table, killed and stopped, or at a steady rate; ARGS="--sqlite-rate 1000 --seconds 3600"
	@tools/setup.sh dev
	@$(BIN)/python -m tests.soak $(ARGS)

lint: ## check style, format, types, layers, mirror and prose
	@tools/setup.sh dev
	@$(BIN)/python tools/check.py lint format types layers mirror prose

format: ## sort imports, format lines
	@tools/setup.sh dev
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

mirror: ## generate the sync tree from the async one
	@tools/setup.sh dev
	@$(BIN)/python tools/mirror.py

mutants: ## mutate what core decides, and list what no test notices; slow; MODULES="bucket batch" selects some
	@tools/setup.sh dev,mutants
	@$(BIN)/python tools/mutants.py $(MODULES)

walk: ## print the modules that one warm acquire enters; ARGS="--store memory --async --changes"
	@tools/setup.sh dev
	@$(BIN)/python tools/walk.py $(ARGS)

docs: ## build the documentation into site/
	@tools/setup.sh dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: ## show the documentation at http://127.0.0.1:8000 while you write it
	@tools/setup.sh dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload

pictures: ## draw the pictures of the documentation
	@tools/setup.sh dev
	@$(BIN)/python tools/pictures.py

reference: ## generate the reference of the command line from the commands
	@tools/setup.sh dev
	@$(BIN)/python tools/cli_reference.py

build: ## build the package into dist/, and check what is in it
	@tools/setup.sh dev
	@rm -rf dist
	@$(BIN)/python -m hatchling build -d dist
	@$(BIN)/python tools/package.py dist

changelog: ## preview the changelog of the next version; VERSION=1.2.3 writes it
	@tools/setup.sh dev
	@$(BIN)/python tools/changelog.py $(VERSION)

clean: ## remove the environment and everything tools left behind
	rm -rf $(or $(VENV),.venv) build dist site .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache bench/.venv .engines
	find src tests tools bench examples -name __pycache__ -type d -not -path '*/.venv/*' -prune -exec rm -rf {} +
