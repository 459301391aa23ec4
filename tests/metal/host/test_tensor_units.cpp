// When the Metal device uses tensor units: after a check of them has passed, and never otherwise.
#include "probes.h"

namespace lily {
namespace {

using namespace test;

float run(Device& device, const char* kernel) {
  const View from = floats(device, 64, 1), to = floats(device, 64);
  Step step;
  add(step, from, to, 1, 1, kernel);
  device.submit(step);
  return first(device, to);
}

// A machine with tensor units, and a check that runs one kernel of theirs.
struct TensorMachine : Machine {
  TensorMachine() {
    settings.family = 10;
    check = [this](Device& device) {
      ++num_checks;
      return run(device, kernel) == 2.0f ? std::string() : "probe_add_tensor differs";
    };
  }
  const char* kernel = "probe_add_tensor";
  int num_checks = 0;
};

std::string used_and_why(const TensorMachine& machine) {
  const auto device = machine.open();
  const std::string why = fact(*device, "tensor units");
  // Whatever a check came to, the device goes on without them.
  CHECK_EQ(run(*device, "probe_add"), 2.0f);
  return (device->tiles() == Tiles::apple_tensor ? "used; " : "not used; ") + why;
}

TEST(metal_uses_tensor_units_after_a_check) {
  TensorMachine machine;
  const auto device = machine.open();
  CHECK_EQ(machine.num_checks, 0);  // not while it opens
  CHECK(device->tiles() == Tiles::apple_tensor);
  CHECK_EQ(simulated::statistics().libraries_compiled, 1u);
  CHECK_EQ(fact(*device, "tensor units"), "yes, used (self-check passed)");
  CHECK(device->tiles() == Tiles::apple_tensor);
  CHECK_EQ(machine.num_checks, 1);
  CHECK_EQ(run(*device, "probe_add"), 2.0f);
  CHECK(machine.open()->tiles() == Tiles::apple_tensor);  // each device for itself
  CHECK_EQ(machine.num_checks, 2);
}

TEST(metal_does_without_tensor_units_that_fail) {
  TensorMachine machine;
  const KernelCheck sound = machine.check;
  machine.check = [](Device& device) {
    Step step;
    step.add("probe_crash", {inout(floats(device, 1))}, AddParams{}, groups(1));
    device.submit(step);
    device.wait();
    return std::string();
  };
  CHECK_EQ(
      used_and_why(machine),
      "not used; yes, not used: a command buffer failed: a page fault (code 1); it held kernel "
      "probe_crash");
  machine.check = sound;
  machine.kernel = "none_tensor";
  CHECK_EQ(used_and_why(machine),
           "not used; yes, not used: there is no kernel named 'none_tensor'");
  machine.kernel = "broken_add";
  CHECK_EQ(
      used_and_why(machine),
      "not used; yes, not used: metal/broken.metal does not compile here: In file included from "
      "it:1: b.h:3:5: error: there is no kernel in it");
  machine.check = [](Device&) { return "probe_add_tensor differs"; };
  CHECK_EQ(used_and_why(machine), "not used; yes, not used: probe_add_tensor differs");
  machine.check = {};
  CHECK_EQ(used_and_why(machine), "not used; yes, not used: nothing checks their kernels");
}

TEST(metal_checks_no_tensor_units_that_are_not_there) {
  TensorMachine machine;
  machine.settings.os_major = 15;
  CHECK_EQ(used_and_why(machine), "not used; yes, not used: the system has no Metal 4");
  machine.settings.os_major = 26;
  machine.settings.family = 9;
  CHECK_EQ(used_and_why(machine), "not used; no");
  CHECK_EQ(machine.num_checks, 0);
}

TEST(metal_compiles_tensor_ops_beside_a_metallib) {
  TensorMachine machine;
  machine.metallib = machine.folder.write("lily.metallib", "simulated metallib\nprobe_add\n");
  CHECK_EQ(used_and_why(machine), "used; yes, used (self-check passed)");
  CHECK_EQ(simulated::statistics().libraries_compiled, 1u);
}

}  // namespace
}  // namespace lily
