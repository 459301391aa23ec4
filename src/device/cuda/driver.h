// The NVIDIA driver's library, found when the program runs: no toolkit is needed to build or to
// run. Declares the few functions that Lily calls, turns their results into DeviceError, and owns
// their handles. Knows no kernel and no buffer.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace lily::cuda {

// As in cuda.h, whose names these are.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;

struct CUDA_KERNEL_NODE_PARAMS {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
  void* kern;
  CUcontext ctx;
};

// How a node of a graph waits for another (CUDA 12.3).
struct CUgraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};
enum : unsigned char { CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1 };
enum : unsigned char { CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1 };

enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
};
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DEFAULT = 0 };
enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};
enum { CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0, CU_FUNC_ATTRIBUTE_PTX_VERSION = 5 };
enum { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };

// One function of the library; its own name is part of every message about it.
template <class... Parameters>
struct Function {
  const char* symbol;
  CUresult (*address)(Parameters...) = nullptr;
};

class Driver {
 public:
  // Opens the library and finds every function. Throws DeviceError that says what was looked for.
  explicit Driver(const std::string& library);
  // Never closed: the driver keeps threads of its own.
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Calls, and throws DeviceError "cuda: <function><about>: <error name> (<its text>)".
  template <class... Parameters, class... Arguments>
  void call(const Function<Parameters...>& function, Arguments... arguments) const {
    call_about("", function, arguments...);
  }
  template <class... Parameters, class... Arguments>
  void call_about(const std::string& about, const Function<Parameters...>& function,
                  Arguments... arguments) const {
    const CUresult result = function.address(arguments...);
    if (result != CUDA_SUCCESS) fail(function.symbol + about, result);
  }
  // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string describe(CUresult result) const;
  // Throws as call() does; `log` is what the driver had to say besides.
  [[noreturn]] void fail(const std::string& what, CUresult result,
                         const std::string& log = "") const;

  Function<CUresult, const char**> get_error_name{"cuGetErrorName"};
  Function<CUresult, const char**> get_error_string{"cuGetErrorString"};
  Function<unsigned> init{"cuInit"};
  Function<int*> driver_get_version{"cuDriverGetVersion"};
  Function<CUdevice*, int> device_get{"cuDeviceGet"};
  Function<int*> device_get_count{"cuDeviceGetCount"};
  Function<char*, int, CUdevice> device_get_name{"cuDeviceGetName"};
  Function<int*, int, CUdevice> device_get_attribute{"cuDeviceGetAttribute"};
  Function<CUcontext*, CUdevice> primary_context_retain{"cuDevicePrimaryCtxRetain"};
  Function<CUdevice> primary_context_release{"cuDevicePrimaryCtxRelease_v2"};
  Function<CUcontext> context_set_current{"cuCtxSetCurrent"};

  Function<size_t*, size_t*> memory_info{"cuMemGetInfo_v2"};
  Function<CUdeviceptr*, size_t> memory_alloc{"cuMemAlloc_v2"};
  Function<CUdeviceptr> memory_free{"cuMemFree_v2"};
  Function<void**, size_t> host_memory_alloc{"cuMemAllocHost_v2"};
  Function<void*> host_memory_free{"cuMemFreeHost"};
  Function<CUdeviceptr, unsigned char, size_t, CUstream> memory_set{"cuMemsetD8Async"};
  Function<CUdeviceptr, const void*, size_t, CUstream> copy_to_device{"cuMemcpyHtoDAsync_v2"};
  Function<void*, CUdeviceptr, size_t, CUstream> copy_to_host{"cuMemcpyDtoHAsync_v2"};
  Function<CUdeviceptr, CUdeviceptr, size_t, CUstream> copy_on_device{"cuMemcpyDtoDAsync_v2"};

  Function<CUmodule*, const void*, unsigned, int*, void**> module_load{"cuModuleLoadDataEx"};
  Function<CUmodule> module_unload{"cuModuleUnload"};
  Function<CUfunction*, CUmodule, const char*> module_get_function{"cuModuleGetFunction"};
  Function<int*, int, CUfunction> function_get_attribute{"cuFuncGetAttribute"};
  Function<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
           CUstream, void**, void**>
      launch_kernel{"cuLaunchKernel"};

  Function<CUstream*, unsigned> stream_create{"cuStreamCreate"};
  Function<CUstream> stream_destroy{"cuStreamDestroy_v2"};
  Function<CUstream> stream_synchronize{"cuStreamSynchronize"};
  Function<CUevent*, unsigned> event_create{"cuEventCreate"};
  Function<CUevent> event_destroy{"cuEventDestroy_v2"};
  Function<CUevent, CUstream> event_record{"cuEventRecord"};
  Function<CUevent> event_synchronize{"cuEventSynchronize"};
  Function<float*, CUevent, CUevent> event_elapsed_time{"cuEventElapsedTime"};
  Function<CUgraph*, unsigned> graph_create{"cuGraphCreate"};
  Function<CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS*>
      graph_add_kernel{"cuGraphAddKernelNode_v2"};
  // Null in drivers before 12.3.
  Function<CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*, size_t>
      graph_add_edges{"cuGraphAddDependencies_v2"};
  Function<CUgraphExec*, CUgraph, unsigned long long> graph_instantiate{
      "cuGraphInstantiateWithFlags"};
  Function<CUgraph> graph_destroy{"cuGraphDestroy"};
  Function<CUgraphExec> graph_exec_destroy{"cuGraphExecDestroy"};
  Function<CUgraphExec, CUstream> graph_launch{"cuGraphLaunch"};

 private:
  void resolve(const std::string& library, void* handle);
};

// Owns one handle of the driver. What the destroying call answers is of no use to anybody.
template <class T>
class Handle {
 public:
  Handle() = default;
  Handle(T value, const Function<T>& destroy) : value_(value), destroy_(&destroy) {}
  Handle(Handle&& other) noexcept
      : value_(std::exchange(other.value_, T())), destroy_(other.destroy_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Handle() {
    if (value_) destroy_->address(value_);
  }
  explicit operator bool() const { return value_ != T(); }
  T get() const { return value_; }
  // Lets go without destroying: in a forked process the driver's handles mean nothing.
  void forget() { value_ = T(); }

 private:
  T value_ = T();
  const Function<T>* destroy_ = nullptr;
};

}  // namespace lily::cuda
