// A Mac's sysctl, of which the simulated one knows the level of memory pressure.
#pragma once

#include <cstddef>

extern "C" int sysctlbyname(const char* name, void* old_value, size_t* old_bytes, void* new_value,
                            size_t new_bytes);
