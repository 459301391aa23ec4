// See tensor_units.h.
#include "device/metal/tensor_units.h"

#include <string_view>
#include <utility>

#include "core/error.h"

namespace lily::metal {
namespace {

// The first line of a message, and of a compiler's the first that has an error.
std::string first_line(std::string_view text) {
  if (text.starts_with("metal: ")) text.remove_prefix(7);
  std::string line(text.substr(0, text.find('\n')));
  const size_t error = text.find("error:");
  if (error == std::string_view::npos || error < line.size()) return line;
  const size_t begin = text.rfind('\n', error) + 1;
  return line + " " + std::string(text.substr(begin, text.find('\n', begin) - begin));
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
