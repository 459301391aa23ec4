// The nonlinearities that several families share. Knows no kernel.
#pragma once

#include "kernel.h"

namespace lily {

inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
inline float silu(float x) { return x / (1.0f + exp(-x)); }

}  // namespace lily
