// Finds a device by name. The only file above the device folders that knows which devices exist.
#include "core/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"
#include "device/metal/metal_device.h"
#if defined(LILY_HAS_FIBERS)
#include "device/fibers/fiber_device.h"
#endif

namespace lily {
namespace {

std::shared_ptr<Device> make_first_device(const DeviceOptions& options) {
  if (!metal::embedded_sources().empty()) {
    try {
      return make_metal_device({.check = options.check});
    } catch (const DeviceError&) {
      // As below: a Mac without a GPU that serves, a virtual one say.
    }
  }
  // A build without CUDA kernels must not load the driver to find that out.
  if (!cuda::embedded_ptx().empty()) {
    try {
      return make_cuda_device();
    } catch (const DeviceError&) {
      // No GPU, or none that serves: that is no failure of "auto".
    }
  }
  return make_cpu_device(options);
}

}  // namespace

std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options) {
  if (name == "auto") return make_first_device(options);
  if (name == "cpu") return make_cpu_device(options);
  if (name == "cuda") return make_cuda_device();
  if (name == "metal") return make_metal_device({.check = options.check});
  if (name == "fibers") {
#if defined(LILY_HAS_FIBERS)
    return make_fiber_device(options);
#else
    throw DeviceError(
        "device 'fibers': this build of Lily has none; it is for tests, and built with "
        "-DLILY_FIBERS=ON where clang 22 is there");
#endif
  }
  throw InvalidInput("device '" + std::string(name) +
                     "' is not known; expected 'auto', 'metal', 'cuda' or 'cpu'");
}

}  // namespace lily
