# SPDX-License-Identifier: Apache-2.0
#
# The verbs a person types. CMake builds; this file only names what to run. `make` lists the verbs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PREFIX ?= /usr/local
CLANG_FORMAT ?= clang-format-14
RUN_CLANG_TIDY ?= run-clang-tidy-14
CMAKE_ARGS ?=
BUILD_ARGS ?=
CTEST_ARGS ?=
BENCH_ARGS ?=

RELEASE := build/release
GAPLESS := $(RELEASE)/src/cli/gapless
DEMO := build/demo
SOURCES = git ls-files -z -- '*.h' '*.cc' '*.cu' '*.cuh'

.DEFAULT_GOAL := help
.PHONY: help demo test bench gpu-bundle format format-check tidy clean install release

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: ## build, run a decode layer of Qwen3-14B on these cores, check it, record it, say what it took
	@tools/bootstrap --for build
	@$(MAKE) --no-print-directory release BUILD_ARGS='$(BUILD_ARGS) --target gapless'
	@mkdir -p $(DEMO)
	$(GAPLESS) profile -o $(DEMO)/profile.gapless --html $(DEMO)/report.html
	@echo
	@echo 'Open file://$(CURDIR)/$(DEMO)/report.html in a browser. Or drop'
	@echo '$(CURDIR)/$(DEMO)/profile.pftrace on https://ui.perfetto.dev; it is not uploaded.'

test: ## build and run all tests
	@tools/bootstrap --for test
	@$(MAKE) --no-print-directory release
	ctest --preset release $(CTEST_ARGS)
	@python3 -B tools/skipped_tests.py $(RELEASE)/Testing/Temporary/LastTest.log

bench: ## run the benchmarks; BENCH_ARGS goes to bench/run
	@tools/bootstrap --for bench
	@$(MAKE) --no-print-directory release
	bench/run $(BENCH_ARGS)

gpu-bundle: ## build build/gpu-bundle/gapless-gpu: GPU tests, benchmarks, commands; needs a driver
	@tools/bootstrap --for build
	@cmake --preset release >/dev/null
	@! cat $(RELEASE)/gpu_bundle/missing.txt >&2 2>/dev/null
	cmake --build --preset release $(BUILD_ARGS) --target gapless_gpu
	@mkdir -p build/gpu-bundle
	cp $(RELEASE)/gpu_bundle/gapless-gpu build/gpu-bundle/

format: ## clang-format every tracked source
	@tools/bootstrap --for check
	$(SOURCES) | xargs -0 -r $(CLANG_FORMAT) -i

format-check: ## fail when a tracked source is not formatted
	@tools/bootstrap --for check
	$(SOURCES) | xargs -0 -r $(CLANG_FORMAT) --dry-run -Werror

tidy: ## clang-tidy over our sources, then the house rules of tools/tidy.py
	@tools/bootstrap --for check
	cmake --preset release
	$(RUN_CLANG_TIDY) -quiet -p $(RELEASE) '^$(CURDIR)/(src|tests|bench|examples)/'
	python3 tools/tidy.py

install: ## install the program, the library and its headers; PREFIX= and DESTDIR= say where
	@tools/bootstrap --for build
	@$(MAKE) --no-print-directory release
	DESTDIR='$(DESTDIR)' cmake --install $(RELEASE) --prefix '$(PREFIX)'

clean: ## remove build/
	rm -rf build

release:
	cmake --preset release $(CMAKE_ARGS)
	cmake --build --preset release $(BUILD_ARGS)
