#!/bin/sh
# Fuzz the batch reader with libFuzzer and an embedded CPython, under ASan and UBSan.
#
#   tests/fuzz/run.sh [seconds]          from anywhere; 60 seconds unless told otherwise
#
# Needs clang-14 with its runtimes (Debian: clang-14, libclang-rt-14-dev) and the Python named by $PYTHON (default: python)
# with a shared libpython; the package's build and runtime dependencies must be installed there. Nothing is installed.
# The build goes to tests/.cache/fuzz; new inputs are found there, too. The kept corpus is tests/fuzz/corpus.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
seconds=${1:-60}
clang=${CLANG:-clang-14}
work=$root/tests/.cache/fuzz

command -v "$clang" >/dev/null || { echo "$0: $clang is missing (Debian: clang-14 libclang-rt-14-dev)" >&2; exit 2; }
config() { "$python" -c "import sysconfig; print(sysconfig.get_config_var('$1'))"; }
ls "$(config LIBDIR)"/libpython3*.so >/dev/null 2>&1 || { echo "$0: $python has no shared libpython" >&2; exit 2; }

mkdir -p "$work/tree" "$work/found"
# tar keeps the times of files, so that only what has changed is built again.
tar -C "$root" --exclude='*.so' --exclude=__pycache__ --exclude='*.c' -cf - \
    kafkaprod setup.py pyproject.toml README.md LICENSE tests/__init__.py tests/fuzz | tar -C "$work/tree" -xf -
cd "$work/tree"
# setup.py puts its own flags last, so that -fno-wrapv and the sanitizers win over those of the interpreter.
CC="$clang" LDSHARED="$clang -shared" CFLAGS="-fsanitize=fuzzer-no-link -Wno-unused-command-line-argument" \
    KAFKAPROD_SANITIZE=address,undefined "$python" setup.py -q build_ext --inplace
"$clang" -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -I"$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')" "$root/tests/fuzz/harness.c" \
    -L"$(config LIBDIR)" -Wl,-rpath,"$(config LIBDIR)" -Wl,-export-dynamic -lpython"$(config LDVERSION)" -o "$work/fuzz"

export PYTHONPATH="$work/tree:$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
export PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 FUZZ_TARGET=tests.fuzz.targets:read_batch
exec "$work/fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$work/" "$work/found" "$root/tests/fuzz/corpus"
