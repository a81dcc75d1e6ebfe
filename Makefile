# Short commands for the CMake builds of CMakePresets.json.
#
#   make              installs missing packages (asks before sudo; SFP_SETUP=no declines), then builds build/release/streamfp, and
#                     what its commands in Python need
#   make cluster-demo two workers of a Redis Stream, one of which is killed, beside one process (installs redis-server)
#   make demo         compares three methods on a stream of Fashion-MNIST at 3,000 images per second, in about two minutes (installs
#                     Debian's dataset-fashion-mnist)
#   make check        builds and runs all tests, also with sanitizers, as CI does; takes several minutes
#   make dev-test T=test_heads
#                     builds without optimisation what one file of tests/unit needs, and runs it
#   make tidy         runs clang-tidy over the sources, with the checks of .clang-tidy; part of make check
#   make check-long   runs the tests with SFP_LONG=1 (larger matrices, more kills), every selector with every buffer under asan,
#                     then each fuzz target for SFP_FUZZ_SECONDS (default 300)
#   make install      installs into DESTDIR and PREFIX (default /usr/local)
#   make library      builds only build/release/src/libstreamfp.so, which `pip install ./python` takes
#   make wheel        builds the Python package with all libraries that it needs, in build/wheel
#   make uninstall    removes all installed files; use the same DESTDIR and PREFIX
#   make abi          records the binary interface of the library in tests/api/libstreamfp.abi, after an intended change
#   make format       formats the sources with clang-format
#   make clean        removes build/

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := release

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
SFP_FUZZ_SECONDS ?= 300
export CTEST_OUTPUT_ON_FAILURE := 1

presets := release dev cblas asan tsan fuzz
tested := $(presets:%=%-tests)
T ?= test_heads
.PHONY: dev-test release-programs $(presets) $(tested) setup setup-check setup-fuzz demo cluster-demo check check-long check-rules tidy library install wheel uninstall abi format clean
.NOTPARALLEL:

setup:
	@scripts/setup

setup-check setup-fuzz: setup-%:
	@scripts/setup $*

# `make asan` builds one preset without its tests, `make asan-tests` with them
$(presets): setup
	@[ -f build/$@/build.ninja ] || cmake --preset $@
	@cmake --build build/$@ -j $(JOBS) --target streamfp $(if $(filter release,$@),libstreamfp python_package)
	@ln -sfn build/$@/compile_commands.json compile_commands.json

fuzz-tests: setup-fuzz
$(tested): %-tests: setup-check
	@cmake --preset $* -DBUILD_TESTING=ON >/dev/null
	@cmake --build build/$* -j $(JOBS)

dev-test: setup-check
	@[ "$$(sed -n 's/^SFP_ONE_TEST:[A-Z]*=//p' build/dev/CMakeCache.txt 2>/dev/null)" = $(T) ] || \
		cmake --preset dev -DBUILD_TESTING=ON -DSFP_ONE_TEST=$(T) >/dev/null
	@cmake --build build/dev -j $(JOBS) --target unit_one
	@build/dev/tests/unit_one $(T)

# the default settings, a published closed-form head, and the settings of the paper on the same stream; the paper measures 500 batches
demo_run := build/release/streamfp run --rate 3000 --eval-limit 200
demo_runs := build/demo/best build/demo/ranpac build/demo/paper
demo: release
	@scripts/setup demo
	@rm -rf build/demo
	@$(demo_run) --out build/demo/best
	@$(demo_run) --method ranpac --taps 1 --allocate fixed --img-size 0 --out build/demo/ranpac
	@$(demo_run) --preset paper --calibrate 20 --out build/demo/paper
	@build/release/streamfp runs compare $(demo_runs)
	@echo 'reports: $(demo_runs:%=%/report.html)'

# two workers of a Redis Stream on this machine, of which one is killed, beside one process
cluster-demo:
	@scripts/setup cluster
	@$(MAKE) --no-print-directory release
	@scripts/cluster-demo build/release/streamfp

check-rules:
	@scripts/check-layers --self-test
	@scripts/check-layers

tidy: setup-check
	@[ -f build/release/build.ninja ] || cmake --preset release
	@scripts/tidy build/release $(JOBS)

# Each behaviour is tested once, in the cheapest build that finds a fault of it: asan runs everything but what is slow there; tsan what
# several threads do; release what asan does not run (label sanitized), and the tests of numbers with the other backend of matrix products.
# A warning is an error in all three. Some tests wait, so that there is one test more than cores. The tests of release run last, so that
# their summary is at the end of the output. check-long runs everything in release, too.
test_jobs := $(shell expr $(JOBS) + 1)
check: check-rules asan-tests tsan-tests release-programs tidy
	ctest --test-dir build/asan -j $(test_jobs)
	ctest --test-dir build/tsan -L threads -LE numeric -j $(test_jobs)
	ctest --test-dir build/release -LE sanitized -j $(test_jobs)

release-programs: setup-check
	@cmake --preset release -DBUILD_TESTING=ON -DSFP_WERROR=ON >/dev/null
	@cmake --build build/release -j $(JOBS) --target programs

check-long: check-rules release-tests cblas-tests asan-tests tsan-tests fuzz-tests
	@scripts/setup demo
	ctest --test-dir build/cblas -L numeric -j $(JOBS)
	ctest --test-dir build/tsan -L threads -j $(JOBS)
	SFP_LONG=1 ctest --test-dir build/release -j $(JOBS)
	bench/combinations --streamfp build/asan/streamfp --timestamps 5 --runs-only
	scripts/fuzz build/fuzz $(SFP_FUZZ_SECONDS)

install: release
	@cmake --preset release >/dev/null
	@cmake --build build/release -j $(JOBS) --target libstreamfp help_files python_package
	@scripts/install build/release "$(DESTDIR)" "$(PREFIX)"

library: setup
	@cmake --preset release >/dev/null
	@cmake --build build/release -j $(JOBS) --target libstreamfp

wheel: library
	@STREAMFP_WHEEL=1 /usr/bin/python3 -m pip wheel --no-deps --no-build-isolation --wheel-dir build/wheel ./python

uninstall:
	@scripts/install --uninstall build/release "$(DESTDIR)" "$(PREFIX)"

abi: library
	@tests/api/abi --update . build/release/src/libstreamfp.so

format:
	clang-format -i $$(find src include tests examples bench -name '*.[ch]' -o -name '*.inc' 2>/dev/null)

clean:
	rm -rf build
