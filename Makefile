# Everything runs in .venv, which each target sets up by itself.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo quick test golden check coverage docs release release-test bench-core bench-search bench-small bench-features bench-deep bench-kernels bench-scale bench-scale-full bench-memory bench-cluster bench-peers bench-serve bench-check paper paper-quick torture clean

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /  /'

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

demo: .venv/ready ## fit, compare, explain and save on 336,776 real flights
	$(BIN)/autocross demo

quick: .venv/ready ## the part of the test suite that one runs while working, under a minute
	$(BIN)/python -m pytest -q -o addopts= -m "not slow" tests

test: .venv/ready ## the whole test suite
	$(BIN)/python -m pytest

golden: .venv/ready ## default fits on real tables, compared with those kept in tests/golden, on every engine; some 6 minutes
	for engine in serial threads ray; do $(BIN)/python tests/golden/models.py --engine $$engine || exit 1; done

check: .venv/ready ## formatting, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

coverage: .venv/ready ## lines that no test reaches; kernels run as plain Python for it
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest --cov=autocross --cov-report= tests/test_kernels.py
	$(BIN)/python -m pytest --cov=autocross --cov-append --cov-report=term-missing:skip-covered

docs: .venv/ready ## write docs/options.md and docs/cli.md anew
	$(BIN)/python docs/generate.py

.venv-release/ready: pyproject.toml
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet --disable-pip-version-check -e ".[release]"
	@touch $@

release: .venv-release/ready ## wheel, source archive and SBOM of the last commit, built twice and compared, in dist/
	.venv-release/bin/python scripts/release.py

release-test: .venv-release/ready ## the wheel on the lowest and newest dependencies, on each Python at hand (PYTHONS=, ENDS=); an hour
	.venv-release/bin/python scripts/release_test.py $(addprefix --end ,$(ENDS)) $(PYTHONS)

bench-core: .venv/ready ## LR (base) on the benchmark tables beside scikit-learn's; writes docs/benchmarks.md
	$(BIN)/python benchmarks/core.py

bench-search: .venv/ready ## AC+LR beside LR (base) on the benchmark tables; writes docs/benchmarks.md
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/planted.py
	$(BIN)/python benchmarks/small.py
	$(BIN)/python benchmarks/value_statistics.py
	$(BIN)/python benchmarks/constraints.py
	$(BIN)/python benchmarks/scorecard.py
	$(BIN)/python benchmarks/many_orders.py
	$(BIN)/python benchmarks/intervals.py

bench-small: .venv/ready ## few rows: AC+LR beside LightGBM and CatBoost; writes docs/benchmarks.md
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[paper]"
	$(BIN)/python benchmarks/small_peers.py

bench-features: .venv/ready ## LightGBM with and without the features of autocross, some 20 minutes; writes docs/benchmarks.md
	$(BIN)/python benchmarks/lightgbm_features.py

bench-deep: .venv/ready ## AC+W&D beside AC+LR, every table and seed, some 20 minutes; writes docs/benchmarks.md
	$(BIN)/python benchmarks/deep.py

bench-kernels: .venv/ready ## every kernel beside the plain loop in C (needs gcc) and NumPy; writes docs/benchmarks.md
	$(BIN)/python benchmarks/kernels.py

bench-scale: .venv/ready ## 0.1, 1 and 10 million generated rows: time and memory; some 15 minutes; writes docs/benchmarks.md
	$(BIN)/python benchmarks/scale.py

bench-scale-full: .venv/ready ## the same with Criteo's 45.8 million rows
	$(BIN)/python benchmarks/scale.py --full

bench-memory: .venv/ready ## memory under limits of 0.25 to 2 GiB, 2 million rows; some 20 minutes; writes docs/benchmarks.md
	$(BIN)/python benchmarks/memory.py

bench-cluster: .venv/ready ## the same fit on threads and on a Ray cluster of this machine; some 15 minutes; writes docs/benchmarks.md
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/simulate.py --write

bench-peers: .venv/ready ## time of a default fit beside LightGBM, CatBoost, EBM, Vowpal Wabbit, scikit-learn; writes docs/benchmarks.md
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[paper]"
	$(BIN)/python benchmarks/peers.py

bench-serve: .venv/ready ## one row, 100,000 rows and a fresh process beside LightGBM; some 5 minutes; writes docs/benchmarks.md
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[paper]"
	$(BIN)/python benchmarks/serving.py

bench-check: .venv/ready ## list the sections of docs/benchmarks.md that are older than the code they measure
	$(BIN)/python benchmarks/sections.py --check

paper: .venv/ready ## every table and figure of the paper, resumable, hours; writes docs/benchmarks.md
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[paper]"
	$(BIN)/python paper/run.py

paper-quick: .venv/ready ## the same with one seed and 10,000 rows of each of its tables, some 9 minutes
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[paper]"
	$(BIN)/python paper/run.py --quick

SECONDS ?= 600
torture: .venv/ready ## attack the package for SECONDS=600: bad tables, forged files, kills, full disks, forks; faults are kept in .torture
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[torture]"
	$(BIN)/python tests/torture/run.py --seconds $(SECONDS)

clean: ## remove what was installed and written
	rm -rf .venv .venv-release demo build dist .torture
