# Shortcuts for what one does most; CMake does the work (CMakePresets.json). `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help setup setup-train setup-web clients build train demo test format lint clean
MAKEFLAGS += --no-print-directory

MODEL := models/coppice-mini-f16.gguf
PROMPT := models/demo-prompt.txt
DEMO = compare -m $(MODEL) -f $(PROMPT) --expect $(shell cat $(PROMPT:.txt=.answer)) \
  --prune lazyllm --prune ftp --prune sliminfer --prune sliminfer+ftp --prune random --prune selective:model=$(MODEL) --prune streamingllm

JOBS ?= $(shell nproc)
CONFIGURE := cmake --log-level=WARNING $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
SOURCES := find $(wildcard src tests benchmarks) -name '*.cpp' -o -name '*.h' -o -name '*.inl'

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

build: setup  ## builds the release: build/coppice
	@$(CONFIGURE) --preset release >/dev/null
	@cmake --build build --parallel $(JOBS) --target coppice

train: setup-train  ## builds the release with its trainer: build/coppice, build/coppice-train
	@$(CONFIGURE) --preset release -DCOPPICE_TRAIN=ON >/dev/null
	@cmake --build build --parallel $(JOBS) --target coppice coppice-train

demo: build  ## answers one question on a long prompt, densely and with each pruning method
	build/coppice $(DEMO)

# The sanitized programs are tests of the release build (tests/CMakeLists.txt), so one summary speaks for all.
test: setup-train setup-web clients  ## builds everything, runs every test but the long ones, the risky ones under sanitizers too
	@$(CONFIGURE) --preset dev >/dev/null
	@cmake --build build-dev --parallel $(JOBS) --target sanitized_tests
	@$(CONFIGURE) --preset release -DCOPPICE_SANITIZED_BUILD='$(CURDIR)/build-dev' >/dev/null
	@cmake --build build --parallel $(JOBS)
	@ctest --test-dir build --label-exclude '^long$$' --output-on-failure --no-tests=error --timeout 600 \
	  --parallel $(JOBS)

format:  ## formats all C++ files
	@$(SOURCES) | xargs clang-format -i

lint:  ## reports what clang-format and clang-tidy would change
	@command -v clang-format >/dev/null && command -v run-clang-tidy >/dev/null || { echo "lint: apt-get install clang-format clang-tidy"; exit 1; }
	@$(SOURCES) | xargs clang-format --dry-run -Werror
	@$(CONFIGURE) --preset release >/dev/null
	@run-clang-tidy -quiet -p build -j $(JOBS) '$(CURDIR)/(src|tests|benchmarks)/' 2>/dev/null

clean:  ## removes the build folders
	@rm -rf build build-*
