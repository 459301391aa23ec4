// The CUDA device's host code against a stand-in for the driver: launch arguments, order, graphs,
// typed errors, and that nothing is left behind whichever call fails.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "device/cuda/cuda_device.h"
#include "fake_cuda.h"

namespace lily {
namespace {

using cuda::PtxModule;
using test::fake_cuda;
using test::FakeLaunch;

constexpr PtxModule kModules[] = {
    {"probe",
     ".version 8.0\n.visible .entry probe_add(\n.param .align 8 .b8 p[320])\n{ ret; }\n"
     ".visible .entry probe_add_wide(\n) // as an .entryway is\n.entry probe_crash()"},
    {"small", ".visible .entry\tprobe_small()\n.reqntid 64, 1, 1\n{ ret; }"},
    {"broken", ".visible .entry probe_broken() { nonsense }"},
};

std::shared_ptr<Device> open_fake() {
  test::reset_fake_cuda();
  fake_cuda().memory_bytes = size_t{1} << 20;
  return make_cuda_device(LILY_FAKE_CUDA, kModules);
}

struct AddParams {
  float value;
};

Grid one_group(uint32_t threads, const char* variant = "") {
  return {{1, 1, 1}, {threads, 1, 1}, variant};
}

View floats(Device& device, const std::vector<float>& values) {
  View view(device.allocate(values.size() * sizeof(float)));
  device.write(view, values.data(), view.size_bytes);
  return view;
}

std::vector<float> contents(Device& device, const View& view) {
  std::vector<float> values(view.size_bytes / sizeof(float));
  device.read(view, values.data(), view.size_bytes);
  return values;
}

void add_probe(Step& step, const View& from, const View& to, float value) {
  step.add("probe_add", {in(from), out(to)}, AddParams{value}, one_group(4));
}

TEST(cuda_tells_what_it_is) {
  const auto device = open_fake();
  CHECK_EQ(device->name(), "cuda");
  CHECK_EQ(device->description(),
           "Fake GPU, 132 multiprocessors, compute capability 9.0, CUDA driver 13.0");
  CHECK(device->activation_dtype() == DType::bf16);
  CHECK(device->tiles() == Tiles::nvidia);
  CHECK_EQ(device->weight_alignment_bytes(), 16u);
  const Buffer buffer = device->allocate(1000);
  CHECK_EQ(device->memory_total_bytes(), uint64_t{1} << 20);
  CHECK_EQ(device->memory_available_bytes(), (uint64_t{1} << 20) - 1000);
}

TEST(cuda_memory_begins_as_zeros_and_copies_in_order) {
  const auto device = open_fake();
  const View left(device->allocate(16)), right = floats(*device, {1, 2, 3, 4});
  CHECK(contents(*device, left) == (std::vector<float>{0, 0, 0, 0}));
  device->copy(left.slice(4, 8), right.slice(8, 8), 8);
  CHECK(contents(*device, left) == (std::vector<float>{0, 3, 4, 0}));
  CHECK(left.buffer->host() == nullptr);
  CHECK_EQ(device->allocate(0)->bytes(), 1u);
  CHECK_THROWS(InvalidInput, "leave a view", device->copy(left, right, 17));
}

TEST(cuda_clears_in_order) {
  const auto device = open_fake();
  const View x = floats(*device, {1, 2, 3, 4});
  Step step;
  add_probe(step, x, x, 5);
  device->submit(step);
  device->clear(x.slice(4, 8));
  CHECK(contents(*device, x) == (std::vector<float>{6, 0, 0, 9}));
}

TEST(cuda_waits_for_a_ticket_alone) {
  const auto device = open_fake();
  const View shared(device->allocate_shared(16));
  const auto* seen = reinterpret_cast<const float*>(shared.host());
  CHECK_EQ(seen[3], 0.0f);
  Step step;
  add_probe(step, shared, shared, 1);
  std::vector<Ticket> tickets;
  for (int run = 0; run < 9; ++run) {
    tickets.push_back(device->submit(step));
    if (run == 0) continue;
    device->wait(tickets[run - 1]);
    CHECK_EQ(seen[3], static_cast<float>(run));  // and not one more
  }
  device->wait(tickets.front());  // an old one: at worst it waits for more
  device->wait(tickets.back());
  CHECK_EQ(seen[3], 9.0f);
}

TEST(cuda_wraps_a_copy_and_keeps_the_owner) {
  const auto device = open_fake();
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{5, 6});
  const std::weak_ptr<std::vector<float>> watch = owner;
  View view(device->wrap(owner, owner->data(), 8));
  (*owner)[0] = 7;
  owner.reset();
  CHECK(!watch.expired());
  CHECK(contents(*device, view) == (std::vector<float>{5, 6}));
  view = View();
  CHECK(watch.expired());
}

TEST(cuda_passes_bindings_and_params_as_they_are) {
  const auto device = open_fake();
  const View whole(device->allocate(64));
  struct Params {
    uint32_t a, b;
    float c;
  } params = {7, 8, 0.5f};
  Step step;
  step.add("probe_add", {in(whole), in(whole.slice(16, 16)), out(whole.slice(32, 16))}, params,
           {{3, 2, 5}, {32, 1, 1}, "_wide"});
  device->submit(step);
  device->wait();
  const FakeLaunch& launch = fake_cuda().ran.at(0);
  CHECK_EQ(launch.kernel, "probe_add_wide");
  CHECK(launch.groups == (std::array<uint32_t, 3>{3, 2, 5}));
  CHECK(launch.threads == (std::array<uint32_t, 3>{32, 1, 1}));
  const auto* buffers = launch.arguments.buffers;
  CHECK_EQ(buffers[1] - buffers[0], 16u);
  CHECK_EQ(buffers[2] - buffers[1], 16u);
  for (size_t at = 3; at < cuda::Arguments::kMostBuffers; ++at) CHECK_EQ(buffers[at], 0u);
  CHECK(std::memcmp(launch.arguments.params, &params, sizeof params) == 0);
}

TEST(cuda_runs_in_order_and_replays_as_a_graph) {
  const auto device = open_fake();
  const View x = floats(*device, {1, 2, 3, 4});
  Step step;
  add_probe(step, x, x, 1);
  add_probe(step, x, x, 10);
  for (int run = 0; run < 4; ++run) device->submit(step);
  CHECK(contents(*device, x) == (std::vector<float>{45, 46, 47, 48}));
  CHECK_EQ(fake_cuda().ran.size(), 8u);
  for (size_t at = 0; at < 8; ++at) CHECK_EQ(fake_cuda().ran[at].in_graph, at >= 2);

  add_probe(step, x, x, 100);  // the graph is no longer the step's
  device->submit(step);
  device->submit(step);
  CHECK(contents(*device, x) == (std::vector<float>{267, 268, 269, 270}));
  step.clear();
  device->submit(step);
  device->wait();
}

// From PTX that has the instructions by which a kernel waits for the one before it.
TEST(cuda_lets_kernels_of_a_graph_begin_early) {
  for (const int ptx_version : {80, 90}) {
    const auto device = open_fake();
    fake_cuda().ptx_version = ptx_version;
    const View x = floats(*device, {1, 2, 3, 4});
    Step step;
    for (float value : {1.0f, 10.0f, 100.0f}) add_probe(step, x, x, value);
    for (int run = 0; run < 2; ++run) device->submit(step);
    CHECK(contents(*device, x) == (std::vector<float>{223, 224, 225, 226}));
    const auto& ran = fake_cuda().ran;
    CHECK_EQ(ran.size(), 6u);
    for (size_t at = 0; at < 6; ++at) CHECK_EQ(ran[at].early, ptx_version == 90 && at > 3);
  }
}

TEST(cuda_keeps_memory_until_the_stream_is_done_with_it) {
  const auto device = open_fake();
  const View y(device->allocate(16));
  {
    const View x = floats(*device, {1, 2, 3, 4});
    Step step;
    add_probe(step, x, y, 1);
    device->submit(step);
  }
  CHECK(contents(*device, y) == (std::vector<float>{2, 3, 4, 5}));
}

TEST(cuda_times_a_step_by_events) {
  const auto device = open_fake();
  const View x = floats(*device, {0, 0, 0, 0});
  Step step;
  add_probe(step, x, x, 1);
  CHECK(device->time_us(step, 3) == (std::vector<double>{250, 250, 250}));
  CHECK(contents(*device, x) == (std::vector<float>{5, 5, 5, 5}));
  CHECK_THROWS(InvalidInput, "no kernel named 'nothing'", {
    Step unknown;
    unknown.add(Dispatch{"nothing", {}, {}, {}});
    device->time_us(unknown, 1);
  });
}

TEST(cuda_serves_many_threads) {
  const auto device = open_fake();
  std::vector<std::thread> callers;
  std::vector<std::vector<float>> results(4);
  for (std::vector<float>& result : results) {
    callers.emplace_back([&] {
      const View x = floats(*device, {1, 2, 3, 4});
      Step step;
      add_probe(step, x, x, 1);
      for (int run = 0; run < 10; ++run) device->submit(step);
      result = contents(*device, x);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& result : results) CHECK(result == (std::vector<float>{11, 12, 13, 14}));
}

TEST(cuda_refuses_what_does_not_fit) {
  const auto device = open_fake();
  const auto submit = [&](Dispatch dispatch) {
    Step step;
    step.add(std::move(dispatch));
    device->submit(step);
  };
  CHECK_THROWS(InvalidInput, "no kernel named 'probe_add_x'",
               submit({"probe_add", {}, {}, {{1, 1, 1}, {32, 1, 1}, "_x"}}));
  CHECK_THROWS(InvalidInput, "no kernel named 'probe'", submit({"probe", {}, {}, {}}));
  CHECK_THROWS(InvalidInput,
               "[1x1x1 groups of 65x1x1] has 65 threads in a group, expected up to 64",
               submit({"probe_small", {}, {}, one_group(65)}));
  CHECK_THROWS(DeviceError, "cuLaunchKernel of kernel 'probe_small' [1x1x1 groups of 63x1x1]",
               submit({"probe_small", {}, {}, one_group(63)}));
  const View any(device->allocate(16));
  CHECK_THROWS(InvalidInput, "has 25 bindings, expected up to 24",
               submit({"probe_add", std::vector<Binding>(25, in(any)), {}, one_group(1)}));
  CHECK_THROWS(InvalidInput, "kernel 'probe_add' has an empty binding",
               submit({"probe_add", {in(View())}, {}, one_group(1)}));
  CHECK_THROWS(InvalidInput, "129 bytes of parameters",
               submit({"probe_add", {}, std::vector<std::byte>(129), one_group(1)}));
  const auto other = open_device("cpu", {.threads = 1, .isa = {}});
  const View elsewhere(other->allocate(16)), here(device->allocate(16));
  CHECK_THROWS(InvalidInput, "memory of another device",
               submit({"probe_add", {in(elsewhere)}, {}, one_group(1)}));
  CHECK_THROWS(InvalidInput, "memory of another device", device->copy(here, elsewhere, 16));
  CHECK_THROWS(DeviceError, "line 1: 'nonsense' is no instruction",
               submit({"probe_broken", {}, {}, one_group(1)}));
  CHECK(fake_cuda().ran.empty());
}

TEST(cuda_says_what_memory_is_missing) {
  const auto device = open_fake();
  const Buffer most = device->allocate(1'000'000);
  CHECK_THROWS(OutOfMemory, "cannot allocate 100.00 KB; 48.58 KB of the GPU's 1.05 MB are free",
               device->allocate(100'000));
  CHECK_EQ(device->allocate(1000)->bytes(), 1000u);
}

TEST(cuda_names_the_kernel_that_cannot_start) {
  const auto device = open_fake();
  const View x = floats(*device, {1, 2, 3, 4});
  Step step;
  add_probe(step, x, x, 1);
  step.add("probe_small", {in(x)}, AddParams{}, one_group(64));
  fake_cuda().fail_symbol = "cuLaunchKernel";
  fake_cuda().fail_after = 1;
  fake_cuda().fail_with = cuda::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  CHECK_THROWS(DeviceError,
               "cuLaunchKernel of kernel 'probe_small' [1x1x1 groups of 64x1x1]: "
               "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (as the fake says)",
               device->submit(step));
  device->submit(step);  // the context lives
  device->wait();
}

TEST(cuda_names_the_kernels_that_may_have_failed_and_is_lost) {
  const auto device = open_fake();
  const View x = floats(*device, {1, 2, 3, 4});
  Step good, bad;
  add_probe(good, x, x, 1);
  bad.add("probe_crash", {inout(x)}, AddParams{}, one_group(32));
  device->submit(good);
  device->wait();
  device->submit(bad);
  CHECK_THROWS(DeviceError, "cuStreamSynchronize after kernel 'probe_crash': CUDA_ERROR_ILLEGAL",
               device->wait());
  CHECK_THROWS(DeviceError, "the device was lost earlier: cuStreamSynchronize after kernel 'probe_",
               device->submit(good));
  CHECK_THROWS(DeviceError, "lost earlier", device->allocate(1));
  CHECK_THROWS(DeviceError, "lost earlier", contents(*device, x));
}

TEST(cuda_lists_all_kernels_since_the_last_wait) {
  const auto device = open_fake();
  const View x = floats(*device, {1, 2, 3, 4});
  Step step;
  add_probe(step, x, x, 1);
  step.add("probe_crash", {inout(x)}, AddParams{}, one_group(32));
  device->submit(step);
  CHECK_THROWS(
      DeviceError,
      "after one of the kernels probe_add, probe_crash (CUDA_LAUNCH_BLOCKING=1 tells which)",
      contents(*device, x));
}

TEST(cuda_waits_for_each_launch_when_asked) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const auto device = open_fake();
  unsetenv("CUDA_LAUNCH_BLOCKING");
  const View x = floats(*device, {1, 2, 3, 4});
  Step good, bad;
  add_probe(good, x, x, 1);
  device->submit(good);
  device->submit(good);
  for (const FakeLaunch& launch : fake_cuda().ran) CHECK(!launch.in_graph);
  add_probe(bad, x, x, 1);
  bad.add("probe_crash", {inout(x)}, AddParams{}, one_group(32));
  CHECK_THROWS(DeviceError,
               "cuStreamSynchronize after kernel 'probe_crash' [1x1x1 groups of 32x1x1]",
               device->submit(bad));
}

TEST(cuda_says_what_it_looked_for) {
  test::reset_fake_cuda();
  CHECK_THROWS(DeviceError, "no NVIDIA driver here: looked for libcuda-of-nobody.so",
               make_cuda_device("libcuda-of-nobody.so", kModules));
  CHECK_THROWS(DeviceError, "libm.so.6 has no cuGetErrorName",
               make_cuda_device("libm.so.6", kModules));
  CHECK_THROWS(DeviceError, "no CUDA kernels", make_cuda_device(LILY_FAKE_CUDA, {}));
  const PtxModule twice[] = {kModules[0], kModules[0]};
  CHECK_THROWS(DeviceError, "'probe_add' stands twice", make_cuda_device(LILY_FAKE_CUDA, twice));
  fake_cuda().devices = 0;
  CHECK_THROWS(DeviceError, "shows no GPU", make_cuda_device(LILY_FAKE_CUDA, kModules));
  fake_cuda().devices = 1;
  fake_cuda().major = 7;
  CHECK_THROWS(DeviceError, "Fake GPU has compute capability 7.0, expected 8.0 or later",
               make_cuda_device(LILY_FAKE_CUDA, kModules));
  CHECK_EQ(fake_cuda().alive, 0u);
}

TEST(cuda_leaves_nothing_in_whatever_order_it_is_dropped) {
  auto device = open_fake();
  View x = floats(*device, {1, 2, 3, 4});
  auto step = std::make_unique<Step>();
  add_probe(*step, x, x, 1);
  device->submit(*step);
  device->submit(*step);  // with a graph
  device.reset();
  step.reset();
  x = View();
  CHECK_EQ(fake_cuda().alive, 0u);
  CHECK_EQ(fake_cuda().bytes_in_use, 0u);
}

// Every call in turn answers an error: it must come out typed, and everything must be given back.
TEST(cuda_survives_the_failure_of_any_call) {
  const auto use = [] {
    const auto device = make_cuda_device(LILY_FAKE_CUDA, kModules);
    const View x = floats(*device, {1, 2, 3, 4}), y(device->allocate(16));
    Step step;
    add_probe(step, x, y, 1);
    add_probe(step, y, x, 1);
    device->time_us(step, 1);
    device->copy(y, x, 16);
    contents(*device, y);
    device->wait();
  };
  int failed = 0;
  for (const cuda::CUresult error : {cuda::CUresult{cuda::CUDA_ERROR_OUT_OF_MEMORY}, 999}) {
    test::reset_fake_cuda();
    use();
    const std::vector<std::string> calls = fake_cuda().calls;
    for (size_t call = 0; call < calls.size(); ++call) {
      // Destructors that cannot reach the context have to leave what they own.
      if (calls[call] == "cuCtxSetCurrent") continue;
      test::reset_fake_cuda();
      fake_cuda().fail_after = static_cast<int>(call);
      fake_cuda().fail_with = error;
      try {
        use();
      } catch (const Error& thrown) {
        ++failed;
        CHECK(std::string(thrown.what()).starts_with("cuda: "));
      }
      CHECK_EQ(fake_cuda().alive, 0u);
    }
  }
  CHECK(failed > 40);
  test::reset_fake_cuda();
}

TEST(cuda_says_so_after_a_fork_and_lets_go) {
  auto device = open_fake();
  const View x = floats(*device, {1, 2, 3, 4});
  Step step;
  add_probe(step, x, x, 1);
  device->submit(step);
  const pid_t child = fork();
  if (child == 0) {
    const size_t calls = fake_cuda().calls.size();
    try {
      device->submit(step);
    } catch (const DeviceError&) {
      step.clear();
      device.reset();
      _exit(fake_cuda().calls.size() == calls ? 7 : 2);
    }
    _exit(1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace lily
