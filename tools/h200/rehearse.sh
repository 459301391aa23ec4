#!/usr/bin/env bash
# Runs one_of_each.py on the packed module here, without a GPU, on the stand-in driver of the native
# tests: shows kernels that the PTX lacks and groups of another size than it wants. Computes nothing.
# usage: tools/h200/rehearse.sh PYTHON   (the one that packed)
set -euo pipefail
cd "$(dirname "$0")/../.."
packed="$PWD/build/h200" stage="$PWD/build/h200-rehearsal"
mkdir -p "$stage/lily"
"${CXX:-c++}" -std=c++20 -O1 -shared -fPIC -I src -o "$stage/libcuda.so.1" tests/native/fake_cuda.cpp
for part in python/lily/*; do
  case "$part" in *.so) ;; *) ln -sfn "$PWD/$part" "$stage/lily/$(basename "$part")" ;; esac
done
rm -f "$stage"/lily/_native*.so
xz -dc "$packed/native.so.xz" >"$stage/lily/$(cat "$packed/name")"
LD_LIBRARY_PATH="$stage" PYTHONPATH="$stage:$PWD" "$1" tools/h200/one_of_each.py "${@:2}"
