# make demo [FILES="a.txt b.md"]   the kernels on batches of real text, from torch and from JAX
# make test                        lint, types and the tests that need no device; EVERY=1: the slow ones too
# make help                        the rest
#
# Every target that needs the development environment makes it first: .venv, with the versions of
# constraints/dev.txt.  It is made again only when pyproject.toml or the constraints change.

PYTHON      ?= $(shell command -v python3.11 || command -v python3)
VENV        ?= .venv
EXTRAS      ?= dev,jax,torch,tpu,triton,ui
FILES       ?=
N           ?= 5500
SEED        ?= 0
WORKERS     ?= 2
PYTEST_ARGS ?=
EVERY       ?=

# Slow tests ask the same of more kernels, forms and layouts: CI runs them too.
MARKS := not gpu and not tpu$(if $(filter all,$(EVERY)),, and not thorough$(if $(EVERY),, and not slow))
CASES := $(if $(filter all,$(EVERY)),,$(if $(EVERY),--every 3 --rest thorough --every-slow 6,--every 6))

# The newest JAX wants a newer Python; pyenv's are found too.
PYTHON_NEXT ?= $(shell ls -d $$(command -v python3.12) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.12.*/bin/python3.12 2>/dev/null \
                 | while read p; do "$$p" -c '' 2>/dev/null && echo "$$p" && break; done)
VENV_NEXT   ?= .venv-next

VENV_TRITON ?= .venv-triton

# The development environment has torch for CPUs: on a GPU, a Python that has it for CUDA.
GPU_PYTHON  ?= python3
GPU_WORKERS ?= 8

BIN       := $(VENV)/bin
STAMP     := $(VENV)/.installed
BIN_NEXT  := $(VENV_NEXT)/bin
STAMP_NEXT := $(VENV_NEXT)/.installed
BIN_TRITON := $(VENV_TRITON)/bin
STAMP_TRITON := $(VENV_TRITON)/.installed
# What is never imported is not compiled; the rest is when it first is, and kept.
PIP       := -m pip install --quiet --disable-pip-version-check --no-compile
REQUIREMENTS := pyproject.toml constraints/dev.txt

# Without this JAX looks for a TPU wherever libtpu is installed.  On a TPU: make ... JAX_PLATFORMS=tpu
export JAX_PLATFORMS ?= cpu

# A module is compiled once for all the processes that a target starts, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test thorough lint types layouts fuzz fuzz-kernels fuzz-interpreter planted legality bodies compile-matrix derived-matrix schedule golden calibrate defaults performance bench gpu gpu-matrix gpu-legality triton tuner-faults triton-fuzz triton-next triton-planted test-next citizens clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(STAMP)  ## the development environment in .venv

demo: $(STAMP)  ## run on real text; FILES="..." for your own
	$(BIN)/python -m examples.real_text $(FILES)

test: $(STAMP)  ## what needs no device; EVERY=1: the slow tests too; ends with the tests' count
	@$(MAKE) --no-print-directory --jobs lint types layouts triton
	$(BIN)/python -m pytest -m "$(MARKS)" $(CASES) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/pyright --pythonpath $(BIN)/python

thorough:  ## every test there is; some forty minutes more than CI
	@$(MAKE) --no-print-directory test EVERY=all

gpu:  ## on an NVIDIA GPU: its tests, then docs/gpu-performance.md; GPU_PYTHON=... with torch for CUDA, triton and JAX
	JAX_PLATFORMS=cpu,cuda XLA_PYTHON_CLIENT_PREALLOCATE=false $(GPU_PYTHON) -m pytest -m gpu --numprocesses $(GPU_WORKERS) --dist load tests/gpu $(PYTEST_ARGS)
	$(GPU_PYTHON) -m benchmarks.gpu --write docs/gpu-performance.md

gpu-matrix: $(STAMP)  ## every example for every GPU architecture, into docs/gpu-matrix.md
	nice -n 19 $(BIN)/python -m tests.gpu.matrix --write docs/gpu-matrix.md

citizens: $(STAMP)  ## every example in every transformation of JAX and torch, into docs/citizens.md
	nice -n 19 $(BIN)/python -m tests.citizens --write docs/citizens.md

gpu-legality: N := 500
gpu-legality: $(STAMP)  ## N=... SEED=...: random configs through Triton's compiler
	$(BIN)/python -m tests.gpu.legality --count $(N) --seed $(SEED)

triton: $(STAMP)  ## kernels for GPUs in Triton's interpreter, which needs processes of its own
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -m "$(MARKS)" --numprocesses $(WORKERS) --dist load tests/gpu $(PYTEST_ARGS)

triton-fuzz: N := 300
triton-fuzz: $(STAMP)  ## N=... SEED=...: random kernels in Triton's interpreter; GPU_PYTHON -m tests.gpu.fuzz: on a GPU
	TRITON_INTERPRET=1 $(BIN)/python -m tests.gpu.fuzz --count $(N) --seed $(SEED)

tuner-faults: N := 500
tuner-faults: $(STAMP)  ## N=... SEED=...: damaged files and workers, and what the tuner makes of them
	$(BIN)/python -m tests.tuning.faults --count $(N) --seed $(SEED)

triton-next: $(STAMP_TRITON)  ## the same in the newest Triton on PyPI, and what its compiler makes of a product
	@$(BIN_TRITON)/python -c "import triton; print('triton', triton.__version__)"
	TRITON_INTERPRET=1 $(BIN_TRITON)/python -m pytest -m "$(MARKS)" --numprocesses $(WORKERS) --dist load tests/gpu $(PYTEST_ARGS)
	$(BIN_TRITON)/python -m tests.gpu.matrix matmul jagged_attention grouped_gemm

