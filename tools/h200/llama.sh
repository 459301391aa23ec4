#!/usr/bin/env bash
# llama.cpp's own kernels through its own test-backend-ops, as a peer of Lily's decode products.
# Each case multiplies as many different matrices as no cache holds with a row each ("8x": divide by
# 8), because that program runs one case over the same tensors again and again.
# usage: tools/h200/llama.sh pack LLAMA_CPP_FOLDER   here: its ggml into build/h200/llama.tar.xz
#        tools/h200/llama.sh run                     there: builds it (16 cores: about 2 minutes)
set -euo pipefail
cd "$(dirname "$0")/../.."
packed="$PWD/build/h200"

if [ "$1" = pack ]; then
  mkdir -p "$packed"
  tar -C "$2" -cJf "$packed/llama.tar.xz" --exclude='src/ggml-[behmorsvwz]*/*' --exclude='ggml-opencl*' \
    --exclude='ggml-cann*' --exclude='ggml-vulkan*' --exclude='ggml-metal*' \
    ggml tests/test-backend-ops.cpp
  ls -l "$packed/llama.tar.xz"
  exit
fi

work="${SCRATCH:-${TMPDIR:-/tmp}/lily-h200}/llama"
OUT="${OUT:-$work/out}"
mkdir -p "$OUT" "$work"
if [ ! -x "$packed/test-backend-ops" ] && [ ! -x "$work/test-backend-ops" ]; then
  tar -C "$work" -xJf "$packed/llama.tar.xz"
  touch "$work/ggml/ggml.pc.in"  # a source archive from PyPI lacks it
  cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(peer LANGUAGES C CXX)
add_subdirectory(ggml)
add_executable(test-backend-ops tests/test-backend-ops.cpp)
target_link_libraries(test-backend-ops PRIVATE ggml)
target_compile_options(test-backend-ops PRIVATE -O1)
CMAKE
  # shellcheck disable=SC2086
  cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DGGML_CUDA="${GGML_CUDA:-ON}" -DGGML_CUDA_FA=OFF -DGGML_CUDA_NO_VMM=ON -DGGML_CUDA_NCCL=OFF \
    -DCMAKE_CUDA_ARCHITECTURES=90-real -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
    -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF ${CMAKE_OPTIONS:-} >"$OUT/llama_build.log" 2>&1
  ninja -C "$work/build" test-backend-ops >>"$OUT/llama_build.log" 2>&1 || {
    tail -n 30 "$OUT/llama_build.log"
    exit 1
  }
  cp "$work/build/test-backend-ops" "$work/"
  strip "$work/test-backend-ops"
  # To be carried next time, in build/h200 and unpacked, instead of building it.
  xz -T0 -2 -c "$work/test-backend-ops" >"$OUT/test-backend-ops.xz"
fi
program="$work/test-backend-ops"
[ -x "$program" ] || program="$packed/test-backend-ops"

# One line a case: operation, type, extents, parameters, sources (type, extents, strides), name.
python3 - >"$work/cases.txt" <<'PYTHON'
import os
F32, MUL_MAT = 0, int(os.environ.get("GGML_OP_MUL_MAT", "29"))
TYPES = {"q4_K": (12, 256, 144)}  # number, weights and bytes of a block
SHAPES = [("qkv_z_b_a", 12352, 2048, 8), ("q_k_v", 9216, 2048, 8), ("out", 2048, 4096, 24),
          ("lm_head", 248320, 2048, 1)]
for kind, (number, block, size) in TYPES.items():
    for name, rows, cols, count in SHAPES:
        row = cols // block * size
        out = [MUL_MAT, F32, rows, 1, count, 1, 0, 2]
        weight = [number, cols, rows, count, 1, size, row, row * rows, row * rows * count]
        x = [F32, cols, 1, count, 1, 4, 4 * cols, 4 * cols, 4 * cols * count]
        print(*out, *weight, *x, f"{kind}_{name}_{count}x")
PYTHON
timeout "${LIMIT_S:-120}" "$program" perf --test-file "$work/cases.txt" "${@:2}" \
  2>&1 | tee "$OUT/llama.txt" | grep -aE 'us/run|rror|not supported|Device' | cut -c 1-230
