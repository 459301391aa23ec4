#!/usr/bin/env bash
# llama.cpp as the peer of `python -m bench lengths`: bench/llama_resident.cpp on its library, with CUDA.
# usage: tools/h200/peer.sh pack LLAMA_CPP_FOLDER   here: its sources into build/h200/peer.tar.xz (2 MB)
#        tools/h200/peer.sh build                   there, 16 cores: 4 minutes; leaves $OUT/peer.xz.*
#        tools/h200/peer.sh unpack                  there: the program from build/h200/peer.xz.* instead
# Both of the latter leave $SCRATCH/peer/llama_resident and $SCRATCH/peer/gguf-py.
set -euo pipefail
cd "$(dirname "$0")/../.."
packed="$PWD/build/h200"
work="${SCRATCH:-${TMPDIR:-/tmp}/lily-h200}/peer"

case "$1" in
pack)
  mkdir -p "$packed"
  tar -C "$2" -cJf "$packed/peer.tar.xz" --exclude='ggml/src/ggml-[behmorsvwz]*/*' \
    --exclude='ggml-opencl*' --exclude='ggml-cann*' --exclude='ggml-vulkan*' --exclude='ggml-metal*' \
    ggml src include gguf-py
  ls -l "$packed/peer.tar.xz"
  ;;
build)
  mkdir -p "$work"
  tar -C "$work" -xJf "$packed/peer.tar.xz"
  touch "$work/ggml/ggml.pc.in"  # a source archive from PyPI lacks it
  cp bench/llama_resident.cpp "$work/"
  cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(peer LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 20)
set(LLAMA_VERSION_BASE 0.0.0)  # its own top level, left out, would set these
set(LLAMA_VERSION_MAJOR 0)
set(GGML_CUDA_GRAPHS_DEFAULT ON)
function(llama_add_compile_flags)
endfunction()
add_subdirectory(ggml)
add_subdirectory(src)
add_executable(llama_resident llama_resident.cpp)
target_link_libraries(llama_resident PRIVATE llama)
CMAKE
  # shellcheck disable=SC2086
  cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DGGML_CUDA="${GGML_CUDA:-ON}" -DGGML_CUDA_NO_VMM=ON -DGGML_CUDA_NCCL=OFF \
    -DCMAKE_CUDA_ARCHITECTURES=90-real -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
    -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF ${CMAKE_OPTIONS:-} >"$OUT/peer_build.log" 2>&1
  nice ninja -C "$work/build" llama_resident >>"$OUT/peer_build.log" 2>&1 || {
    tail -n 30 "$OUT/peer_build.log"
    exit 1
  }
  strip -o "$work/llama_resident" "$work/build/llama_resident"
  # To be carried next time instead of being built.
  xz -T0 -1 -c "$work/llama_resident" | split -b 15M - "$OUT/peer.xz."
  ls -l "$work/llama_resident" "$OUT"/peer.xz.*
  ;;
unpack)
  mkdir -p "$work"
  cat "$packed"/peer.xz.* | xz -dc >"$work/llama_resident"
  chmod +x "$work/llama_resident"
  tar -C "$work" -xJf "$packed/peer.tar.xz" gguf-py
  ;;
esac
