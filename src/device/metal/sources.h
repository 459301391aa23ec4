// The kernels' source, one text for each file of metal/, its headers inside; written by
// tools/metal_sources.py when the library is built. Knows no compiler.
#pragma once

#include <span>
#include <string_view>

namespace lily::metal {

struct KernelSource {
  // "linear_gemm": its kernels are named by its first word, the family. "tensor_ops/prefill": its
  // kernels are of all families, and their names end in "_tensor".
  std::string_view name;
  std::string_view text;
};

std::span<const KernelSource> embedded_sources();

}  // namespace lily::metal
