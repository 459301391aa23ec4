#!/usr/bin/env bash
# Builds what travels to the GPU machine into build/h200: the native module for Python 3.12 with the
# CUDA kernels inside, the PTX beside it for reading, and wheels of what the tests import.
# usage: tools/h200/pack.sh PYTHON BUILD_FOLDER   (a Python 3.12 with nanobind; clang 22 on the PATH)
set -euo pipefail
cd "$(dirname "$0")/../.."
python="$1" build="$2" packed=build/h200

"$python" -c 'import sys; assert sys.version_info[:2] == (3, 12), sys.version'
cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$(command -v "$python")" -DLILY_CUDA=ON \
  -DLILY_VERSION="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" >/dev/null
nice ninja -C "$build"

mkdir -p "$packed-ptx" "$packed/wheels"
rm -f "$packed-ptx"/*
# The newest: a build folder that has seen another CMake may hold one of another name.
# shellcheck disable=SC2012
module="$(ls -t "$build"/_native*.so | head -n 1)"
strip --strip-unneeded -o "$packed/stripped" "$module"
xz -9 -c "$packed/stripped" >"$packed/native.so.xz"
rm "$packed/stripped"
basename "$module" >"$packed/name"
cp "$build"/ptx/*.ptx "$build"/ptx/*.ptxas "$packed-ptx/"
# The image has most of these; where it has not, setup.sh installs them.
if ! ls "$packed"/wheels/pytest-*.whl >/dev/null 2>&1; then
  "$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 \
    -d "$packed/wheels" pytest pytest-timeout pytest-xdist execnet hypothesis sortedcontainers \
    pluggy iniconfig packaging pygments
fi
du -sh "$packed"
