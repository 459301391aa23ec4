// See health.h.
#include "device/metal/health.h"

#include <sys/sysctl.h>

#include "device/metal/metal_cpp.h"

namespace lily::metal {

std::string thermal_state() {
  const Pool pool;
  switch (NS::ProcessInfo::processInfo()->thermalState()) {
    case NS::ProcessInfoThermalStateNominal: return "nominal";
    case NS::ProcessInfoThermalStateFair: return "fair";
    case NS::ProcessInfoThermalStateSerious: return "serious";
    case NS::ProcessInfoThermalStateCritical: return "critical";
  }
  return "unknown";
}

std::string memory_pressure() {
  int level = 0;
  size_t bytes = sizeof level;
  if (sysctlbyname("kern.memorystatus_vm_pressure_level", &level, &bytes, nullptr, 0) != 0) {
    return "unknown";
  }
  // The levels of dispatch/source.h: DISPATCH_MEMORYPRESSURE_NORMAL, _WARN, _CRITICAL.
  return level >= 4 ? "critical" : level >= 2 ? "warning" : "normal";
}

}  // namespace lily::metal
