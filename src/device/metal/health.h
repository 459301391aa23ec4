// What the machine says of itself now: heat and memory. Knows no device.
#pragma once

#include <string>

namespace lily::metal {

// "nominal", "fair", "serious" or "critical": from "serious" on the system slows the GPU down.
std::string thermal_state();
// "normal", "warning" or "critical"; "unknown" where the system does not say.
std::string memory_pressure();

}  // namespace lily::metal
