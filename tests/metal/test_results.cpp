// What kernels compute through the shim on fibers, against plain C++: simdgroup operations,
// simdgroup matrices, barriers, atomics and mathematical functions, under many orders.
#include <algorithm>
#include <cmath>
#include <set>

#include "check.h"
#include "probes.h"

namespace lily {
namespace {

using test::numbers;
using test::open_fibers;
using test::run_probe;
using test::Values;

constexpr float kSum = 1e-5f;  // relative to the terms: rounding of 32 additions in another order

void check_close(const char* what, size_t at, float got, double expected, double tolerance) {
  if (std::abs(double{got} - expected) <= tolerance) return;
  test::fail(what, static_cast<int>(at),
             "got " + std::to_string(got) + ", expected " + std::to_string(expected));
}

float rounded_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The results of probe_simd for one lane, from the values of its simdgroup.
std::vector<double> expected_simd(const float* x, uint32_t lane, uint32_t first_thread) {
  double sum = 0, product = 1, inclusive = 0, codes = 0, codes_before = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t code = (first_thread + i) * 7 % 32;
    sum += x[i], product *= x[i], codes += code;
    if (i <= lane) inclusive += x[i];
    if (i < lane) codes_before += code;
  }
  uint32_t ballot = 0;
  for (uint32_t i = 0; i < 32; i += 3) ballot |= 1u << i;
  return {sum,
          *std::max_element(x, x + 32),
          *std::min_element(x, x + 32),
          product,
          inclusive,
          inclusive - x[lane],
          x[31 - lane],
          x[lane ^ 5],
          x[lane < 3 ? lane : lane - 3],
          x[lane + 3 < 32 ? lane + 3 : lane],
          x[9],
          x[0],
          codes,
          15.0,
          codes_before,
          static_cast<double>(ballot % 65536u),
          1,
          0,
          1,
          0,
          496,
          rounded_to_bf16(x[lane ^ 1]),
          sum,
          4};
}

TEST(fibers_simd_operations) {
  const auto device = open_fibers();
  const Values<float> x(*device, numbers(kProbeThreads, 1));
  const Values<float> y(*device, std::vector<float>(kSimdResults * kProbeThreads));
  run_probe(*device, "probe_simd", kProbeThreads, {in(x.view), out(y.view)});
  const std::vector<float> given = x.now(), got = y.now();
  for (uint32_t thread = 0; thread < kProbeThreads; ++thread) {
    const uint32_t first = thread / 32 * 32;
    const std::vector<double> expected = expected_simd(&given[first], thread % 32, first);
    for (uint32_t i = 0; i < kSimdResults; ++i) {
      check_close("probe_simd, result", i, got[i * kProbeThreads + thread], expected[i], 32 * kSum);
    }
  }
}

template <class Stored>
void check_matrix(const char* kernel, Stored (*store)(float), float (*load)(Stored)) {
  const auto device = open_fibers();
  const std::vector<float> af = numbers(64, 2), bf = numbers(64, 3), c = numbers(64, 4);
  std::vector<Stored> a, b;
  for (float value : af) a.push_back(store(value));
  for (float value : bf) b.push_back(store(value));
  for (const uint32_t mode : {0u, 1u}) {
    const Values<Stored> da(*device, a), db(*device, b);
    const Values<float> dc(*device, c), dd(*device, std::vector<float>(128));
    run_probe(*device, kernel, 32, {in(da.view), in(db.view), in(dc.view), out(dd.view)},
              {mode, 0});
    const std::vector<float> d = dd.now();
    for (uint32_t row = 0; row < 8; ++row) {
      for (uint32_t column = 0; column < 8; ++column) {
        double product = 0;
        for (uint32_t k = 0; k < 8; ++k) {
          product += double{load(a[row * 8 + k])} *
                     load(mode == 0 ? b[column * 8 + k] : b[k * 8 + column]);
        }
        check_close(kernel, row, d[row * 16 + column], product, 8 * kSum);
        check_close(kernel, row, d[row * 16 + 8 + column], product + c[row * 8 + column], 8 * kSum);
      }
    }
  }
}

float same(float value) { return value; }
uint16_t to_bf16(float value) {
  value = rounded_to_bf16(value);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}
float from_bf16(uint16_t stored) {
  const uint32_t bits = uint32_t{stored} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
// Halves of few digits, so that a conversion by hand stays short: sixteenths in [-1, 1).
uint16_t to_half(float value) {
  const float sixteenths = std::floor(value * 16);
  if (sixteenths == 0) return 0;
  int exponent;
  const float mantissa = std::frexp(std::abs(sixteenths), &exponent);
  const auto sign = static_cast<uint32_t>(sixteenths < 0) << 15;
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent - 1 - 4 + 15) << 10 |
                               static_cast<uint32_t>((mantissa * 2 - 1) * 1024));
}
float from_half(uint16_t stored) {
  if (stored == 0) return 0;
  const int exponent = (stored >> 10 & 31) - 15;
  const float size = std::ldexp(1.0f + static_cast<float>(stored & 1023) / 1024.0f, exponent);
  return stored & 0x8000 ? -size : size;
}

