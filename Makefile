# Everything sets itself up: a virtual environment in .venv, then what it needs in there.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
# One thread a process: tests are many and small, and run in parallel.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help demo test test-engine test-gpu check format bench bench-gpu figures clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

demo: .venv/ready ## train SuGRU and GRU side by side on Copying Memory (under three minutes)
	$(BIN)/python examples/copying.py

test: .venv/ready ## run all tests; the GPU kernels in Triton's interpreter, on tiny shapes
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto
	TRITON_INTERPRET=1 $(ONE_THREAD) $(BIN)/python -m pytest -n auto tests/test_triton.py

test-engine: .venv/ready ## the C engine at length: 100,000 and 10^7 steps, hostile files, valgrind
	$(ONE_THREAD) $(BIN)/python tests/engine_long.py

test-gpu: ## run all that needs a GPU, with the Python that has CUDA: make test-gpu PYTHON=python3
	PYTHONPATH=src:$$PYTHONPATH $(ONE_THREAD) $(PYTHON) -m pytest -n 12 tests/test_cuda.py tests/test_triton.py tests/test_triton_gpu.py tests/test_train_gpu.py

check: .venv/ready ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: .venv/ready ## mend formatting and what lint can mend itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-gpu: ## time training steps on a GPU, beside cuDNN: make bench-gpu PYTHON=python3
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m surnn bench

bench: .venv/ready ## time a training step on this CPU: events, reference, nn.GRU
	$(BIN)/python benchmarks/cpu_events.py

figures: .venv/ready ## train small models and draw docs/figures (a quarter of an hour; data: SURNN_DATA)
	$(BIN)/python docs/figures/make.py

.venv/ready: pyproject.toml setup.py $(wildcard csrc/*.[chi]*)
	$(PYTHON) -c 'import sys; sys.exit("surnn needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean: ## remove the virtual environment and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build
