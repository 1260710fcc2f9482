# The two commands to know: `make demo` and `make test`. CMake does the work (CMakePresets.json).
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
DEPS = build/.dependencies-installed

.PHONY: help configure library demo test test-torch python notebooks build bench bench-torch bench-kernels count \
  experiments golden long mutate asan tsan clang shared neon qemu vendored format format-check tidy install clean
help:
	@echo "make demo      install what is missing, build the program, run the built-in regression, write report.html"
	@echo "make test      install what is missing, build everything, run every test"
	@echo "make test-torch    install PyTorch and scikit-learn, test ttr.torch and ttr.OnlineRegressor with them"
	@echo "make python    build the wheel (build/wheel/) and try it in a clean environment"
	@echo "make notebooks run examples/notebooks with Debian's nbconvert and keep their outputs"
	@echo "make build     the program at build/ttr and the library"
	@echo "make bench     speed of the standard table beside the machine's limits"
	@echo "make bench-torch     ttr.torch beside plain PyTorch, and what a call from Python costs"
	@echo "make bench-kernels   micro-benchmarks of kernels, and of products beside other libraries (build-bench/)"
	@echo "make count     instructions, multiply-adds, loads and stores of one token, counted by valgrind (build-bench/)"
	@echo "make experiments     every experiment in full, resumable (two hours; experiments/README.md)"
	@echo "make golden    compute the golden vectors anew from their equations and compare (a few seconds, numpy)"
	@echo "make long      a million tokens through every layer, float against double (minutes)"
	@echo "make mutate    make the code wrong in small ways and see whether the checks notice (an hour)"
	@echo "make asan      build and test with the address and undefined-behaviour sanitizers (build-asan/)"
	@echo "make tsan      build and test with the thread sanitizer (build-tsan/)"
	@echo "make clang     build and test with clang (build-clang/)"
	@echo "make shared    build and test the shared library (build-shared/)"
	@echo "make neon      compile the library for 64-bit Arm with a cross compiler; nothing is run"
	@echo "make qemu      build for 64-bit Arm and run the checks under qemu-user (an hour)"
	@echo "make vendored  a client that brings its own Highway, by add_subdirectory"
	@echo "make format    format every source file; make format-check only looks"
	@echo "make tidy      clang-tidy over the library and the program; TIDY='--changed HEAD~1' only what changed"
	@echo "make install   install to PREFIX=$(PREFIX)"
	@echo "make clean     remove every build folder"

$(DEPS): scripts/install-dependencies.sh
	@bash scripts/install-dependencies.sh
	@mkdir -p build && touch $@

# `make demo` compiles kernels for this machine alone, which is quicker; whatever else is made of build/ has them all.
configure: $(DEPS)
	@cmake --preset release $$(grep -qs '^TTR_TARGETS:[A-Z]*=native' build/CMakeCache.txt && echo -UTTR_TARGETS) \
	  > build/configure.log || { cat build/configure.log; exit 1; }

build: configure  # the program, and the library that it is made of
	@cmake --build --preset release -j $(JOBS) --target ttr_program

demo: $(DEPS)
	@cmake --preset release $$(test -e build/CMakeCache.txt || echo -DTTR_TARGETS=native) \
	  > build/configure.log || { cat build/configure.log; exit 1; }
	@cmake --build --preset release -j $(JOBS) --target ttr_program
	build/ttr regress --report report.html
	@echo "The report is at $(CURDIR)/report.html: open it in a browser."

test: configure
	@cmake --build --preset release -j $(JOBS)
	ctest --preset release -j $(JOBS)

library: configure
	@cmake --build --preset release -j $(JOBS) --target ttr_c ttr_language_c

test-torch: build library
	@bash scripts/install-dependencies.sh torch
	bash tests/torch_check.sh build

python: build library
	@rm -rf build/wheel && mkdir -p build/wheel
	TTR_LIBRARY=build/libttr_c.so /usr/bin/python3 -m pip wheel --quiet --no-index --no-deps --wheel-dir build/wheel .
	bash tests/python_test.sh build/ttr
	@echo "The wheel is in build/wheel: pip install --no-index --no-deps build/wheel/ttr-*.whl"

notebooks: library
	@bash scripts/install-dependencies.sh notebooks
	bash scripts/run-notebooks.sh

bench: build
	build/ttr bench

bench-torch: library
	@bash scripts/install-dependencies.sh torch
	PYTHONPATH=python /usr/bin/python3 bench/python/overhead.py
	PYTHONPATH=python /usr/bin/python3 bench/torch/ops.py --markdown

bench-kernels: $(DEPS)
	@bash scripts/install-dependencies.sh bench
	cmake --preset bench
	cmake --build --preset bench -j $(JOBS) --target ttr_kernels ttr_products ttr_model_products
	OMP_NUM_THREADS=1 build-bench/bench/ttr_products --benchmark_min_time=0.2
	build-bench/bench/ttr_model_products
	build-bench/bench/ttr_kernels --benchmark_min_time=0.2

# Few tokens: a token executes the same among many.
count: $(DEPS)
	@bash scripts/install-dependencies.sh bench
	cmake --preset bench
	cmake --build --preset bench -j $(JOBS) --target ttr_once
	@python3 scripts/count-instructions.py gla gla@128x128 rwkv-6 gated-deltanet kda rwkv-7 mamba-2@128x64 \
	  softmax-attention@64x64x512

experiments: build
	@TTR=$(CURDIR)/build/ttr bash experiments/run-all.sh

golden: $(DEPS)
	@/usr/bin/python3 scripts/golden/generate.py --compare tests/golden

long: build
	build/ttr check --long

mutate: $(DEPS)
	@python3 scripts/mutate.py --jobs $(JOBS)

asan tsan: $(DEPS)
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --preset $@ -j $(JOBS)

clang shared: $(DEPS)
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --test-dir build-$@ --output-on-failure -j $(JOBS)

neon: $(DEPS)
	@bash scripts/check-neon.sh

qemu: $(DEPS)
	@bash scripts/check-arm.sh

vendored: $(DEPS)
	@bash scripts/check-vendored.sh

SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.cc' '*.h')
format: $(DEPS)
	clang-format-14 -i $(SOURCES)
format-check: $(DEPS)
	clang-format-14 --dry-run --Werror $(SOURCES)

tidy: configure
	@bash scripts/tidy.sh $(TIDY)

install: build
	@cmake --build --preset release -j $(JOBS) --target ttr_model ttr_c ttr_language_c
	cmake --install build --prefix "$(PREFIX)"

clean:
	rm -rf build build-*
