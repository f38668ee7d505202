#!/usr/bin/env bash
# Builds a wheel and proves that it works where nothing can be compiled: it goes into an empty
# environment whose PATH holds no compiler, and its core is imported from there.
set -eu

bin=$(cd "$1" && pwd)
rm -rf build/wheel build/lib build/lib.* build/bdist.* dist
mkdir -p build/wheel dist

"$bin/python" -m pip wheel -qq --disable-pip-version-check --no-build-isolation --no-deps -w dist .
wheel=$(echo "$PWD"/dist/gridstat-*.whl)

"$bin/python" -m venv build/wheel/empty
empty=$PWD/build/wheel/empty/bin
cd build/wheel
export PATH=$empty CC=no-compiler-here
"$empty/python" -m pip install -qq --disable-pip-version-check --only-binary :all: "$wheel"
"$empty/python" - <<'PROOF'
import shutil

import gridstat.core._core as core
import gridstat.endpoint

assert not any(map(shutil.which, ("cc", "gcc", "clang"))), "a compiler is within reach"
assert "/build/wheel/empty/" in core.__file__, core.__file__
PROOF
"$empty/gridstat" --help > /dev/null
echo "$wheel installs and runs without a compiler"