triton-planted: $(STAMP)  ## which check catches which bug planted into Triton
	TRITON_INTERPRET=1 $(BIN)/python -m tests.gpu.trial

layouts: $(STAMP)  ## a share of `make fuzz`, fully optimised
	$(BIN)/python -m tests.fuzz --layouts $(N) --seed $(SEED) --programs 16 --workers $(WORKERS)

fuzz: $(STAMP)  ## N=... SEED=...: random ragged layouts against float64
	$(BIN)/python -m tests.fuzz --layouts $(N) --seed $(SEED) --workers $(WORKERS)

fuzz-kernels: N := 200
fuzz-kernels: $(STAMP)  ## N=... SEED=...: random kernels against their meaning
	$(BIN)/python -m tests.fuzzing kernels --count $(N) --seed $(SEED) --jobs $(WORKERS)

fuzz-interpreter: N := 1000
fuzz-interpreter: $(STAMP)  ## N=... SEED=...: random layouts in Pallas's strict TPU interpreter
	$(BIN)/python -m tests.interpreter --runs $(N) --seed $(SEED)

planted: $(STAMP)  ## which check catches which planted bug
	$(BIN)/python -m tests.planted

legality: N := 500
legality: $(STAMP)  ## N=... SEED=...: random configs through the real TPU compiler
	$(BIN)/python -m tests.legality --count $(N) --seed $(SEED) --jobs $(WORKERS)

bodies: N := 500
bodies: $(STAMP)  ## N=... SEED=...: random operations, dtypes and places through the real TPU compiler, and their values
	$(BIN)/python -m tests.bodies --count $(N) --seed $(SEED) --values

compile-matrix: $(STAMP)  ## every example for every TPU generation, into docs/compile-matrix.md
	$(BIN)/python -m tests.compile_matrix --write docs/compile-matrix.md --jobs $(WORKERS)

derived-matrix: $(STAMP)  ## every derived gradient for every TPU generation, into docs/derived-matrix.md
	$(BIN)/python -m tests.derived_matrix --write docs/derived-matrix.md

schedule: $(STAMP)  ## bundles of a step against kernels by hand, into docs/schedule.md
	$(BIN)/python -m tests.schedule_table --write docs/schedule.md --jobs $(WORKERS)

golden: $(STAMP)  ## write expected sources and outputs in docs anew; review the diff
	$(BIN)/python -m pytest tests --update-golden -k "golden or page_runs" $(PYTEST_ARGS)

calibrate: $(STAMP)  ## how far estimates are from compiled schedules, and constants that fit better
	$(BIN)/python -m benchmarks.calibrate --fit

performance: $(STAMP)  ## predicted times beside the experts' kernels and XLA, those that the tree changed, into docs/performance.md
	nice -n 19 $(BIN)/python -m benchmarks.performance

defaults: $(STAMP)  ## default configs against 39 others by predicted time, hours of it, into docs/defaults.md
	$(BIN)/python -m benchmarks.defaults

bench: $(STAMP)  ## what a call costs
	$(BIN)/python -m benchmarks.call_overhead

test-next: $(STAMP_NEXT)  ## the Pallas tests on Python 3.12 with the newest JAX, without torch
	@$(BIN_NEXT)/python -c "import sys, jax, jaxlib; print('Python', sys.version.split()[0], 'jax', jax.__version__, 'jaxlib', jaxlib.__version__)"
	$(BIN_NEXT)/python -m pytest -m "$(MARKS)" $(CASES) --numprocesses $(WORKERS) --dist loadfile $(PYTEST_ARGS)

clean:  ## remove both environments and every cache
	rm -rf $(VENV) $(VENV_NEXT) $(VENV_TRITON) build *.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

# setuptools first and no build isolation: the build needs nothing that is not pinned.
$(STAMP): $(REQUIREMENTS) | $(BIN)/python
	@echo 'Installing into $(VENV); the first time this takes a few minutes.'
	$(BIN)/python $(PIP) --constraint constraints/dev.txt setuptools
	$(BIN)/python $(PIP) --constraint constraints/dev.txt --no-build-isolation --editable '.[$(EXTRAS)]'
	@touch $@

$(BIN_NEXT)/python:
	@test -n "$(PYTHON_NEXT)" \
	  || { echo 'Python 3.12 is needed: make test-next PYTHON_NEXT=/path/to/python3.12' >&2; exit 1; }
	"$(PYTHON_NEXT)" -m venv $(VENV_NEXT)

$(STAMP_NEXT): $(REQUIREMENTS) | $(BIN_NEXT)/python
	$(BIN_NEXT)/python $(PIP) --upgrade setuptools
	$(BIN_NEXT)/python $(PIP) --upgrade --no-build-isolation --editable '.[dev,jax]'
	@touch $@

# The newest Triton; everything else is that of .venv, which a path file shows to Python.
$(STAMP_TRITON): $(STAMP)
	$(BIN)/python -m venv $(VENV_TRITON)
	$(BIN_TRITON)/python $(PIP) --upgrade triton
	$(BIN)/python -c "import site; print(site.getsitepackages()[0])" > "$$($(BIN_TRITON)/python -c 'import site; print(site.getsitepackages()[0])')/development.pth"
	@touch $@
