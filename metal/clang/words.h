// Metal's keywords in clang's spelling.
#pragma once

#define device __global
#define threadgroup __local
#define thread __private

#if defined(__NVPTX__)
// A kernel's parameters arrive by value there, so `constant P&` must be a reference to the thread's
// own copy; at program scope the word leaves a plain constant, which the compiler folds.
#define constant const
#else
#define constant __constant
#endif

// Only ever written as [[kernel]]: the function behind a LILY_KERNEL, which is its only caller.
#define kernel clang::always_inline, clang::internal_linkage

#define METAL_FUNC inline __attribute__((always_inline))
