// Finds a device by name. The only file above the device folders that knows which devices exist.
#include "core/error.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"

namespace lily {

std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options) {
  if (name == "cpu" || name == "auto") return make_cpu_device(options);
  if (name == "metal" || name == "cuda") {
    throw DeviceError("device '" + std::string(name) + "': this build of Lily has no " +
                      std::string(name) + " device; 'cpu' runs everywhere");
  }
  throw InvalidInput("device '" + std::string(name) +
                     "' is not known; expected 'auto', 'metal', 'cuda' or 'cpu'");
}

}  // namespace lily
