#!/usr/bin/env bash
# Runs all tests but those marked apart, and beside them the checks of style and types.
# A script, since make runs a recipe that calls make even when it is only asked what it would do.
# What it says of the checklist is kept for `make features`.
# Checks that pass say nothing, so that the last line is pytest's; those that fail say so at once.
set -u

bin=$1
# Tests start many hundred processes: without its cache of bytecode, Python compiles all of the
# source again in each of them.
unset PYTHONDONTWRITEBYTECODE
mkdir -p build
# Without make's flags: they tell of a jobserver that only a recipe may use.
{ env -u MAKEFLAGS -u MFLAGS make --no-print-directory lint type > build/checks.log 2>&1 ||
    { cat build/checks.log >&2; exit 1; }; } &
checks=$!
# The tests of Spark come late and want its classes archived: made by then, nobody waits for it.
# Where it cannot be made they say so themselves, and start more slowly.
"$bin/python" -m gridstat.pipeline.class_archive > build/classes.log 2>&1 &
classes=$!
tests=0
# Three workers for two processors: two have the clouds (tests/workers.py), which mostly wait.
"$bin/pytest" -q -n 3 --no-loadscope-reorder -m "not apart" \
    --features build/features.json tests || tests=$?
wait $classes || true
wait $checks || { echo "lint or type failed, see above" >&2; exit 1; }
exit $tests
