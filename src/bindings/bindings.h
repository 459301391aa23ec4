// The pieces of the Python module lily._native. Only the files of this folder see Python.
#pragma once

#include <nanobind/nanobind.h>

namespace lily {

// Makes every exception of core/error.h arrive in Python as its twin in lily.errors.
void register_errors(nanobind::module_& module);
// lily._native.kernels: devices, tensors and single operations, for tests and benchmarks.
void bind_kernels(nanobind::module_& module);
// Engine and sessions.
void bind_engine(nanobind::module_& module);
// The privacy gate's encoder.
void bind_encoder(nanobind::module_& module);

}  // namespace lily
