// The parameters of the probe kernels, read by them and by test_runner.cpp.
#pragma once

#include "params.h"

// What a probe does wrong, or not.
struct ProbeParams {
  uint32_t mode, count;
};

enum { kProbeThreads = 128, kSimdResults = 24 };
