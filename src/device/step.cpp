// Views and steps: bounds of a view, barriers derived once from what each dispatch reads and
// writes, and a printable form. Knows no device.
#include <algorithm>

#include "core/error.h"
#include "device/device.h"

namespace lily {

View View::slice(size_t offset, size_t size) const {
  if (offset > size_bytes || size > size_bytes - offset) {
    throw InvalidInput("view: bytes [" + grouped(offset) + ", +" + grouped(size) +
                       ") leave a view of " + grouped(size_bytes) + " bytes");
  }
  return View(buffer, offset_bytes + offset, size);
}

void Step::add(Dispatch dispatch) {
  for (const Binding& binding : dispatch.bindings) {
    if (!binding.view)
      throw InvalidInput("a step: kernel '" + dispatch.kernel + "' has an empty binding");
  }
  prepared_.reset();
  const auto conflicts = [&](const Binding& binding) {
    const size_t begin = binding.view.offset_bytes, end = begin + binding.view.size_bytes;
    return std::any_of(since_barrier_.begin(), since_barrier_.end(), [&](const Touched& earlier) {
      return earlier.buffer == binding.view.buffer.get() && earlier.begin < end &&
             begin < earlier.end && (earlier.written || binding.access != Access::in);
    });
  };
  for (const Binding& binding : dispatch.bindings) {
    if (conflicts(binding)) dispatch.barrier_before = true;
  }
  if (dispatch.barrier_before) since_barrier_.clear();
  for (const Binding& binding : dispatch.bindings) {
    const size_t begin = binding.view.offset_bytes;
    since_barrier_.push_back({binding.view.buffer.get(), begin, begin + binding.view.size_bytes,
                              binding.access != Access::in});
  }
  dispatches_.push_back(std::move(dispatch));
}

void Step::clear() {
  prepared_.reset();
  dispatches_.clear();
  since_barrier_.clear();
}

std::string Step::describe() const {
  std::string text;
  for (const Dispatch& dispatch : dispatches_) {
    text += dispatch.barrier_before ? "| " : "  ";
    text += dispatch.kernel + dispatch.grid.variant;
    const Grid& grid = dispatch.grid;
    text += " [" + std::to_string(grid.groups[0]) + "x" + std::to_string(grid.groups[1]) + "x" +
            std::to_string(grid.groups[2]) + " of " + std::to_string(grid.threads[0]) + "]";
    for (const Binding& binding : dispatch.bindings) {
      const char* access = binding.access == Access::in    ? " in "
                           : binding.access == Access::out ? " out "
                                                           : " inout ";
      text += access + std::to_string(binding.view.size_bytes);
    }
    text += "\n";
  }
  return text;
}

size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::u32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::u32: return "u32";
    case DType::u8: return "u8";
  }
  return "?";
}

}  // namespace lily
