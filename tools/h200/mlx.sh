#!/usr/bin/env bash
# mlx-lm as a peer of `python -m bench lengths`: mlx with CUDA from its wheels, cut down to what an H200
# runs (139 MB of library to 22 MB of archive), because the whole is more than may be carried.
# usage: tools/h200/mlx.sh pack PYTHON   here: build/h200/mlx.tar.xz (PYTHON: any with pip; 2 minutes)
#        tools/h200/mlx.sh unpack        there: prints the path of a Python that has mlx-lm
set -euo pipefail
cd "$(dirname "$0")/../.."
packed="$PWD/build/h200"
versions=(mlx==0.32.4 mlx-cuda-13==0.32.4 mlx-lm==0.32.2)

case "$1" in
pack)
  work="$PWD/build/h200-mlx"
  rm -rf "$work"
  mkdir -p "$work/site" "$packed"
  # What mlx-lm needs besides, and NVIDIA's libraries, the machine has with PyTorch.
  platforms=(--platform manylinux_2_35_x86_64 --platform manylinux_2_28_x86_64)
  "$2" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 \
    --implementation cp "${platforms[@]}" -d "$work" "${versions[@]}"
  for wheel in "$work"/*.whl; do
    "$2" -m zipfile -e "$wheel" "$work/site"
  done
  "$2" tools/h200/slim_fatbin.py "$work/site/mlx/lib/libmlx.so" 90
  tar -C "$work" -cf - site | nice xz -T2 -6 >"$packed/mlx.tar.xz"
  rm -rf "$work"
  ls -l "$packed/mlx.tar.xz"
  ;;
unpack)
  scratch="${SCRATCH:-${TMPDIR:-/tmp}/lily-h200}/mlx"
  mkdir -p "$scratch"
  [ -d "$scratch/site/mlx" ] || tar -C "$scratch" -xJf "$packed/mlx.tar.xz"
  libraries="$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia"
  found="$(printf '%s:' "$libraries"/*/lib)"
  # Not for every process: llama.cpp takes the toolkit's libraries.
  cat >"$scratch/python" <<SH
#!/bin/sh
export PYTHONPATH="\$PYTHONPATH:$scratch/site" LD_LIBRARY_PATH="$found\$LD_LIBRARY_PATH"
exec python3 "\$@"
SH
  chmod +x "$scratch/python"
  echo "$scratch/python"
  ;;
esac
