// See driver.h.
#include "device/cuda/driver.h"

#include <dlfcn.h>

#include "core/error.h"

namespace lily::cuda {
namespace {

template <class... Parameters>
void look_for(void* handle, Function<Parameters...>& function) {
  void* symbol = dlsym(handle, function.symbol);
  function.address = reinterpret_cast<CUresult (*)(Parameters...)>(symbol);
}

template <class... Parameters>
void find(const std::string& library, void* handle, Function<Parameters...>& function) {
  look_for(handle, function);
  if (function.address == nullptr) {
    throw DeviceError("cuda: the driver's library " + library + " has no " + function.symbol +
                      "; a newer NVIDIA driver is needed (12.0 or later)");
  }
}

}  // namespace

Driver::Driver(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw DeviceError("cuda: there is no NVIDIA driver here: looked for " + library + " (" +
                      (reason ? reason : "no reason given") + ")");
  }
  resolve(library, handle);
}

void Driver::resolve(const std::string& library, void* handle) {
  const auto all = [&](auto&... functions) { (find(library, handle, functions), ...); };
  all(get_error_name, get_error_string, init, driver_get_version, device_get, device_get_count,
      device_get_name, device_get_attribute, primary_context_retain, primary_context_release,
      context_set_current, memory_info, memory_alloc, memory_free, host_memory_alloc,
      host_memory_free, memory_set, copy_to_device, copy_to_host, copy_on_device, module_load,
      module_unload, module_get_function, function_get_attribute, launch_kernel, stream_create,
      stream_destroy, stream_synchronize, event_create, event_destroy, event_record,
      event_synchronize, event_elapsed_time, graph_create, graph_add_kernel, graph_instantiate,
      graph_destroy, graph_exec_destroy, graph_launch);
  look_for(handle, graph_add_edges);
}

std::string Driver::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (get_error_name.address(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return "error " + std::to_string(result);
  }
  get_error_string.address(result, &text);
  return text ? std::string(name) + " (" + text + ")" : std::string(name);
}

void Driver::fail(const std::string& what, CUresult result, const std::string& log) const {
  throw DeviceError("cuda: " + what + ": " + describe(result) + (log.empty() ? "" : "\n" + log));
}

}  // namespace lily::cuda
