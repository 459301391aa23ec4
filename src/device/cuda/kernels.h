// Finds a kernel by name in the PTX modules, and has the driver compile a module when the first of
// its kernels is asked for. Knows no dispatch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/cuda/context.h"
#include "device/cuda/ptx.h"

namespace lily::cuda {

struct Kernel {
  CUfunction function;
  unsigned max_threads;  // in a group, as the driver compiled it
  // Waits by itself for the kernel before it, and may so begin while that one ends.
  bool begins_early;
};

class Kernels {
 public:
  // The text must outlive this. Throws DeviceError when two modules have a kernel of one name.
  Kernels(std::shared_ptr<const Context> context, std::span<const PtxModule> modules);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Throws InvalidInput for a name that no module has, and DeviceError, with what the compiler
  // said, for a module that does not compile. The context must be current.
  const Kernel& find(const std::string& name);

 private:
  struct Module {
    PtxModule ptx;
    Handle<CUmodule> loaded;
  };
  CUmodule load(Module& module) const;

  std::shared_ptr<const Context> context_;
  std::vector<Module> modules_;
  std::unordered_map<std::string_view, size_t> module_of_;  // names point into the text
  std::unordered_map<std::string, Kernel> found_;
};

}  // namespace lily::cuda
