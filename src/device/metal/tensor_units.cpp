// See tensor_units.h.
#include "device/metal/tensor_units.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lily::metal {
namespace {

// In a line: of what a compiler says, all up to its first error.
std::string first_line(std::string text) {
  if (text.starts_with("metal: ")) text.erase(0, 7);
  const size_t error = text.find("error:");
  text.resize(std::min(text.find('\n', error == std::string::npos ? 0 : error), text.size()));
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string find_reason(bool are_there, bool has_metal_4, Device& device,
                        const KernelCheck& check) {
  if (!are_there) return "this GPU has none";
  if (!has_metal_4) return "the system has no Metal 4";
  if (!check) return "nothing checks their kernels";
  // Portable kernels do all that these do, so no failure of theirs is one of the device.
  try {
    return check(device);
  } catch (const Error& error) {
    return first_line(error.what());
  }
}

}  // namespace

TensorUnits::TensorUnits(const Gpu& gpu, Device& device, KernelCheck check)
    : are_there_(gpu.has_tensor_units()),
      reason_(std::async(std::launch::deferred, find_reason, are_there_, gpu.has_metal_4(),
                         std::ref(device), std::move(check))) {}

std::string TensorUnits::describe() const {
  if (!are_there_) return "no";
  return are_used() ? "yes, used (self-check passed)" : "yes, not used: " + reason_.get();
}

}  // namespace lily::metal
