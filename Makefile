# The tools of a virtual environment in .venv, which `make .venv` makes; or of another: make test BIN=/path/to/bin
BIN ?= .venv/bin
OUT ?= results

help:
	@echo "make test | test-long | nightly | lint | format | type | bench | bench-kafka | demo | clean"

.venv:
	python3 -m venv .venv && .venv/bin/pip install -e '.[dev]'

test:
	$(BIN)/pytest

test-long:
	$(BIN)/pytest -m long -n 5 --dist loadgroup

# CI tests the installed package, and .venv has the sources.
nightly:
	python3 -m venv .venv-nightly
	.venv-nightly/bin/pip install --quiet --disable-pip-version-check '.[dev,bench,nightly]'
	npm install --silent --no-save --prefix .venv-nightly axe-core@4.14.1
	.venv-nightly/bin/python .ci/nightly.py

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format:
	$(BIN)/ruff format .

type:
	$(BIN)/mypy

bench:
	$(BIN)/python -m bench.peers --out $(OUT)
	$(BIN)/python -m bench.published --out $(OUT)
	$(BIN)/python -m bench.dense --out $(OUT)
	$(BIN)/python -m bench.stages --out $(OUT)
	$(BIN)/python -m bench.first_verdict --out $(OUT)
	$(BIN)/python -m bench.growth --out $(OUT)
	$(BIN)/python -m bench.windows --out $(OUT)
	$(BIN)/python -m bench.updates --out $(OUT)
	$(BIN)/python -m bench.times --out $(OUT)
	$(BIN)/python -m bench.groups --out $(OUT)
	$(BIN)/python -m bench.measures --out $(OUT)
	$(BIN)/python -m bench.serve --out $(OUT)

bench-kafka:
	$(BIN)/python -m bench.kafka_throughput --out $(OUT)
	$(BIN)/python -m bench.kafka_latency --out $(OUT)
	$(BIN)/python -m bench.kafka_stages --out $(OUT)
	$(BIN)/python -m bench.kafka_recovery --out $(OUT)
	$(BIN)/python -m bench.kafka_soak --minutes 10 --out $(OUT)

demo:
	$(BIN)/stream-lsh demo

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

.PHONY: help test test-long nightly lint format type bench bench-kafka demo clean
