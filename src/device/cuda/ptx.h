// The kernels as text for the driver's compiler, one module a file of metal/: built by clang with
// the package (CMake option LILY_CUDA) and part of this library, so that users need no toolkit.
#pragma once

#include <span>

namespace lily::cuda {

struct PtxModule {
  const char* name;  // of the file in metal/
  const char* text;  // ends with a zero byte
};

// Empty where this build has no CUDA kernels.
std::span<const PtxModule> embedded_ptx();

}  // namespace lily::cuda
