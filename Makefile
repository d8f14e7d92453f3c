# Every target does its own set-up; scripts/setup.sh says what can be chosen by environment variables.
PYTHON_BIN := .venv/bin/python
METHODS := plain,ngram,draft_model,eagle,medusa,lookahead,auto

.DEFAULT_GOAL := help
.PHONY: help setup acceptance bench compare growth decision stall soak spinning demo test test-full test-compose lint format proto loadtest loadtest-claims clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-16s%s\n", $$1, $$2}' Makefile

setup: ## Make .venv with everything needed
	@scripts/setup.sh

demo: setup ## Start a cluster, generate with and without speculation, compare
	@$(PYTHON_BIN) scripts/demo.py

test: setup ## Tests with a fixed slice of the sweep (minutes)
	@scripts/test.sh

test-full: setup ## The laws in full, then the whole greedy sweep, resumable (hours)
	@scripts/test-full.sh

test-compose: setup ## Build the image, run the compose cluster, test it, take it down
	@scripts/test-compose.sh

lint: setup ## ruff, mypy, import contracts
	@scripts/lint.sh

format: setup ## Put the code into the form that lint asks for
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

proto: setup ## Generate the gRPC stubs again
	@$(PYTHON_BIN) hatch_build.py

bench: setup ## Measure methods and overhead on a quiet machine, store, bring README's tables up to date
	@.venv/bin/outrider bench --prompts benchmarks/data/spec_bench_60.jsonl --temperature 0 \
		--methods $(METHODS) --tune 1 --out benchmarks/results/bench.json
	@.venv/bin/outrider bench --prompts benchmarks/data/spec_bench_60.jsonl --temperature 1 \
		--methods $(METHODS) --tune 1 --out benchmarks/results/bench_sampled.json
	@$(PYTHON_BIN) -m benchmarks.sampling
	@$(PYTHON_BIN) -m benchmarks.overhead
	@$(PYTHON_BIN) scripts/readme_table.py

acceptance: setup ## Tokens a target pass yields with each drafter, and what a proposal costs
	@$(PYTHON_BIN) -m benchmarks.draft_cost; cost=$$?; $(PYTHON_BIN) -m benchmarks.agreement; first=$$?; \
		$(PYTHON_BIN) -m benchmarks.acceptance && exit $$((cost + first))

compare: setup ## Outrider beside other engines, ratios in README; PEERS="--peer-python ENGINE=PYTHON ..."
	@$(PYTHON_BIN) -m benchmarks.compare $(PEERS); status=$$?; $(PYTHON_BIN) scripts/readme_table.py; exit $$status

growth: setup ## How a pass grows with rows and context, and the rate with streams
	@$(PYTHON_BIN) -m benchmarks.growth

decision: setup ## How long the controller takes to decide a round
	@$(PYTHON_BIN) -m benchmarks.decision

stall: setup ## What a long prompt does to running streams
	@$(PYTHON_BIN) -m benchmarks.stall

soak: setup ## 2,000 requests, cancels and errors among them: memory, sessions
	@$(PYTHON_BIN) -m benchmarks.soak

spinning: setup ## What draft and target cost each other by waiting awake
	@$(PYTHON_BIN) -m benchmarks.spinning

loadtest: setup ## The grid of load tests, resumable (hours); GRID="--quick" for less than 5 minutes
	@$(PYTHON_BIN) -m loadtest.compare $(GRID)

loadtest-claims: setup ## What must hold of adaptive K, resumable (hours); CLAIMS="--only users ..."
	@$(PYTHON_BIN) -m loadtest.claims $(CLAIMS)

clean: ## Remove .venv, stubs and caches
	rm -rf .venv outrider/v1 .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
