// What the device "fibers" refuses and reports: each planted fault of the probe kernels comes back
// as an error that names it, again under other orders, and the device goes on working.
#include <cmath>

#include "check.h"
#include "probes.h"

namespace lily {
namespace {

using test::numbers;
using test::open_fibers;
using test::run_probe;
using test::Values;

constexpr uint64_t kSeeds = 5;

// Calls `run` with a device for each of some seeds.
template <class Run>
void under_many_orders(Run run) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) run(*open_fibers(1 + seed % 2, seed));
}

TEST(fibers_report_divergence) {
  under_many_orders([](Device& device) {
    const Values<float> y(device, numbers(kProbeThreads, 3));
    const auto diverge = [&](uint32_t mode) {
      run_probe(device, "probe_divergence", kProbeThreads, {out(y.view)}, {mode, 0});
    };
    CHECK_THROWS(DeviceError, "20 lanes are at a simd reduction", diverge(0));
    CHECK_THROWS(DeviceError, "12 lanes returned", diverge(0));
    CHECK_THROWS(DeviceError, "divergence in simdgroup", diverge(1));
    CHECK_THROWS(DeviceError, "12 lanes at threadgroup_barrier", diverge(2));
    diverge(3);
  });
}

TEST(fibers_report_barriers_that_not_all_reach) {
  under_many_orders([](Device& device) {
    const Values<float> y(device, numbers(kProbeThreads, 3));
    const auto meet = [&](uint32_t mode) {
      run_probe(device, "probe_barriers", kProbeThreads, {out(y.view)}, {mode, 0});
    };
    CHECK_THROWS(DeviceError, "127 threads of 128 wait at threadgroup_barrier", meet(0));
    CHECK_THROWS(DeviceError, "at another threadgroup_barrier", meet(1));
    meet(2);
  });
}

#if defined(LILY_FIBERS_CHECKED)
TEST(fibers_report_a_missing_barrier) {
  under_many_orders([](Device& device) {
    const Values<float> x(device, numbers(kProbeThreads, 1)), y(device, {0.0f});
    const auto reduce = [&](uint32_t mode) {
      run_probe(device, "probe_reduce", kProbeThreads, {in(x.view), out(y.view)}, {mode, 0});
    };
    CHECK_THROWS(DeviceError, "with no barrier between: a race", reduce(1));
    CHECK_THROWS(DeviceError, "threadgroup array 'partial'", reduce(1));
    CHECK_THROWS(DeviceError, "kernel 'probe_reduce', threadgroup (0, 0, 0), thread ", reduce(2));
    reduce(0);
  });
}

TEST(fibers_report_a_missing_simdgroup_barrier) {
  under_many_orders([](Device& device) {
    const Values<float> x(device, numbers(kProbeThreads, 2)), y(device, numbers(kProbeThreads, 3));
    CHECK_THROWS(DeviceError, "a race",
                 run_probe(device, "probe_swap", kProbeThreads, {in(x.view), out(y.view)}, {1, 0}));
    run_probe(device, "probe_swap", kProbeThreads, {in(x.view), out(y.view)});
  });
}

TEST(fibers_report_accesses_outside_bindings) {
  under_many_orders([](Device& device) {
    // A part in the middle of a buffer: what is around it must not hide the error.
    const View whole(device.allocate(4096));
    const View part = whole.slice(1024, 64 * sizeof(float));
    const Values<float> y(device, numbers(32, 4));
    const auto run = [&](uint32_t mode, uint32_t count) {
      run_probe(device, "probe_bounds", 32, {in(part), out(y.view)}, {mode, count});
    };
    run(0, 0);
    run(1, 32);
    CHECK_THROWS(DeviceError, "reads 4 bytes at byte 256 of binding 0, which has 256", run(1, 33));
    CHECK_THROWS(DeviceError, "writes 4 bytes at byte 1", run(2, 1));
    CHECK_THROWS(DeviceError, "of binding 0, which is bound as input", run(3, 0));
    CHECK_THROWS(DeviceError, "reads 4 bytes 4 bytes before binding 0", run(4, 0));
    CHECK_THROWS(DeviceError, "a misaligned address", run(5, 61));
    run(5, 60);
    CHECK_THROWS(DeviceError, "reads 16 bytes at byte 256 of binding 0", run(5, 64));
  });
}

