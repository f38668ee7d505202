#!/usr/bin/env bash
# Builds the core with ASan and UBSan apart from the ordinary one, and runs the core's tests on it.
# CPython is not instrumented, so the sanitizer's library is loaded ahead of it, and of the leaks
# at the end only those count that our own code allocated (see tools/leaks.py).
set -eu

bin=$(cd "$1" && pwd)
lib=build/asan/lib
rm -rf build/asan
mkdir -p build/asan
echo "Building the core with ASan and UBSan"
GRIDSTAT_SANITIZE=address "$bin/python" setup.py -q build \
    --build-base build/asan --build-lib $lib > build/asan/build.log 2>&1 ||
    { cat build/asan/build.log; exit 1; }

tests=()
for folder in tests/unit/core tests/unit/endpoint tests/protocol; do
    [ -d "$folder" ] && tests+=("$folder")
done

export PYTHONPATH=$PWD/$lib:$PWD PYTHONMALLOC=malloc HYPOTHESIS_PROFILE=brief
# A test takes the memory away on purpose, so a refused allocation is not an error here.
export ASAN_OPTIONS=detect_leaks=1:leak_check_at_exit=0:allocator_may_return_null=1
ASAN_OPTIONS=$ASAN_OPTIONS:log_path=$PWD/build/asan/report
export UBSAN_OPTIONS=print_stacktrace=1
status=0
# The search for paths is Python alone and has a bound on its time, which a slowed Python exceeds.
# The journeys trace Python's files, and those of this build lie elsewhere.
LD_PRELOAD=$("${CC:-cc}" -print-file-name=libasan.so) "$bin/python" -X faulthandler \
    "$bin/pytest" -q --capture=sys -p tools.leaks -o timeout=900 -o pythonpath="$lib ." \
    --ignore=tests/protocol/test_paths_oracle.py --ignore=tests/protocol/test_journeys.py \
    "${tests[@]}" || status=$?

# The leaks of CPython itself are in a report too, and of no interest; tools/leaks.py has read it.
grep -L 'ERROR: LeakSanitizer' build/asan/report.* 2> /dev/null | xargs -r cat
exit $status
