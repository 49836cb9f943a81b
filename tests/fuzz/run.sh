#!/bin/sh
# Fuzz what reads bytes of strangers with libFuzzer and an embedded CPython, under ASan and UBSan.
#
#   tests/fuzz/run.sh [target] [seconds]      from anywhere; read_batch for 60 seconds unless told otherwise
#
# Targets: read_batch (targets.py); read_response, settle_response, receive_bytes (response_targets.py).
#
# Needs clang-14 with its runtimes (Debian: clang-14, libclang-rt-14-dev) and the Python named by $PYTHON (default: python)
# with a shared libpython; the package's build and runtime dependencies must be installed there. Nothing is installed.
# The build goes to tests/.cache/fuzz; new inputs are found there, too. The kept corpora are tests/fuzz/corpus/<target>.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
target=${1:-read_batch}
seconds=${2:-60}
case $target in
    read_batch) module=tests.fuzz.targets ;;
    read_response | settle_response | receive_bytes) module=tests.fuzz.response_targets ;;
    *) echo "$0: there is no target $target" >&2; exit 2 ;;
esac
clang=${CLANG:-clang-14}
work=$root/tests/.cache/fuzz

command -v "$clang" >/dev/null || { echo "$0: $clang is missing (Debian: clang-14 libclang-rt-14-dev)" >&2; exit 2; }
config() { "$python" -c "import sysconfig; print(sysconfig.get_config_var('$1'))"; }
ls "$(config LIBDIR)"/libpython3*.so >/dev/null 2>&1 || { echo "$0: $python has no shared libpython" >&2; exit 2; }

mkdir -p "$work/tree" "$work/found/$target"
# tar keeps the times of files, so that only what has changed is built again.
tar -C "$root" --exclude='*.so' --exclude=__pycache__ --exclude='*.c' -cf - \
    kafkaprod setup.py pyproject.toml README.md LICENSE tests/__init__.py tests/fuzz tests/support | tar -C "$work/tree" -xf -
cd "$work/tree"
# setup.py puts its own flags last, so that -fno-wrapv and the sanitizers win over those of the interpreter.
# Cython's argument wrappers add 0 to a null pointer, which clang reports and no machine minds.
printf '[pointer-overflow]\nfun:__pyx_p[wf]_*\nfun:__pyx_tp_new_*\n' > "$work/ignored"
CC="$clang" LDSHARED="$clang -shared" \
    CFLAGS="-fsanitize=fuzzer-no-link -fsanitize-ignorelist=$work/ignored -Wno-unused-command-line-argument" \
    KAFKAPROD_SANITIZE=address,undefined "$python" setup.py -q build_ext --inplace
"$clang" -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -I"$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')" "$root/tests/fuzz/harness.c" \
    -L"$(config LIBDIR)" -Wl,-rpath,"$(config LIBDIR)" -Wl,-export-dynamic -lpython"$(config LDVERSION)" -o "$work/fuzz"

export PYTHONPATH="$work/tree:$("$python" -c 'import sys; print(":".join(filter(None, sys.path)))')"
export PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 FUZZ_TARGET="$module:$target"
exec "$work/fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 -print_final_stats=1 \
    -artifact_prefix="$work/$target-" "$work/found/$target" "$root/tests/fuzz/corpus/$target"