TEST(fibers_simdgroup_matrices) {
  check_matrix<float>("probe_matrix_f32", same, same);
  check_matrix<uint16_t>("probe_matrix_bf16", to_bf16, from_bf16);
  check_matrix<uint16_t>("probe_matrix_f16", to_half, from_half);
}

// A kernel that takes Apple's layout for granted gets a wrong matrix.
TEST(fibers_matrix_layout_is_not_apples) {
  const auto device = open_fibers();
  const Values<float> y(*device, std::vector<float>(64, -1.0f));
  run_probe(*device, "probe_layout", 32, {out(y.view)});
  const std::vector<float> got = y.now();
  uint32_t where_apple_has_them = 0, neighbours = 0;
  for (uint32_t place = 0; place < 64; ++place) {
    where_apple_has_them += got[place] == static_cast<float>(place);
    neighbours += place % 2 == 0 && got[place + 1] == got[place] + 1;
  }
  CHECK(where_apple_has_them < 4);
  CHECK_EQ(neighbours, 0u);
  CHECK_EQ(std::set<float>(got.begin(), got.end()).size(), size_t{64});
}

TEST(fibers_barriers_under_many_orders) {
  std::set<std::vector<uint32_t>> orders;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto device = open_fibers(seed % 2 ? 1 : 2, seed);
    const Values<float> x(*device, numbers(kProbeThreads, 5)), y(*device, std::vector<float>(16));
    run_probe(*device, "probe_reduce", kProbeThreads, {in(x.view), out(y.view)}, {}, 16);
    double sum = 0;
    for (float value : x.now()) sum += value;
    for (float value : y.now()) check_close("probe_reduce", seed, value, sum, 128 * kSum);

    const Values<float> swapped(*device, std::vector<float>(kProbeThreads));
    run_probe(*device, "probe_swap", kProbeThreads, {in(x.view), out(swapped.view)});
    const std::vector<float> given = x.now(), got = swapped.now();
    for (uint32_t i = 0; i < kProbeThreads; ++i) {
      check_close("probe_swap", i, got[i], given[i ^ 1], 1e-3);  // halves have 11 bits
    }

    const Values<uint32_t> next(*device, {0}), turns(*device, std::vector<uint32_t>(kProbeThreads));
    run_probe(*device, "probe_order", kProbeThreads, {inout(next.view), out(turns.view)});
    orders.insert(turns.now());
  }
  CHECK_EQ(orders.size(), size_t{20});
}

TEST(fibers_atomics) {
  const auto device = open_fibers(2);
  const Values<uint32_t> y(*device, {0, 0});
  run_probe(*device, "probe_atomics", kProbeThreads, {inout(y.view)}, {}, 50);
  CHECK(y.now() == (std::vector<uint32_t>{50 * kProbeThreads, 49}));
}

TEST(fibers_mathematics) {
  const auto device = open_fibers();
  std::vector<float> values = numbers(300, 6);
  for (float& value : values) value *= 8.0f;
  const Values<float> x(*device, values), y(*device, std::vector<float>(24 * values.size()));
  const auto count = static_cast<uint32_t>(values.size());
  run_probe(*device, "probe_math", kProbeThreads, {in(x.view), out(y.view)}, {0, count}, 3);
  const std::vector<float> got = y.now();
  for (uint32_t i = 0; i < count; ++i) {
    const double v = values[i], size = std::abs(v);
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    const double expected[] = {std::exp(v),
                               std::exp2(v),
                               std::log(size),
                               std::log2(size),
                               std::sqrt(size),
                               1 / std::sqrt(size),
                               std::sin(v),
                               std::cos(v),
                               std::tanh(v),
                               std::exp(v),
                               std::exp2(v),
                               std::log(size),
                               std::log2(size),
                               std::sqrt(size),
                               1 / std::sqrt(size),
                               std::tanh(v),
                               rounded_to_bf16(values[i]),
                               v,
                               std::floor(v),
                               v * v + 1,
                               std::clamp(v, -1.0, 1.0),
                               static_cast<double>(__builtin_popcount(bits)),
                               static_cast<double>(__builtin_clz(bits >> 3)),
                               static_cast<double>((uint64_t{bits} * 0x10001u >> 32) >> 8)};
    for (uint32_t r = 0; r < 24; ++r) {
      const double tolerance = r == 17 ? 0x1p-10 : 1e-6;  // half has 11 bits
      check_close("probe_math, function", r, got[r * count + i], expected[r],
                  tolerance * std::max(1.0, std::abs(expected[r])));
    }
  }
}

}  // namespace
}  // namespace lily