TEST(fibers_report_undefined_behaviour) {
  under_many_orders([](Device& device) {
    const Values<float> y(device, numbers(32, 4));
    const auto run = [&](uint32_t mode) {
      run_probe(device, "probe_faults", 32, {inout(y.view)}, {mode, 7});
    };
    CHECK_THROWS(DeviceError, "a division by zero", run(0));
    CHECK_THROWS(DeviceError, "an index outside its array", run(1));
    CHECK_THROWS(DeviceError, "a stack overflow",
                 run_probe(device, "probe_stack", 32, {inout(y.view)}));
    CHECK_THROWS(DeviceError, "a misaligned address", run(3));
    CHECK_THROWS(DeviceError, "a simd shuffle from a lane past 31", run(4));
    CHECK_THROWS(DeviceError, "runner_probe.metal:", run(4));
    run(2);
  });
}
#endif

TEST(fibers_hand_out_threadgroup_memory) {
  under_many_orders([](Device& device) {
    const Values<float> y(device, numbers(32, 4));
    const auto run = [&](uint32_t mode, uint32_t count) {
      run_probe(device, "probe_memory", 32, {out(y.view)}, {mode, count});
      return y.now();
    };
    for (float value : run(0, 0)) CHECK_EQ(value, 1.0f);
    CHECK_THROWS(DeviceError, "the limit is 49,152", run(1, 0));
    for (float value : run(3, 0)) CHECK(std::isnan(value));
#if defined(LILY_FIBERS_CHECKED)
    CHECK_THROWS(DeviceError, "outside every threadgroup array: byte 49024 of 'most'",
                 run(2, 12256));
#endif
  });
}

TEST(fibers_refuse_dispatches_that_do_not_fit) {
  const auto device = open_fibers();
  const Values<float> x(*device, numbers(kProbeThreads, 1)), y(*device, {0.0f});
  const auto reduce = [&](const char* name, uint32_t threads, std::vector<Binding> bindings) {
    run_probe(*device, name, threads, std::move(bindings));
  };
  CHECK_THROWS(InvalidInput, "no kernel named 'probe_none'", reduce("probe_none", 32, {}));
  CHECK_THROWS(InvalidInput, "bindings: 1 given, 2 expected",
               reduce("probe_reduce", kProbeThreads, {in(x.view)}));
  CHECK_THROWS(InvalidInput, "threads in a group: 64 given, 128 expected",
               reduce("probe_reduce", 64, {in(x.view), out(y.view)}));
  Step step;
  Grid grid;
  grid.threads[0] = kProbeThreads;
  step.add("probe_reduce", {in(x.view), out(y.view)}, uint32_t{0}, grid);
  CHECK_THROWS(InvalidInput, "bytes of params: 4 given, 8 expected", device->submit(step));
  CHECK_THROWS(InvalidInput, "no seed", open_device("fibers", {.threads = 1, .isa = "avx2"}));
}

TEST(fibers_keep_a_variant_of_a_name) {
  const auto device = open_fibers();
  const Values<float> x(*device, numbers(kProbeThreads, 1)), y(*device, {0.0f});
  Step step;
  Grid grid;
  grid.threads[0] = kProbeThreads;
  grid.variant = "_reduce";
  step.add("probe", {in(x.view), out(y.view)}, ProbeParams{}, grid);
  device->submit(step);
  CHECK(y.now()[0] != 0.0f);
}

}  // namespace
}  // namespace lily
