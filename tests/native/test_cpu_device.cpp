// The CPU device under several threads: steps from many callers at once, replays, barriers between
// dependent dispatches, and the same bits for any number of threads. For the thread sanitizer above
// all.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "ops/ops.h"

namespace lily {
namespace {

Tensor filled(Device& device, std::vector<uint64_t> shape, uint32_t seed) {
  Tensor tensor{{}, DType::f32, std::move(shape)};
  tensor.view = View(device.allocate(tensor.elements() * sizeof(float)));
  std::vector<float> values(tensor.elements());
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
  }
  device.write(tensor.view, values.data(), values.size() * sizeof(float));
  return tensor;
}

Matrix as_matrix(const Tensor& tensor) {
  Matrix matrix;
  matrix.storage = Storage::f32;
  matrix.rows = tensor.shape[0];
  matrix.cols = tensor.shape[1];
  matrix.expert_stride_rows = matrix.rows;
  matrix.weight = tensor.view;
  return matrix;
}

// y = W2 (W1 x), then normalised: three dispatches, each needing the one before.
struct Chain {
  Tensor x, hidden, y, normed, gain;
  Step step;

  explicit Chain(Device& device)
      : x(filled(device, {1, 100}, 1)),
        hidden(filled(device, {1, 333}, 2)),
        y(filled(device, {1, 65}, 3)),
        normed(filled(device, {1, 65}, 4)),
        gain(filled(device, {65}, 5)) {
    ops::linear(step, hidden, x, {as_matrix(filled(device, {333, 100}, 6))});
    ops::linear(step, y, hidden, {as_matrix(filled(device, {65, 333}, 7))});
    ops::norm_rms(step, normed, y, gain, 1e-6f);
  }
  std::vector<float> result(Device& device) const {
    std::vector<float> values(65);
    device.read(normed.view, values.data(), values.size() * sizeof(float));
    return values;
  }
};

std::vector<float> run_with(uint32_t threads) {
  const auto device = open_device("cpu", {.threads = threads, .isa = {}});
  Chain chain(*device);
  for (int replay = 0; replay < 50; ++replay) device->submit(chain.step);
  device->wait();
  return chain.result(*device);
}

TEST(cpu_device_gives_the_same_bits_for_any_thread_count) {
  const std::vector<float> one = run_with(1);
  for (const float value : one) CHECK(std::isfinite(value));
  for (const uint32_t threads : {2u, 3u, 7u}) {
    const std::vector<float> many = run_with(threads);
    CHECK(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)) == 0);
  }
}

TEST(cpu_device_serves_many_callers_at_once) {
  const auto device = open_device("cpu", {.threads = 3, .isa = {}});
  const std::vector<float> expected = run_with(1);
  // More callers than lanes, some of whom want the whole device.
  std::vector<std::vector<float>> results(8);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < results.size(); ++caller) {
    callers.emplace_back([&, caller] {
      Chain chain(*device);
      for (int replay = 0; replay < 25; ++replay) {
        if (caller % 4 == 0) {
          device->submit(chain.step);
        } else {
          device->submit_beside(chain.step);
        }
      }
      results[caller] = chain.result(*device);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::vector<float>& result : results) {
    CHECK(std::memcmp(expected.data(), result.data(), expected.size() * sizeof(float)) == 0);
  }
}

TEST(cpu_device_says_so_after_a_fork_and_lets_go) {
  auto device = open_device("cpu", {.threads = 2, .isa = {}});
  Chain chain(*device);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that waits for threads that are not there shall not stop the tests
    try {
      device->submit(chain.step);
    } catch (const DeviceError&) {
      device.reset();
      _exit(7);
    }
    _exit(1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 7);
}

TEST(cpu_device_refuses_what_it_does_not_know) {
  const auto device = open_device("cpu", {});
  Step step;
  step.add(Dispatch{"norm_rms_f64", {}, {}, {}});
  CHECK_THROWS(InvalidInput, "norm_rms_f64", device->submit(step));
  CHECK_THROWS(InvalidInput, "mmx", open_device("cpu", {.threads = 1, .isa = "mmx"}));
  CHECK_THROWS(InvalidInput, "tpu", open_device("tpu", {}));
}

TEST(step_places_barriers_where_they_are_needed_only) {
  const auto device = open_device("cpu", {.threads = 1, .isa = {}});
  const View memory(device->allocate(1024));
  const View left = memory.slice(0, 512), right = memory.slice(512, 512);
  Step step;
  step.add(Dispatch{"a", {out(left)}, {}, {}});
  step.add(Dispatch{"b", {out(right)}, {}, {}});
  step.add(Dispatch{"c", {in(left), in(right)}, {}, {}});
  step.add(Dispatch{"d", {in(left)}, {}, {}});
  step.add(Dispatch{"e", {inout(left)}, {}, {}});
  std::vector<bool> barriers;
  for (const Dispatch& dispatch : step.dispatches()) barriers.push_back(dispatch.barrier_before);
  CHECK(barriers == (std::vector<bool>{false, false, true, false, true}));
  CHECK_THROWS(InvalidInput, "1,024", memory.slice(1000, 25));
}

}  // namespace
}  // namespace lily
