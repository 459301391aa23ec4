// See kernels.h.
#include "device/cuda/kernels.h"

#include <cctype>
#include <cstdint>

#include "core/error.h"

namespace lily::cuda {
namespace {

// PTX for these and later has the instructions by which kernels wait (metal/clang/nvidia.h).
constexpr int kEarlyPtxVersion = 90;

// Calls each(name) for the kernels of a PTX text: what stands behind every ".entry".
template <class Each>
void for_kernels(std::string_view text, Each&& each) {
  constexpr std::string_view kEntry = ".entry";
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
  };
  for (size_t at = text.find(kEntry); at != text.npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    size_t begin = at;
    while (begin < text.size() && is_space(text[begin])) ++begin;
    size_t end = begin;
    while (end < text.size() && is_name(text[end])) ++end;
    if (begin > at && end > begin) each(text.substr(begin, end - begin));
  }
}

}  // namespace

Kernels::Kernels(std::shared_ptr<const Context> context, std::span<const PtxModule> modules)
    : context_(std::move(context)) {
  for (const PtxModule& ptx : modules) {
    for_kernels(ptx.text, [&](std::string_view name) {
      if (module_of_.emplace(name, modules_.size()).second) return;
      throw DeviceError("cuda: kernel '" + std::string(name) + "' stands twice in the modules");
    });
    modules_.push_back({ptx, {}});
  }
}

Kernels::~Kernels() {
  const bool can_unload = context_->try_enter();
  for (Module& module : modules_) {
    if (!can_unload) module.loaded.forget();
  }
}

const Kernel& Kernels::find(const std::string& name) {
  const auto known = found_.find(name);
  if (known != found_.end()) return known->second;
  const auto module = module_of_.find(name);
  if (module == module_of_.end()) {
    throw InvalidInput("cuda: there is no kernel named '" + name + "'");
  }
  const Driver& driver = context_->driver();
  const std::string about = " of kernel '" + name + "'";
  Kernel kernel{};
  driver.call_about(about, driver.module_get_function, &kernel.function,
                    load(modules_[module->second]), name.c_str());
  int threads = 0;
  driver.call_about(about, driver.function_get_attribute, &threads,
                    int{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK}, kernel.function);
  kernel.max_threads = static_cast<unsigned>(threads);
  int ptx_version = 0;
  driver.call_about(about, driver.function_get_attribute, &ptx_version,
                    int{CU_FUNC_ATTRIBUTE_PTX_VERSION}, kernel.function);
  kernel.begins_early = ptx_version >= kEarlyPtxVersion;
  return found_.emplace(name, kernel).first->second;
}

CUmodule Kernels::load(Module& module) const {
  if (module.loaded) return module.loaded.get();
  std::vector<char> log(size_t{16} << 10, '\0');
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(uintptr_t{log.size() - 1})};
  const Driver& driver = context_->driver();
  CUmodule loaded = nullptr;
  const CUresult result = driver.module_load.address(&loaded, module.ptx.text, 2u, options, values);
  if (result != CUDA_SUCCESS) {
    driver.fail(std::string("cuModuleLoadDataEx of ") + module.ptx.name + ".ptx", result,
                log.data());
  }
  module.loaded = Handle<CUmodule>(loaded, driver.module_unload);
  return loaded;
}

}  // namespace lily::cuda
