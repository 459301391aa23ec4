#!/usr/bin/env bash
# llama.cpp as the peer of `python -m bench lengths`: bench/llama_resident.cpp on its library, with CUDA.
# usage: tools/h200/peer.sh pack LLAMA_CPP_FOLDER   here: its sources into build/h200/peer.tar.xz (2 MB)
#        tools/h200/peer.sh build                   there, 16 cores: 4 minutes; leaves $OUT/peer.xz.*
#        tools/h200/peer.sh unpack                  there: build/h200/llama_resident from peer.xz.*
set -euo pipefail
cd "$(dirname "$0")/../.."
packed="$PWD/build/h200"
mkdir -p "$packed"

case "$1" in
pack)
  tar -C "$2" -cJf "$packed/peer.tar.xz" --exclude='ggml/src/ggml-[behmorsvwz]*/*' \
    --exclude='ggml-opencl*' --exclude='ggml-cann*' --exclude='ggml-vulkan*' --exclude='ggml-metal*' \
    ggml src include gguf-py
  ls -l "$packed/peer.tar.xz"
  ;;
build)
  work="${SCRATCH:-$PWD/build/h200-scratch}/peer"
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
function(llama_add_compile_flags)
endfunction()
add_subdirectory(ggml)
add_subdirectory(src)
add_executable(llama_resident llama_resident.cpp)
target_link_libraries(llama_resident PRIVATE llama)
CMAKE
  # shellcheck disable=SC2086
  cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DGGML_CUDA="${GGML_CUDA:-ON}" -DGGML_CUDA_GRAPHS=ON -DGGML_CUDA_NO_VMM=ON -DGGML_CUDA_NCCL=OFF \
    -DCMAKE_CUDA_ARCHITECTURES=90-real -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
    -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF ${CMAKE_OPTIONS:-} >"$OUT/peer_build.log" 2>&1
  nice ninja -C "$work/build" llama_resident >>"$OUT/peer_build.log" 2>&1 || {
    tail -n 30 "$OUT/peer_build.log"
    exit 1
  }
  strip -o "$packed/llama_resident" "$work/build/llama_resident"
  # To be carried next time instead of being built.
  xz -T0 -1 -c "$packed/llama_resident" | split -b 15M - "$OUT/peer.xz."
  ls -l "$packed/llama_resident" "$OUT"/peer.xz.*
  ;;
unpack)
  cat "$packed"/peer.xz.* | xz -dc >"$packed/llama_resident"
  chmod +x "$packed/llama_resident"
  tar -C "$packed" -xJf "$packed/peer.tar.xz" gguf-py
  ;;
esac
