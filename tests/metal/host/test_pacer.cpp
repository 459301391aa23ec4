// How long command buffers get: nothing known, learned times, a pause in one, kernels that slow
// down.
#include "device/metal/pacer.h"
#include "probes.h"

namespace lily {
namespace {

using metal::Pacer;
using metal::Work;

double total_us(const std::vector<Work>& work, size_t count, std::span<const double> us) {
  double sum = 0;
  for (size_t at = 0; at < count; ++at) {
    sum += us[work[at].kernel] * static_cast<double>(work[at].groups);
  }
  return sum;
}

// A prefill: layers of three kernels of very different weight.
std::vector<Work> layers(int count) {
  std::vector<Work> work;
  for (int layer = 0; layer < count; ++layer) {
    for (const Work part : {Work{0, 1000}, Work{1, 50}, Work{2, 8000}}) work.push_back(part);
  }
  return work;
}

TEST(pacer_learns_what_kernels_take) {
  const double us[] = {3, 200, 0.5};  // 17 ms a layer
  Pacer pacer(150e3);
  const std::vector<Work> work = layers(40);
  double longest = 0;
  for (int round = 0; round < 12; ++round) {
    longest = 0;
    for (size_t begin = 0, count = 0; begin < work.size(); begin += count) {
      const std::vector<Work> left(work.begin() + static_cast<long>(begin), work.end());
      count = pacer.take(left);
      const double took = total_us(left, count, us);
      pacer.observe(std::span(left).first(count), took);
      longest = std::max(longest, took);
    }
  }
  CHECK(longest > 100e3 && longest < 170e3);
}

TEST(pacer_begins_short_and_takes_one_at_least) {
  Pacer pacer(1000);
  const std::vector<Work> work = {{7, 100}, {7, 100}, {7, 100000}};
  CHECK_EQ(pacer.take(work), 1u);
  CHECK_EQ(pacer.take(std::span(work).subspan(2)), 1u);
  CHECK_EQ(pacer.take({}), 0u);
}

TEST(pacer_is_not_misled_for_long) {
  Pacer pacer(1000);
  const std::vector<Work> work(100, Work{0, 10});
  for (int round = 0; round < 10; ++round) pacer.observe(work, 1000);  // a microsecond each
  CHECK(pacer.take(work) >= 99);
  pacer.observe(work, 1e9);  // the machine slept
  CHECK(pacer.take(work) >= 24);
  pacer.observe(work, 0);  // no time was measured
  pacer.observe(work, 1000);
  CHECK(pacer.take(work) >= 99);
}

}  // namespace
}  // namespace lily
