// See tensor_check.h. Steps are recorded by the operations themselves, so that what is checked is
// what will run: names, grids and all.
#include "ops/tensor_check.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "ops/ops.h"

namespace lily::ops {
namespace {

// How far results may be apart: of the largest, and of all in the mean square.
//
// Both kernels multiply the same bf16 factors, whose products fp32 holds exactly; only the order of
// up to 192 additions differs, and with it about 2^-24 * 4 * sqrt(192), 3e-6, of the largest. One
// factor in the wrong place changes a sum by a hundredth. Between the two:
struct Rule {
  double largest, mean_square;
};
constexpr Rule kSums{0x1p-14, 0x1p-30};
// Results that are stored as bf16 may be rounded to the neighbour, 2^-7 of their value away; and
// attention rounds weights under a running maximum, which other blocks find elsewhere.
constexpr Rule kRounded{0x1p-6, 0x1p-16};

constexpr uint32_t kGroup = 64;  // of quantised weights
// Rows of five experts, one of which has none: few, and more than a small tile's on average.
constexpr uint32_t kExperts = 5, kSlots = 2;
using Offsets = std::array<uint32_t, kExperts + 1>;
constexpr Offsets kFew{0, 39, 39, 70, 71, 84}, kMany{0, 97, 97, 161, 162, 212};

// Tensors with contents drawn from a seed: the same in every process.
class Inputs {
 public:
  explicit Inputs(Device& device) : device_(device) {}

  template <class T>
  View put(const std::vector<T>& values) {
    View view(device_.allocate(values.size() * sizeof(T)));
    device_.write(view, values.data(), view.size_bytes);
    return view;
  }
  View f32(uint64_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = draw(-1, 1);
    return put(values);
  }
  View bf16(uint64_t count, float least = -1, float most = 1) {
    std::vector<uint16_t> values(count);
    for (uint16_t& value : values) {
      value = static_cast<uint16_t>(std::bit_cast<uint32_t>(draw(least, most)) >> 16);
    }
    return put(values);
  }
  Matrix matrix(Storage storage, uint64_t rows, uint64_t cols, uint64_t experts = 1) {
    Matrix made{storage, experts, rows, cols, rows, 0, {}, {}, {}};
    if (storage == Storage::bf16) {
      made.weight = bf16(experts * rows * cols);
      return made;
    }
    std::vector<uint32_t> codes(experts * rows * storage_row_bytes(storage, cols) / 4);
    for (uint32_t& code : codes) code = static_cast<uint32_t>(random_());
    made.weight = put(codes);
    made.group_size = kGroup;
    const float scale = storage == Storage::q4 ? 0.1f : 0.01f;
    made.scales = bf16(experts * rows * cols / kGroup, scale, 2 * scale);
    made.biases = bf16(experts * rows * cols / kGroup, -1.5f, -0.5f);
    return made;
  }
  // Slots in an order that no sort would give, for every row knows its slot.
  View order(uint32_t rows) {
    std::vector<uint32_t> slots(rows);
    for (uint32_t at = 0; at < rows; ++at) slots[at] = at * 61 % rows;
    return put(slots);
  }

 private:
  float draw(float least, float most) {
    return least + (most - least) * static_cast<float>(random_() >> 8) * 0x1p-24f;
  }

  Device& device_;
  std::mt19937 random_;
};

using Record = std::function<void(Step&, const Tensor&)>;

std::vector<float> contents(Device& device, const Tensor& tensor) {
  std::vector<float> values(tensor.elements());
  if (tensor.dtype == DType::f32) {
    device.read(tensor.view, values.data(), tensor.view.size_bytes);
    return values;
  }
  std::vector<uint16_t> halves(values.size());
  device.read(tensor.view, halves.data(), tensor.view.size_bytes);
  for (size_t at = 0; at < values.size(); ++at) {
    values[at] = std::bit_cast<float>(uint32_t{halves[at]} << 16);
  }
  return values;
}

std::string judge(const std::vector<float>& got, const std::vector<float>& want, Rule rule) {
  double largest = 0, power = 0, worst = 0, error_power = 0;
  for (size_t at = 0; at < want.size(); ++at) {
    if (!std::isfinite(got[at]) || !std::isfinite(want[at])) {
      return "gives " + std::to_string(got[at]) + " at " + std::to_string(at) + ", expected " +
             std::to_string(want[at]);
    }
    const double error = std::abs(double{got[at]} - double{want[at]});
    largest = std::max(largest, std::abs(double{want[at]}));
    worst = std::max(worst, error);
    power += double{want[at]} * double{want[at]};
    error_power += error * error;
  }
  if (worst <= rule.largest * largest && error_power <= rule.mean_square * power) return {};
  char text[120];
  std::snprintf(text, sizeof text, "is off by %.1e of the largest, NMSE %.1e; allowed %.1e, %.1e",
                worst / largest, error_power / power, rule.largest, rule.mean_square);
  return text;
}

class Checker {
 public:
  explicit Checker(Device& device) : device_(device), inputs_(device) {}

