# Every target sets up what it needs, once, in .venv (bench: .venv-bench, .venv-peers); a change of what is installed sets it up again.
# `make matrix` has environments of its own, which it throws away.
# Needs make and Python >= 3.11; takes the newest tested one (.ci/find_python). Another: make PYTHON=/path/to/python3 test

VENV := .venv
BENCH_VENV := .venv-bench
PEERS_VENV := .venv-peers
# Twice the cores of small machines: tests wait for the processes that they start.
WORKERS ?= 4
BASE ?= main

.PHONY: help demo quick test test-slow test-postgres test-all goldens goldens-compare lint prose docs pictures charts dist matrix bench verify-gpu clean
# Images for containers set it, and then each of the hundreds of processes that tests start compiles our modules anew.
export PYTHONDONTWRITEBYTECODE :=

.NOTPARALLEL: # two installations at once in one environment would break it
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.base ## measure a small model and compare two functions, in some seconds
	@$(VENV)/bin/benchax demo

quick: $(VENV)/.test $(VENV)/.lint ## ruff, and the tests of the folders that changed since BASE=main, but slow and serial ones
	@$(UNOPTIMIZED) $(VENV)/bin/python tests/quick.py --base $(BASE) --workers $(WORKERS)

# The tests marked `serial` observe durations: they run apart, two at a time, so that each has a core. Machines are shared
# all the same: a test that fails is run again, and the summary (-rR) says which.
SERIAL := -n 2 --dist loadfile
RERUNS := --reruns 2 -rR

# worksteal: each process has tests that stand together, and so few files whose fixtures are made twice.
PARALLEL = -n $(WORKERS) --dist worksteal

# Files with tests that have a mark. Collecting all of them would take a quarter of a minute. $(2): options of
# grep. In tests/ptjb the fixture `ptjb` marks what uses it as slow.
MARKED = $$(grep -rl --include='test_*.py' $(2) 'mark\.$(1)' tests)

# A fifth of the time goes into making programs fast that run once. Serial tests run what users run, and so do those that
# ask for the fixture `optimized`.
UNOPTIMIZED := $(if $(TEST_ON_GPU),,JAX_DISABLE_MOST_OPTIMIZATIONS=1)

PRINT_VERSIONS := import platform; from importlib.metadata import version; \
	print(f'Python {platform.python_version()}, JAX {version(\"jax\")}, jaxlib {version(\"jaxlib\")}', flush=True)

test: $(VENV)/.test ## run the tests but those marked slow, on the CPU (WORKERS=4 processes)
	@$(VENV)/bin/python -c "$(PRINT_VERSIONS)"
	$(UNOPTIMIZED) $(VENV)/bin/python -m pytest $(PARALLEL) -m "not slow and not serial" $(RERUNS)
	$(VENV)/bin/python -m pytest $(SERIAL) -m "not slow and serial" $(RERUNS) $(call MARKED,serial)

# The tests of a mark expression that begins with $(1), in the files $(2). Ray has a cluster for all of its tests, in one
# process, and mostly waits: so it runs next to the parallel ones.
RUN_BESIDE_RAY = @log=$$(mktemp); $(VENV)/bin/python -m pytest -m "$(1)serial" $(RERUNS) tests/clusters > $$log 2>&1 & \
	$(UNOPTIMIZED) $(VENV)/bin/python -m pytest $(PARALLEL) -m "$(1)not serial" $(RERUNS) $(2); code=$$?; \
	wait $$! || code=1; cat $$log; rm $$log; exit $$code
RUN_SERIAL = $(VENV)/bin/python -m pytest $(SERIAL) -m "$(1)serial" $(RERUNS) $(call MARKED,serial,--exclude-dir=clusters)

test-slow: $(VENV)/.test ## run the tests marked slow: whole programs, sessions of pytest, environments
	$(call RUN_BESIDE_RAY,slow and ,tests/ptjb $(call MARKED,slow))
	$(call RUN_SERIAL,slow and )

test-postgres test-all: export TEST_POSTGRES := $(or $(TEST_POSTGRES),start)

test-postgres: $(VENV)/.test ## run the tests of stores on the PostgreSQL server that is installed here; skipped, with the reason, without one
	$(VENV)/bin/python -m pytest -k postgres $(RERUNS) tests/store

# Each process needs eight seconds to read 9000 tests, so all of them are in one session, and short tests come last.
test-all: $(VENV)/.test ## run all tests, as CI does
	@$(VENV)/bin/python -c "$(PRINT_VERSIONS)"
	$(call RUN_BESIDE_RAY)
	$(call RUN_SERIAL)

# For instance: make goldens-compare GOLDENS='--only contract,codec,printed'
goldens-compare: $(VENV)/.goldens ## compare findings, printed output, documents and the public contract with the record
	$(VENV)/bin/python tests/goldens compare $(GOLDENS)

goldens: $(VENV)/.goldens ## record them again; read the differences first
	$(VENV)/bin/python tests/goldens record $(GOLDENS)

lint: $(VENV)/.lint ## format, rules, layers, prose and types: ruff, import-linter, .ci/prose.py and pyright
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python .ci/prose.py
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

prose: $(VENV)/.created ## write the lower counts of .ci/prose.txt, after you rewrote sentences
	$(VENV)/bin/python .ci/prose.py --lower

docs: $(VENV)/.docs ## build the documentation into docs/_build/html: its pages are executed, and a warning is an error
	$(VENV)/bin/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "docs/_build/html/index.html"

