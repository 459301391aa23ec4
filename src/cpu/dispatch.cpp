// Chooses the table of kernels for the processor that runs this. Compiled for the baseline only.
#include <array>

#include "cpu/kernels.h"

namespace lily::cpu {

#define LILY_DECLARE(isa)     \
  namespace isa {             \
  const KernelTable& table(); \
  }
#ifdef LILY_HAS_AVX512
LILY_DECLARE(avx512)
#endif
#ifdef LILY_HAS_AVX2
LILY_DECLARE(avx2)
#endif
#ifdef LILY_HAS_NEON
LILY_DECLARE(neon)
#endif
#ifdef LILY_HAS_PORTABLE
LILY_DECLARE(portable)
#endif

namespace {

struct Tables {
  std::array<const KernelTable*, 4> list{};
  size_t count = 0;

  Tables() {
#ifdef LILY_HAS_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      list[count++] = &avx512::table();
    }
#endif
#ifdef LILY_HAS_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      list[count++] = &avx2::table();
    }
#endif
#ifdef LILY_HAS_NEON
    list[count++] = &neon::table();
#endif
#ifdef LILY_HAS_PORTABLE
    list[count++] = &portable::table();
#endif
  }
};

const Tables& tables() {
  static const Tables found;
  return found;
}

}  // namespace

const KernelTable& kernels_for_this_processor() { return *tables().list[0]; }

std::span<const KernelTable* const> kernels_that_run_here() {
  return {tables().list.data(), tables().count};
}

}  // namespace lily::cpu
