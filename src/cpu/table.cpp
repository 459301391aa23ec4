// Joins the families' kernels into the table of one instruction set.
#include "cpu/register.h"

#define LILY_TEXT(x) #x
#define LILY_NAME(x) LILY_TEXT(x)

namespace lily::cpu::LILY_ISA {
namespace {

constexpr size_t kMaxKernels = 128;

struct Joined {
  NamedKernel kernels[kMaxKernels];
  size_t count = 0;

  Joined() {
    for (KernelList list :
         {embed_kernels(), norm_kernels(), rope_kernels(), linear_kernels(), attention_kernels(),
          delta_kernels(), moe_kernels(), sample_kernels(), encoder_kernels()}) {
      for (const NamedKernel& kernel : list) kernels[count++] = kernel;
    }
  }
};

}  // namespace

const KernelTable& table() {
  static const Joined joined;
  static const KernelTable made{LILY_NAME(LILY_ISA), {joined.kernels, joined.count}};
  return made;
}

}  // namespace lily::cpu::LILY_ISA
