# A thin cover over meson and tests/run.sh, for fingers that type `make`.
B ?= build

help:
	@echo 'make build     build/src/cli/muster'
	@echo 'make check     unit tests, simulator, corpora, lints'
	@echo 'make asan      the same with ASan and UBSan, and end to end'
	@echo 'make valgrind  muster'\''s own processes under valgrind'
	@echo 'make fuzz      every fuzz target for a million inputs'
	@echo 'make bench     the benchmarks'
	@echo 'make benchmarks  the same, without hang_kinds, written to docs/benchmarks.md'
	@echo 'make install   to the prefix of meson setup'
	@echo 'tests/run.sh   everything, from a bare Debian 12 on'

$(B)/build.ninja:
	meson setup $(B)

build: $(B)/build.ninja
	ninja -C $(B)

check: build
	meson test -C $(B)

asan:
	tests/run.sh --only asan,asan-e2e

valgrind:
	tests/run.sh --only valgrind

fuzz:
	tests/run.sh --only fuzz

bench: build
	meson test -C $(B) --benchmark --verbose

benchmarks: build
	tests/bench/report.py $(B)

install: build
	meson install -C $(B)

.PHONY: help build check asan valgrind fuzz bench benchmarks install
