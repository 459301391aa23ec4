// What the Metal device is, what it refuses, its kernels and their cache, and how failures arrive.
#include <sys/wait.h>

#include <fstream>

#include "probes.h"

namespace lily {
namespace {

using namespace test;

// One run of probe_add; what it gives from 1.
float run_add(Device& device, const char* kernel = "probe_add") {
  const View from = floats(device, 64, 1), to = floats(device, 64);
  Step step;
  add(step, from, to, 1, 1, kernel);
  device.submit(step);
  return first(device, to);
}

TEST(metal_asks_for_features_and_not_for_names) {
  Machine machine;
  machine.settings.family = 9;
  CHECK(machine.open()->activation_dtype() == DType::bf16);
  machine.settings.family = 7;
  const auto oldest = machine.open();
  CHECK(oldest->activation_dtype() == DType::f16);
  CHECK_EQ(oldest->name(), "metal");
  CHECK_EQ(oldest->description(), "Simulated GPU, macOS 26.1");
  CHECK(oldest->tiles() == Tiles::apple);
  CHECK_EQ(oldest->weight_alignment_bytes(), 16u);
  CHECK_EQ(fact(*oldest, "tensor units"), "no");
  machine.settings.family = 6;
  CHECK_THROWS(DeviceError, "expected Apple silicon", machine.open());
  machine.settings.is_there = false;
  CHECK_THROWS(DeviceError, "this machine shows no GPU", machine.open());
}

TEST(metal_reports_heat_and_pressure) {
  Machine machine;
  const auto device = machine.open();
  CHECK_EQ(fact(*device, "thermal state"), "nominal");
  CHECK_EQ(fact(*device, "memory pressure"), "normal");
  machine.settings.thermal_state = 2;
  machine.settings.memory_pressure = 4;
  CHECK_EQ(fact(*device, "thermal state"), "serious");
  CHECK_EQ(fact(*device, "memory pressure"), "critical");
  CHECK_EQ(fact(*device, "residency set"), "yes");
  CHECK_EQ(fact(*device, "kernels"), "compiled from source");
}

TEST(metal_refuses_what_does_not_fit) {
  Machine machine;
  const auto device = machine.open(), other = machine.open();
  const View mine = floats(*device, 128), theirs = floats(*other, 64);
  const auto run = [&](const char* kernel, std::vector<Binding> bindings, Grid grid = groups(1)) {
    Step step;
    step.add(kernel, std::move(bindings), AddParams{}, grid);
    device->submit(step);
  };
  CHECK_THROWS(InvalidInput, "no kernel named 'probe_none'", run("probe_none", {}));
  CHECK_THROWS(InvalidInput, "no kernel named 'nobody_add'", run("nobody_add", {}));
  CHECK_THROWS(DeviceError, "metal/broken.metal does not compile here: In file included from",
               run("broken_add", {}));
  CHECK_THROWS(InvalidInput, "memory of another device", run("probe_count", {inout(theirs)}));
  CHECK_THROWS(InvalidInput, "at byte 2 of a buffer, expected a multiple of 4",
               run("probe_count", {inout(mine.slice(2, 8))}));
  CHECK_THROWS(InvalidInput, "31 bindings, expected 0 to 30",
               run("probe_count", std::vector<Binding>(31, in(mine))));
  CHECK_THROWS(InvalidInput, "2,048 threads in a group, expected 1 to 1,024",
               run("probe_count", {inout(mine)}, {{1, 1, 1}, {2048, 1, 1}, ""}));
  CHECK_THROWS(InvalidInput, "0 threadgroups", run("probe_count", {inout(mine)}, groups(0)));
  run("probe_count", {inout(mine)});
  CHECK_THROWS(InvalidInput, "has 64 threads in a group, 32 were given",
               run("probe_count", {inout(mine)}, {{1, 1, 1}, {32, 1, 1}, ""}));
  CHECK_THROWS(InvalidInput, "memory of another device", device->copy(mine, theirs, 4));
  device->submit(Step());
  device->wait();
}

TEST(metal_reports_a_failed_command_buffer_once) {
  Machine machine;
  machine.settings.most_delay_us = 200;
  const auto device = machine.open();
  const View word(device->allocate(4));
  Step step, crash;
  add_count(step, word);
  crash.add("probe_crash", {inout(word)}, AddParams{}, groups(1));
  for (int run = 0; run < 3; ++run) device->submit(step);
  device->submit(crash);
  for (int run = 0; run < 2; ++run) device->submit(step);  // and a third is encoded
  CHECK_THROWS(DeviceError,
               "a command buffer failed: a page fault (code 1); it held kernel "
               "probe_crash",
               device->wait());
  device->wait();
  // The device goes on, in order, with what was encoded ahead forgotten.
  uint32_t before = 0, after = 0;
  device->read(word, &before, sizeof before);
  for (int run = 0; run < 5; ++run) device->submit(step);
  device->read(word, &after, sizeof after);
  CHECK_EQ(after, before + 5);
}

TEST(metal_says_what_can_be_done) {
  Machine machine;
  machine.settings.fail_at = 0;
  machine.settings.fail_code = 4;
  const auto device = machine.open();
  const View a = floats(*device, 64), b = floats(*device, 64);
  Step step;
  add(step, a, b, 1);
  add(step, a, b, 1, 1, "other_add");
  device->submit(step);
  CHECK_THROWS(DeviceError,
               "refuses this process the GPU until it is started again; it held "
               "kernels probe_add, other_add",
               device->read(b, &step, 4));
}

TEST(metal_keeps_pipelines_for_the_next_process) {
  Machine machine;
  CHECK_EQ(run_add(*machine.open()), 2.0f);
  CHECK_EQ(simulated::statistics().pipelines_compiled, 1u);
  CHECK_EQ(run_add(*machine.open()), 2.0f);
  CHECK_EQ(simulated::statistics().pipelines_compiled, 1u);
  CHECK_EQ(simulated::statistics().pipelines_from_archive, 1u);
  CHECK_EQ(run_add(*machine.open(), "other_add"), 2.0f);
  CHECK_EQ(run_add(*machine.open()), 2.0f);  // the file holds both
  CHECK_EQ(simulated::statistics().pipelines_compiled, 2u);
  machine.settings.os_major = 27;  // another system, another compiler
  CHECK_EQ(run_add(*machine.open()), 2.0f);
  CHECK_EQ(simulated::statistics().pipelines_compiled, 3u);
}

TEST(metal_lives_with_a_broken_cache) {
  Machine machine;
  CHECK_EQ(run_add(*machine.open()), 2.0f);
  for (const auto& entry : std::filesystem::directory_iterator(machine.folder.path() / "cache")) {
    std::ofstream(entry.path()) << "nothing of use";
  }
  CHECK_EQ(run_add(*machine.open()), 2.0f);
  CHECK_EQ(run_add(*machine.open()), 2.0f);  // it was written anew
  CHECK_EQ(simulated::statistics().pipelines_from_archive, 1u);
  machine.settings.fail_archives = true;
  CHECK_EQ(run_add(*machine.open()), 2.0f);
  machine.settings.fail_archives = false;
  std::filesystem::remove_all(machine.folder.path() / "cache");
  std::ofstream(machine.folder.path() / "cache") << "a file in the folder's place";
  CHECK_EQ(run_add(*machine.open()), 2.0f);
}

TEST(metal_takes_the_metallib_that_is_there) {
  Machine machine;
  machine.metallib = machine.folder.write("lily.metallib", "simulated metallib\nprobe_add\n");
  const auto device = machine.open();
  CHECK_EQ(run_add(*device), 2.0f);
  CHECK_EQ(simulated::statistics().libraries_compiled, 0u);
  CHECK_EQ(fact(*device, "kernels"), machine.metallib.string());
  CHECK_THROWS(InvalidInput, "no kernel named 'other_add'", run_add(*device, "other_add"));
  machine.folder.write("lily.metallib", "damaged");
  CHECK_THROWS(DeviceError, "cannot load", run_add(*machine.open()));
}

TEST(metal_compiles_ahead_where_it_is_told) {
  Machine machine;
  const auto device = machine.open();
  const View from = floats(*device, 64, 1), to = floats(*device, 64);
  Step step, unknown;
  add(step, from, to, 1);
  add(unknown, from, to, 1, 1, "nobody_add");
  device->prewarm(unknown);  // whose error is left to its submission
  device->prewarm(step);
  for (int wait = 0; wait < 200 && simulated::statistics().pipelines_compiled == 0; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK_EQ(simulated::statistics().pipelines_compiled, 1u);
  device->submit(step);
  CHECK_EQ(first(*device, to), 2.0f);
  CHECK_EQ(simulated::statistics().pipelines_compiled, 1u);
}

TEST(metal_refuses_a_forked_process) {
  Machine machine;
  const auto device = machine.open();
  Step step;
  add_count(step, View(device->allocate(4)));
  const pid_t child = fork();
  if (child == 0) {
    try {
      device->submit(step);
    } catch (const DeviceError& error) {
      _exit(std::string(error.what()).find("was forked") == std::string::npos ? 2 : 0);
    }
    _exit(1);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace lily
