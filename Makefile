# The commands of the project. CMake and Ninja do the building; this file only says in which order
# things are fetched, built and started. Everything here may be run again at no cost.

MODEL = models/SmolLM2-135M-Instruct.Q4_1.gguf
POLYSIL = build/release/bin/polysil
HTTP = 127.0.0.1:8080
GRPC = 127.0.0.1:50051
PROMPT = Write one sentence about the sea.
# More arguments for polysil serve, as: make serve ARGS='--set kv.blocks=512'
ARGS =
# Arguments for bench/peers/compare.py, as: make bench PEERS='--cells decode_1 --rounds 1'
PEERS =
JOBS = $(shell nproc)

.DEFAULT_GOAL = help
.PHONY: help build serve demo test e2e oracle bench peers sim-nightly lint format model \
        clean bootstrap bootstrap-test build-all
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: build model ## install what is missing, build, fetch the model and serve it
	exec $(POLYSIL) serve $(MODEL) --http $(HTTP) --grpc $(GRPC) $(ARGS)

test: bootstrap-test build-all model ## install what is missing, build and run every test
	ctest --preset release -j $(JOBS)
	.venv/bin/python -m pytest tests/tidy tests/peers tests/e2e

build: bootstrap build/release/build.ninja ## build/release/bin/polysil
	ninja -C build/release -j $(JOBS) polysil

demo: build model ## one answer of the model on the command line (PROMPT='...')
	$(POLYSIL) generate $(MODEL) -p "$(PROMPT)"

oracle: bootstrap build/release/build.ninja model ## compare with the float64 reference
	ninja -C build/release -j $(JOBS) test_exec
	build/release/bin/test_exec --gtest_filter='Oracle.*'

bench: build model ## the micro-benchmarks of bench/, then other engines if any is installed (hours)
	bench/run.sh build/release
	bench/peers/compare.py $(PEERS)

peers: model ## install the engines that make bench compares with, and their model files (7 GB)
	bench/peers/install.sh
	bench/peers/models.sh

sim-nightly: build ## an hour of random simulations, with seeds of the day
	tools/sim_nightly.sh $(POLYSIL)

lint: bootstrap-test build-all ## format, files, layers, headers, static checks
	tools/lint.sh build/release

format: ## lay out all C++ code as .clang-format says
	tools/lint.sh --format

model: bootstrap ## fetch and check the model of the examples and tests
	@tools/fetch_model.sh

e2e: bootstrap-test build model ## the end-to-end tests alone (PYTEST='-k drain')
	.venv/bin/python -m pytest tests/e2e $(PYTEST)

clean: ## remove build/ (not the model, not .venv)
	rm -rf build

bootstrap:
	@tools/bootstrap.sh serve

bootstrap-test:
	@tools/bootstrap.sh test

build-all: build/release/build.ninja
	ninja -C build/release -j $(JOBS)

build/release/build.ninja:
	cmake --preset release
