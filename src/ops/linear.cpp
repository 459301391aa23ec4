// Products with stored weights: one row takes the GEMV kernels, more take the GEMM kernels.
// Matrices that read the same x stand side by side in y; neighbours of equal storage share a
// dispatch.
#include "ops/check.h"

namespace lily::ops {
namespace {

bool share_a_kernel(const Matrix& a, const Matrix& b) {
  return a.storage == b.storage && a.group_size == b.group_size;
}

// Columns of y, after checking that the segments are matrices over the columns of x.
uint32_t check_segments(const Check& check, const std::vector<Matrix>& segments, uint32_t cols) {
  uint64_t rows = 0;
  for (size_t at = 0; at < segments.size(); ++at) {
    const std::string name = "segments[" + std::to_string(at) + "]";
    check.matrix(name.c_str(), segments[at], {"rows", segments[at].rows}, {"cols", cols});
    rows += segments[at].rows;
  }
  return check.count("the number of rows of all segments", rows);
}

// Calls record(params, first, last) for each run of segments that one dispatch can take.
template <class Record>
void for_runs(const std::vector<Matrix>& segments, LinearParams params, Record record) {
  size_t first = 0;
  while (first < segments.size()) {
    size_t last = first;
    uint32_t rows = 0;
    for (uint32_t& segment_rows : params.segment_rows) segment_rows = 0;
    while (last < segments.size() && last - first < kMaxSegments &&
           share_a_kernel(segments[first], segments[last])) {
      params.segment_rows[last - first] = static_cast<uint32_t>(segments[last].rows);
      rows += params.segment_rows[last - first];
      ++last;
    }
    params.num_segments = static_cast<uint32_t>(last - first);
    params.group_size = segments[first].group_size;
    record(params, first, last);
    params.out_offset += rows;
    first = last;
  }
}

Grid linear_grid(const Step& step, const Matrix& first, DType activation,
                 const LinearParams& params) {
  return params.tokens == 1 ? gemv_grid(step.tiles(), first, params)
                            : gemm_grid(step.tiles(), first, activation, params);
}

// Segments [first, last), and the first again up to kMaxSegments: a kernel's bindings do not move.
void bind_segments(Bindings& bindings, const std::vector<Matrix>& segments, size_t first,
                   size_t last) {
  for (size_t at = 0; at < kMaxSegments; ++at) {
    bindings.in(segments[first + at < last ? first + at : first]);
  }
}

}  // namespace

void linear(Step& step, const Tensor& y, const Tensor& x, const std::vector<Matrix>& segments) {
  const Check check("linear");
  const uint32_t tokens = check.count("tokens", x.dim(0));
  const uint32_t cols = check.count("cols", x.dim(1));
  const uint32_t rows = check_segments(check, segments, cols);
  check.activation("x", x, {{"tokens", tokens}, {"cols", cols}});
  check.f32("y", y, {{"tokens", tokens}, {"rows of all segments", rows}});

  LinearParams params{};
  params.tokens = tokens;
  params.cols = cols;
  params.out_stride = rows;
  for_runs(segments, params, [&](const LinearParams& run, size_t first, size_t last) {
    Bindings bindings;
    bindings.in(x).out(y);
    bind_segments(bindings, segments, first, last);
    const char* kernel = tokens == 1 ? "linear_gemv" : "linear_gemm";
    step.add(kernel_name(kernel, segments[first].storage) + activation_suffix(x.dtype), bindings,
             run, linear_grid(step, segments[first], x.dtype, run));
  });
}

void linear_add(Step& step, const Tensor& y, const Tensor& x, const Matrix& weight) {
  const Check check("linear_add");
  const uint32_t tokens = check.count("tokens", x.dim(0));
  const uint32_t cols = check.count("cols", x.dim(1));
  const uint32_t rows = check.count("rows", weight.rows);
  check.matrix("weight", weight, {"rows", rows}, {"cols", cols});
  check.activation("x", x, {{"tokens", tokens}, {"cols", cols}});
  check.f32("y", y, {{"tokens", tokens}, {"rows", rows}});

  LinearParams params{};
  params.tokens = tokens;
  params.cols = cols;
  params.group_size = weight.group_size;
  params.num_segments = 1;
  params.segment_rows[0] = rows;
  params.out_stride = rows;
  const char* kernel = tokens == 1 ? "linear_gemv_add" : "linear_gemm_add";
  step.add(kernel_name(kernel, weight.storage) + activation_suffix(x.dtype),
           Bindings().in(x).inout(y).in(weight), params,
           linear_grid(step, weight, x.dtype, params));
}

void linear_norm(Step& step, const Tensor& y, const Tensor& x, const Tensor& gain, float eps,
                 const std::vector<Matrix>& segments) {
  const Check check("linear_norm");
  const uint32_t cols = check.count("cols", x.dim(1));
  const uint32_t rows = check_segments(check, segments, cols);
  check.f32("x", x, {{"one token", 1}, {"cols", cols}});
  check.f32("gain", gain, {{"cols", cols}});
  check.f32("y", y, {{"one token", 1}, {"rows of all segments", rows}});
  check.eps(eps);

  LinearParams params{};
  params.tokens = 1;
  params.cols = cols;
  params.out_stride = rows;
  params.eps = eps;
  for_runs(segments, params, [&](const LinearParams& run, size_t first, size_t last) {
    Bindings bindings;
    bindings.in(x).in(gain).out(y);
    bind_segments(bindings, segments, first, last);
    step.add(kernel_name("linear_gemv_norm", segments[first].storage), bindings, run,
             gemv_grid(step.tiles(), segments[first], run));
  });
}

}  // namespace lily::ops