  std::string run() {
    for (const Storage storage : {Storage::bf16, Storage::q8, Storage::q4}) {
      for (const uint32_t tokens : {21, 131}) dense(storage, tokens);
      for (const Offsets& offsets : {kFew, kMany}) grouped(storage, offsets);
    }
    attention();
    return found_;
  }

 private:
  // `before`: what the results are added to; empty: NaN, so that what is not written shows.
  void compare(Tensor y, const std::vector<float>& before, Rule rule, const Record& record) {
    if (!found_.empty()) return;
    const size_t bytes = y.elements() * dtype_bytes(y.dtype);
    const std::vector<std::byte> poison(bytes, std::byte{0xFF});
    const void* first = before.empty() ? static_cast<const void*>(poison.data()) : before.data();
    std::vector<float> results[2];
    std::string names[2];
    for (const bool is_tensor : {false, true}) {
      Step step(is_tensor ? Tiles::apple_tensor : Tiles::apple);
      y.view = View(device_.allocate(bytes));
      device_.write(y.view, first, bytes);
      record(step, y);
      const Dispatch& dispatch = step.dispatches().front();
      names[is_tensor] = dispatch.kernel + dispatch.grid.variant;
      device_.submit(step);
      results[is_tensor] = contents(device_, y);
    }
    // Where nothing else is chosen, nothing was checked.
    const std::string wrong =
        names[1] == names[0] ? "has no kernel of tensor ops" : judge(results[1], results[0], rule);
    if (!wrong.empty()) found_ = names[1] + " " + wrong;
  }

  void dense(Storage storage, uint32_t tokens) {
    const Tensor x{inputs_.bf16(tokens * 192), DType::bf16, {tokens, 192}};
    const std::vector<Matrix> segments{inputs_.matrix(storage, 70, 192),
                                       inputs_.matrix(storage, 33, 192)};
    compare({{}, DType::f32, {tokens, 103}}, {}, kSums,
            [&](Step& step, const Tensor& y) { linear(step, y, x, segments); });

    const Matrix weight = inputs_.matrix(storage, 66, 192);
    compare({{}, DType::f32, {tokens, 66}}, std::vector<float>(tokens * 66, 0.5f), kSums,
            [&](Step& step, const Tensor& y) { linear_add(step, y, x, weight); });
  }

  void grouped(Storage storage, const Offsets& bounds) {
    const uint32_t rows = bounds.back();
    const Tensor order{inputs_.order(rows), DType::u32, {rows}};
    const Tensor offsets{
        inputs_.put(std::vector(bounds.begin(), bounds.end())), DType::u32, {kExperts + 1}};
    const Tensor x{inputs_.bf16(rows / kSlots * 128), DType::bf16, {rows / kSlots, 128}};
    const Matrix gate = inputs_.matrix(storage, 40, 128, kExperts);
    const Matrix up = inputs_.matrix(storage, 40, 128, kExperts);
    compare({{}, DType::bf16, {rows, 40}}, {}, kRounded, [&](Step& step, const Tensor& act) {
      moe_grouped_gate_up(step, act, x, order, offsets, gate, up, kSlots);
    });

    const Tensor act{inputs_.bf16(rows * 128), DType::bf16, {rows, 128}};
    const Matrix down = inputs_.matrix(storage, 70, 128, kExperts);
    compare({{}, DType::f32, {rows, 70}}, {}, kSums, [&](Step& step, const Tensor& y) {
      moe_grouped_down(step, y, act, order, offsets, down);
    });
  }

  // Three heads share keys, so that tiles end within a token.
  void attention() {
    constexpr uint32_t kTokens = 45, kPosition = 37, kCapacity = 90, kHeads = 6, kKvHeads = 2;
    constexpr uint32_t kDim = 256, kColumns = 2 * kDim * (kHeads + kKvHeads);
    const auto floats = [&](std::vector<uint64_t> shape) {
      Tensor made{{}, DType::f32, std::move(shape)};
      made.view = inputs_.f32(made.elements());
      return made;
    };
    const auto cache = [&] {
      return Tensor{
          inputs_.bf16(kKvHeads * kCapacity * kDim), DType::bf16, {kKvHeads, kCapacity, kDim}};
    };
    const AttentionTensors layer{.proj = floats({kTokens, kColumns}),
                                 .q_gain = floats({kDim}),
                                 .k_gain = floats({kDim}),
                                 .inv_freq = floats({32}),
                                 .k_cache = cache(),
                                 .v_cache = cache(),
                                 .q_heads = kHeads,
                                 .kv_heads = kKvHeads,
                                 .head_dim = kDim,
                                 .rotary_dims = 64,
                                 .eps = 1e-6f};
    const Tensor q{
        inputs_.bf16(kTokens * kHeads * kDim, -4, 4), DType::bf16, {kTokens, kHeads, kDim}};
    compare({{}, DType::bf16, {kTokens, kHeads * kDim}}, {}, kRounded,
            [&](Step& step, const Tensor& y) { attention_prefill(step, y, q, layer, kPosition); });
  }

  Device& device_;
  Inputs inputs_;
  std::string found_;
};

}  // namespace

std::string check_tensor_kernels(Device& device) { return Checker(device).run(); }

}  // namespace lily::ops