pictures: $(VENV)/.base ## draw the pictures of README.md anew, from real runs
	$(VENV)/bin/python docs/pictures/draw.py

dist: $(VENV)/.test $(VENV)/.dist ## build sdist and wheel into dist/, check them, install and run them in a bare environment
	rm -rf dist build
	$(VENV)/bin/python -m build --outdir dist
	$(VENV)/bin/python -m twine check --strict dist/*
	BENCHAX_TEST_DIST=dist $(VENV)/bin/python -m pytest tests/test_dist.py

# For instance: make matrix MATRIX='--python 3.12 --jax 0.6,newest'
matrix: $(VENV)/.dist ## run some tests with Python 3.11 to 3.13 and JAX 0.6 to the newest, in throw-away environments
	$(VENV)/bin/python .ci/matrix.py $(MATRIX)

bench: $(BENCH_VENV)/.benchmarks $(PEERS_VENV)/.peers ## set up the comparison with other tools and list its scripts
	@for script in benchmarks/*.py; do \
		test -e "$$script" || { echo "no scripts in benchmarks/"; break; }; \
		echo "$(BENCH_VENV)/bin/python $$script"; \
		sed -n '1s/^"""\([^"]*\).*/    \1/p' "$$script"; \
	done
	@echo "those that know --python compare with the tools of $(PEERS_VENV)/bin/python"

# On a machine with a GPU whose jaxlib is in .venv. For instance: make verify-gpu VERIFY=--flush-l2
verify-gpu: $(VENV)/.test ## check on an accelerator what tests cannot see without one; writes docs/verified/
	$(VENV)/bin/python benchmarks/verify_gpu.py $(VERIFY)

charts: ## build the chart library of pages anew from its packages of npm; needs node
	.ci/build_charts

clean: ## remove the environments and everything generated; stored measurements (.benchmarks) stay
	rm -rf $(VENV) $(BENCH_VENV) $(PEERS_VENV) build dist docs/_build src/*.egg-info .pytest_cache .ruff_cache .hypothesis
	rm -f src/benchax/clock/native.*
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps. Each is touched last, so that an interrupted installation starts again.

# What is installed: a change of any of these installs again.
INSTALLED := pyproject.toml setup.py src/benchax/clock/handlers.c .ci/jax.txt

$(VENV)/.base: $(VENV)/.created $(INSTALLED)
	$(call install,$(VENV),.)

$(VENV)/.test: $(VENV)/.created $(INSTALLED)
	$(call install,$(VENV),.[test])

# Programs that are audited use the libraries that benchmarks use. A variable, since a comma would end an argument.
TEST_AND_BENCHMARKS := .[test,benchmarks]
$(VENV)/.goldens: $(VENV)/.created $(INSTALLED)
	$(call install,$(VENV),$(TEST_AND_BENCHMARKS))

$(VENV)/.docs: $(VENV)/.created $(INSTALLED)
	$(call install,$(VENV),.[docs])

$(VENV)/.dist: $(VENV)/.created $(INSTALLED)
	$(call install,$(VENV),.[dist])

$(VENV)/.lint: $(VENV)/.created $(INSTALLED)
	$(call install,$(VENV),.[lint])

# Without what `make test` needs: its plugins would load into every session that is timed.
$(BENCH_VENV)/.benchmarks: $(BENCH_VENV)/.created $(INSTALLED)
	$(call install,$(BENCH_VENV),.[benchmarks])

# An environment of their own: pytest-jax-bench and benchax have a package of the same name.
$(PEERS_VENV)/.peers: $(PEERS_VENV)/.created benchmarks/peers.txt
	@echo "installing the tools to compare with into $(PEERS_VENV) (once; a minute or two)" >&2
	@$(PEERS_VENV)/bin/python -m pip --quiet --quiet --disable-pip-version-check install --requirement benchmarks/peers.txt
	@touch $@

# .venv gets the JAX of .ci/jax.txt. What the peers of .venv-bench accept is for pip to find.
define install
	@echo "installing benchax and what it needs into $(1) (once; a minute or two)" >&2
	@$(1)/bin/python -m pip --quiet --quiet --disable-pip-version-check install \
		$(if $(filter $(VENV),$(1)),--constraint .ci/jax.txt) --editable '$(2)'
	@touch $@
endef

# Each run looks again: a new Python on this machine, or another PYTHON=, makes the environment again and says so. A stamp
# that is left alone keeps its time, so nothing is installed twice. The .gitignore keeps git and ruff out (Python does it
# since 3.13).
$(VENV)/.created $(BENCH_VENV)/.created $(PEERS_VENV)/.created: FORCE
	@python=$$(.ci/find_python $(if $(PYTHON),"$(PYTHON)")) || exit; \
	version='import sys; print("%d.%d" % sys.version_info[:2])'; \
	wanted=$$("$$python" -c "$$version"); \
	found=$$($(@D)/bin/python -c "$$version" 2>/dev/null); \
	if test "$$found" = "$$wanted" && test -e $@; then exit; fi; \
	if test -n "$$found" && test "$$found" != "$$wanted"; then \
		echo "$(@D) has Python $$found: making it again with $$python, which is $$wanted" >&2; rm -rf $(@D); \
	fi; \
	"$$python" -m venv $(@D) && echo '*' > $(@D)/.gitignore && touch $@

FORCE:
