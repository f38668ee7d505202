#!/usr/bin/env bash
# Builds the core with POSIX calls alone, by the clang of ziglang and with musl as C library, and
# runs the programs of tests/sanitize on it. `make test` does so with the machine's own library.
set -eu

python=$(cd "$1" && pwd)/python
target=$(uname -m)-linux-musl
out=build/portable
mkdir -p $out
export ZIG_GLOBAL_CACHE_DIR=$PWD/build/zig ZIG_LOCAL_CACHE_DIR=$PWD/build/zig
flags=(-target "$target" -DGS_PORTABLE -UNDEBUG -pthread -O1 -Igridstat/core)
strict=(-std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror)
objects=()
for source in gridstat/core/*.c; do
    object=$out/$(basename "$source" .c).o
    "$python" -m ziglang cc "${flags[@]}" "${strict[@]}" -c -o "$object" "$source"
    objects+=("$object")
done
for program in tests/sanitize/*.c; do
    name=$(basename "$program" .c)
    "$python" -m ziglang cc "${flags[@]}" -std=gnu11 -static -o "$out/$name" "$program" \
        "${objects[@]}"
    echo "$out/$name"
    "$out/$name"
done
