# Everything sets itself up: a virtual environment in .venv, then what it needs in there.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
MINUTES ?= 5
# One thread a process: tests are many and small, and run in parallel.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help demo docs docs-examples test test-edge test-engine fuzz test-crashes test-sanitizers wasm test-gpu check format bench bench-gpu figures clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 17

demo: .venv/ready ## train SuGRU and GRU side by side on Copying Memory (under three minutes)
	$(BIN)/python examples/copying.py

test: .venv/ready ## run all tests that need no GPU; Triton kernels in its interpreter, on tiny shapes
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto
	TRITON_INTERPRET=1 $(ONE_THREAD) $(BIN)/python -m pytest -n auto tests/scan/test_triton.py tests/scan/test_triton_lists.py tests/scan/test_triton_layers.py tests/scan/test_triton_differential.py

test-edge: .venv/ready ## models on an emulated Cortex-M4; needs gcc-arm-none-eabi and qemu-system-arm
	@$(BIN)/python -c 'from surnn.bench.firmware import missing_tools as m; print("make test-edge skips its tests; not installed:", *m()) if m() else None'
	$(ONE_THREAD) $(BIN)/python -m pytest -q -rs tests/deploy/test_edge.py

test-engine: .venv/ready ## the C engine at length: 100,000 and 10^7 steps, hostile files, valgrind
	PYTHONPATH=tests $(ONE_THREAD) $(BIN)/python tests/deploy/engine_long.py

fuzz: .venv/ready ## damaged files for the C engine, under sanitizers: make fuzz MINUTES=5
	PYTHONPATH=tests $(ONE_THREAD) $(BIN)/python tests/deploy/fuzz.py --minutes $(MINUTES)

test-crashes: .venv/ready ## train with 200 kills and 50 power cuts: each run must end as one without
	PYTHONPATH=tests $(ONE_THREAD) $(BIN)/python tests/train/crashes_long.py

test-sanitizers: .venv/ready ## the scan in C with sanitizers of addresses, behaviour and threads
	PYTHONPATH=tests $(BIN)/python tests/scan/native_sanitizers.py

wasm: ## build the engine as WebAssembly into src/surnn/deploy/web (with Debian's clang 14)
	$(PYTHON) csrc/make_wasm.py

test-gpu: ## run all tests that need a GPU, with a Python that has CUDA: make test-gpu PYTHON=python3
	PYTHONPATH=src:$$PYTHONPATH $(ONE_THREAD) $(PYTHON) -m pytest -n 12 tests/scan/test_cuda.py tests/scan/test_triton.py tests/scan/test_triton_lists.py tests/scan/test_triton_layers.py tests/scan/test_triton_gpu.py tests/train/test_train_gpu.py

check: .venv/ready docs ## lint, formatting, import contracts, types, the docs' links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: .venv/ready ## build the documentation as a site in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --site-dir build/site

docs-examples: .venv/ready ## run the tutorials and the commands of the documentation (a quarter of an hour)
	$(BIN)/python docs/run_examples.py

format: .venv/ready ## format, and fix lint errors that can be fixed automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-gpu: ## time training steps on a GPU against cuDNN: make bench-gpu PYTHON=python3
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m surnn bench

bench: .venv/ready ## time evaluation and training on this CPU, against torch's layers
	$(BIN)/python benchmarks/cpu.py

figures: .venv/ready ## train small models and draw docs/figures (a quarter of an hour; data: SURNN_DATA)
	$(BIN)/python docs/figures/make.py

.venv/ready: pyproject.toml setup.py $(wildcard csrc/*.[chi]* csrc/micro/*)
	$(PYTHON) -c 'import sys; sys.exit("surnn needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean: ## remove the virtual environment and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build
