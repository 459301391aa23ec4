// How a kernel file lists its kernels. Each family gives one array; table.cpp joins them.
#pragma once

#include <array>

#include "cpu/kernels.h"
#include "cpu/matmul.h"
#include "params.h"

namespace lily::cpu::LILY_ISA {

using KernelList = std::span<const NamedKernel>;

KernelList embed_kernels();
KernelList norm_kernels();
KernelList rope_kernels();
KernelList linear_kernels();
KernelList attention_kernels();
KernelList delta_kernels();
KernelList moe_kernels();
KernelList sample_kernels();
KernelList encoder_kernels();

// The matrix whose weight, scales and biases are bindings `index`, `index + 1`, `index + 2`.
inline Stored stored_at(const Args& args, size_t index, uint32_t cols, uint32_t group) {
  return {args.at<const uint8_t>(index), args.at<const uint16_t>(index + 1),
          args.at<const uint16_t>(index + 2), static_cast<int>(cols), static_cast<int>(group)};
}

}  // namespace lily::cpu::LILY_ISA
