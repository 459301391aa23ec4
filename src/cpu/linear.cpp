// linear: y = x W^T for one row (GEMV) and for many (GEMM), over one or several matrices at once.
#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {
namespace {

constexpr uint64_t kGemvGrain = 32;  // rows a thread takes at a time: about 1 us of memory traffic

// Walks [begin, end) of the concatenated rows of all segments: body(matrix, first row, count,
// column of y).
template <class Body>
void for_segments(const Args& args, size_t first_binding, uint64_t begin, uint64_t end,
                  Body&& body) {
  const auto& p = args.as<LinearParams>();
  uint64_t offset = 0;
  for (uint32_t s = 0; s < p.num_segments; ++s) {
    const uint64_t rows = p.segment_rows[s];
    const uint64_t from = begin > offset ? begin : offset;
    const uint64_t to = end < offset + rows ? end : offset + rows;
    if (from < to) {
      body(stored_at(args, first_binding + 3 * s, p.cols, p.group_size), from - offset, to - from,
           from);
    }
    offset += rows;
  }
}

uint64_t total_rows(const LinearParams& p) {
  uint64_t rows = 0;
  for (uint32_t s = 0; s < p.num_segments; ++s) rows += p.segment_rows[s];
  return rows;
}

enum class Into { store, add };

// x is already what the matrix multiplies.
template <class S, Into kInto>
void gemv(const Args& args, const float* x, float* y, size_t first_binding) {
  const auto& p = args.as<LinearParams>();
  float* scratch = reinterpret_cast<float*>(args.scratch);
  const PreparedRow row = prepare_row<S>(x, p.cols, p.group_size, scratch);
  float* sums = scratch + prepared_floats(p.cols);
  args.work.for_ranges(total_rows(p), kGemvGrain, [&](uint64_t begin, uint64_t end) {
    for_segments(args, first_binding, begin, end,
                 [&](const Stored& w, uint64_t first, uint64_t count, uint64_t column) {
                   float* to = y + p.out_offset + column;
                   if constexpr (kInto == Into::store) {
                     dot_rows<S>(w, first, count, row, to);
                   } else {
                     dot_rows<S>(w, first, count, row, sums);
                     for (uint64_t i = 0; i < count; ++i) to[i] += sums[i];
                   }
                 });
  });
}

template <class S>
void linear_gemv(const Args& args) {
  gemv<S, Into::store>(args, args.at<const float>(0), args.at<float>(1), 2);
}

template <class S>
void linear_gemv_add(const Args& args) {
  gemv<S, Into::add>(args, args.at<const float>(0), args.at<float>(1), 2);
}

// Every thread normalises the row for itself: cheaper than a dispatch and a barrier.
template <class S>
void linear_gemv_norm(const Args& args) {
  const auto& p = args.as<LinearParams>();
  const int cols = static_cast<int>(p.cols);
  const float* x = args.at<const float>(0);
  const float* gain = args.at<const float>(1);
  float* normed = reinterpret_cast<float*>(args.scratch + kScratchBytes) - (cols + kLanes);
  rms_norm(x, gain, cols, p.eps, normed);
  gemv<S, Into::store>(args, normed, args.at<float>(2), 3);
}

template <class S, Into kInto>
void gemm(const Args& args) {
  const auto& p = args.as<LinearParams>();
  const float* x = args.at<const float>(0);
  float* y = args.at<float>(1);
  float* scratch = reinterpret_cast<float*>(args.scratch);
  args.work.for_ranges(total_rows(p), kPanelRows, [&](uint64_t begin, uint64_t end) {
    for_segments(args, 2, begin, end,
                 [&](const Stored& w, uint64_t first, uint64_t count, uint64_t column) {
                   multiply_panel<S>(
                       w, first, static_cast<int>(count), static_cast<int>(p.tokens),
                       [&](int m) { return x + static_cast<uint64_t>(m) * p.cols; },
                       [&](int m) {
                         return y + static_cast<uint64_t>(m) * p.out_stride + p.out_offset + column;
                       },
                       kInto == Into::add, scratch);
                 });
  });
}

template <class S>
void linear_gemm(const Args& args) {
  gemm<S, Into::store>(args);
}
template <class S>
void linear_gemm_add(const Args& args) {
  gemm<S, Into::add>(args);
}

#define LILY_LINEAR(name, S)                                                                    \
  {"linear_gemv_" name, linear_gemv<S>}, {"linear_gemv_add_" name, linear_gemv_add<S>},         \
      {"linear_gemv_norm_" name, linear_gemv_norm<S>}, {"linear_gemm_" name, linear_gemm<S>}, { \
    "linear_gemm_add_" name, linear_gemm_add<S>                                                 \
  }

constexpr NamedKernel kKernels[] = {LILY_LINEAR("f32", StoredF32), LILY_LINEAR("bf16", StoredBf16),
                                    LILY_LINEAR("q8", StoredQ8), LILY_LINEAR("q4", StoredQ4)};

}  // namespace

KernelList linear_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA
