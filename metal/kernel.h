// What every kernel file starts from: the words in which a kernel is declared, so that the same
// source is MSL for Apple's compiler and, through metal/clang, fibers on a CPU and PTX for NVIDIA.
// Knows no kernel.
//
// House rules (tests/metal/lint.py holds them): pointers name their address space; no double, no
// 1.0 without f, no lambdas, no recursion, no function with state; arrays in threadgroup memory and
// kernels are declared by the two macros below; loops over register arrays are unrolled by
// LILY_UNROLL; float to bfloat is always written out.
#pragma once

#include <metal_stdlib>

#include "params.h"

using namespace metal;

// The last parameters of every kernel: which threadgroup, and which thread of it. Grids are in
// threadgroups, and threadgroups are one-dimensional and whole simdgroups of 32.
#define LILY_PLACE                                                                                 \
  uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]], \
      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]

#define LILY_UNROLL _Pragma("clang loop unroll(full)")

#ifndef LILY_KERNEL
// LILY_KERNEL(name, threads, function<arguments>): the instantiation that the host finds by name,
// launched with exactly that many threads in a group.
#define LILY_KERNEL(name, threads, ...) \
  template [[host_name(#name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
// LILY_EARLY_KERNEL: a kernel that reads weights, and what earlier steps wrote, before it reads
// what earlier kernels of the step wrote, and says LILY_WAIT_FOR_STEP() between the two, on every
// path. It may begin while the kernel before it ends, where a GPU can do that
// (metal/clang/nvidia.h). So many `groups` should fit on one of its cores at once, which bounds
// their registers.
#define LILY_EARLY_KERNEL(name, threads, groups, ...) LILY_KERNEL(name, threads, __VA_ARGS__)
// LILY_BRIDGE_KERNEL: an early kernel; the next one begins only when all groups of this one have
// waited, so that it may read what kernels before this one wrote before it waits itself.
#define LILY_BRIDGE_KERNEL(name, threads, groups, ...) LILY_KERNEL(name, threads, __VA_ARGS__)
#define LILY_WAIT_FOR_STEP()
// LILY_CROWDED_KERNEL: not early, but with a bound of its own on its registers: so many `groups`
// should fit on a core.
#define LILY_CROWDED_KERNEL(name, threads, groups, ...) LILY_KERNEL(name, threads, __VA_ARGS__)
// LILY_THREADGROUP(type, name, count): an array that the threads of a group share.
#define LILY_THREADGROUP(type, name, count) threadgroup type name[count]
#endif

namespace lily {

enum : uint { kLanes = 32 };  // threads of a simdgroup
typedef uint4 Sixteen;        // bytes: what threadgroup memory for vector loads is made of

}  // namespace lily
