// In builds without the device "fibers" (the thread sanitizer does not know fibers), tests bring
// kernels of their own.
#include "state.h"

namespace lily::simulated {

std::shared_ptr<Executor> default_executor() { return nullptr; }

}  // namespace lily::simulated
