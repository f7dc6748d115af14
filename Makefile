# `make demo` and `make test` do everything from a fresh clone: own .venv, nothing installed globally.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TORCH  := .venv-torch
PACKAGES := backends cli compiler dialect examples/targets runtime scheduling support
SOURCES  := $(shell find $(PACKAGES) -type d -not -name __pycache__)

.PHONY: demo test lint types tests bench wheel clean help

help:
	@echo "make demo    import, compile and run a real network on real digits; a picture in demo/"
	@echo "make test    lint, types and tests"
	@echo "make bench   measure compile times, kernels and training steps, side by side"
	@echo "make wheel   build the wheel into dist/"
	@echo "make clean   remove everything that make made"

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "binpoint needs Python 3.11 or newer; try: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "cannot make a virtual environment (on Debian: apt install python3-venv)"; exit 1; }

# A strict editable install links files one by one: a new file (a changed directory) needs a new install.
$(VENV)/.run: pyproject.toml $(SOURCES) | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[all]' --config-settings editable_mode=strict
	@touch $@

$(VENV)/.test: pyproject.toml $(SOURCES) | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]' --config-settings editable_mode=strict
	@touch $(VENV)/.run $@

# PyTorch, a peer to measure against, lives apart: where torch is installed, importing TVM takes seconds.
$(TORCH)/.bench: pyproject.toml | $(BIN)/pip
	@test -x $(TORCH)/bin/pip || $(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/pip install --quiet --disable-pip-version-check '.[bench]'
	@touch $@

demo: $(VENV)/.run
	@mkdir -p demo
	$(BIN)/binpoint import examples/models/mnist-conv.onnx -o demo/mnist-conv.bp
	$(BIN)/binpoint compile demo/mnist-conv.bp -t dlu2048 -o demo/mnist-conv.bpz
	$(BIN)/binpoint schedule demo/mnist-conv.bp -t dlu2048 --picture demo/schedule.png
	$(BIN)/binpoint run demo/mnist-conv.bpz --data mnist:examples/data/mnist
	@echo "picture of the schedule: demo/schedule.png"

test: lint types tests

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy $(patsubst %,-p binpoint.%,$(notdir $(PACKAGES)))

# One test process a core: BLAS threads of their own would only spin against each other.
tests: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2

bench: $(VENV)/.test $(TORCH)/.bench
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/convolution.py
	$(BIN)/python bench/blocks.py
	$(BIN)/python bench/int8_peer.py
	BINPOINT_BENCH_TORCH=$(TORCH)/bin/python $(BIN)/python bench/gradients.py
	BINPOINT_BENCH_TORCH=$(TORCH)/bin/python $(BIN)/python bench/training.py

wheel: $(VENV)/.run
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) $(TORCH) build dist demo *.egg-info .mypy_cache .ruff_cache .hypothesis bench/results
