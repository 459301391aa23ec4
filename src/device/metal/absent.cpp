// Stands for the Metal device where a build has none. See metal_device.h.
#include "core/error.h"
#include "device/metal/metal_device.h"

namespace lily {

std::span<const metal::KernelSource> metal::embedded_sources() { return {}; }

std::shared_ptr<Device> make_metal_device(const MetalOptions&) {
  throw DeviceError(
      "device 'metal': this build of Lily has no metal device (CMake option LILY_METAL, on for "
      "macOS); 'cpu' runs everywhere");
}

}  // namespace lily
