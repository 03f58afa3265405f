# make demo   a first look: learns, answers, draws        make bench   against other libraries
# make test   lint and all tests                          make docs    the pages as a site, in build/docs
# make paper  tables and figures of the papers, again     make format  let ruff mend what it can
.DEFAULT_GOAL := help
SHELL := /bin/sh

BIN := .venv/bin
READY := .venv/ready
PYTHONS := python3.11 python3.12 python3.13 python3
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE  # tests start many programs, which would compile the library again

help:
	@sed -n 's/^# //p' Makefile

$(READY): pyproject.toml constraints.txt
	@found=; for p in $(PYTHONS); do \
	  if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	  then found=$$p; break; fi; done; \
	if [ -z "$$found" ]; then \
	  echo "fedcircuits needs Python 3.11 or newer with its venv module; looked for: $(PYTHONS)" >&2; \
	  exit 1; fi; \
	echo "installing into .venv with $$($$found --version)"; $$found -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python -m fedcircuits demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j2 types layers
types: $(READY)
	$(BIN)/mypy
layers: $(READY)
	$(BIN)/lint-imports --no-logo

# Tests of a file share what they have fitted; programs of sites, which take longest, come first.
BY_FILE := --dist loadfile --no-loadscope-reorder
test: lint
	$(BIN)/python -m pytest -q -n auto --maxprocesses=4 $(BY_FILE)

# The engines of the extras, with the libraries that they run on.
.venv/engines: $(READY)
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,ray,nvflare]'
	@touch $@

# All at once: NVFlare's tests wait for its programs most of the time.
test-engines: .venv/engines
	@$(MAKE) --no-print-directory -j3 --output-sync=target test-ray test-nvflare test-nvflare-walk

WALK := tests/engines/nvflare/test_walk.py
test-ray: .venv/engines
	$(BIN)/python -m pytest -q -rs tests/engines/ray
test-nvflare: .venv/engines
	$(BIN)/python -m pytest -q -rs tests/engines/nvflare --ignore=$(WALK)
test-nvflare-walk: .venv/engines
	$(BIN)/python -m pytest -q -rs $(WALK)

# The oldest releases of all dependencies. WHOLE=1 runs all tests, with the extras that they need.
SHORT := tests/tables tests/circuits/leaves tests/test_light.py tests/estimators/test_targets.py
.venv-lowest/ready: $(READY) pyproject.toml constraints-lowest.txt
	@$(BIN)/python -m venv --clear .venv-lowest
	@.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e '.[polars]' \
	  'pytest>=9.2' pytest-xdist hypothesis
	@touch $@

.venv-lowest/whole: .venv-lowest/ready
	@.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt \
	  -e '.[polars,psi,dp,dashboard,sites]' 'build>=1.6' 'mypy>=2.4' 'selenium>=4.30'
	@touch $@

test-lowest: $(if $(WHOLE),.venv-lowest/whole,.venv-lowest/ready)
	.venv-lowest/bin/python -m pytest -q -n auto --maxprocesses=4 $(BY_FILE) $(if $(WHOLE),,$(SHORT))

bench: $(READY)
	$(BIN)/python -m benchmarks.run

# Tables and figures of the papers, small; FULL=1 takes hours. Writes docs/results/paper.json and .md.
paper: $(READY)
	$(BIN)/python -m benchmarks.paper $(if $(FULL),--full) $(if $(SEEDS),--seeds $(SEEDS))

docs: $(READY)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "open build/docs/index.html"

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-lowest build dist demo .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help demo lint types layers test test-engines test-ray test-nvflare test-nvflare-walk test-lowest bench paper docs format clean
