// See fake_cuda.h.
#include "fake_cuda.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

using namespace lily::cuda;
using lily::test::fake_cuda;
using lily::test::FakeLaunch;

namespace lily::cuda {

struct CUctx_st {};
struct CUmod_st {
  std::string text;
};
struct CUfunc_st {
  std::string name;
  unsigned threads;  // that it must be launched with; 0: any
};
struct CUstream_st {
  std::deque<std::function<void()>> work;
  uint64_t done = 0;  // of its work, so far
};
struct CUevent_st {
  CUstream stream = nullptr;  // where it was recorded last
  uint64_t place = 0;         // in the order of that stream's work
};
struct CUgraphNode_st {
  FakeLaunch launch;
  bool waits = false;  // for the node before it
};
struct CUgraph_st {
  std::deque<CUgraphNode_st> nodes;
};
struct CUgraphExec_st {
  std::vector<FakeLaunch> launches;
};

}  // namespace lily::cuda

namespace {

constexpr CUresult kInvalidPtx = 218, kInvalidContext = 201, kNotFound = 500;
constexpr CUresult kIllegalAddress = 700;
CUctx_st the_context;
std::recursive_mutex the_lock;
thread_local CUcontext current = nullptr;
CUresult broken = CUDA_SUCCESS;
std::map<CUdeviceptr, size_t> memory;
std::map<std::string, CUfunc_st> functions;

// What every function asks first: is this call to fail?
CUresult enter(const char* symbol, bool needs_context = true) {
  auto& fake = fake_cuda();
  fake.calls.push_back(symbol);
  if (fake.fail_after >= 0 && (fake.fail_symbol.empty() || fake.fail_symbol == symbol)) {
    if (fake.fail_after-- == 0) return fake.fail_with;
  }
  if (needs_context && current == nullptr) return kInvalidContext;
  return needs_context ? broken : CUDA_SUCCESS;
}

template <class T>
T* made() {
  ++fake_cuda().alive;
  return new T();
}
template <class T>
void gone(T* object) {
  --fake_cuda().alive;
  delete object;
}

void run(FakeLaunch launch) {
  if (broken != CUDA_SUCCESS) return;
  fake_cuda().ran.push_back(launch);
  const auto* buffers = launch.arguments.buffers;
  if (launch.kernel == "probe_crash") broken = kIllegalAddress;
  if (launch.kernel != "probe_add") return;
  float value = 0;
  std::memcpy(&value, launch.arguments.params, sizeof value);
  const auto* from = reinterpret_cast<const float*>(buffers[0]);
  auto* to = reinterpret_cast<float*>(buffers[1]);
  for (uint32_t i = 0; i < launch.threads[0]; ++i) to[i] = from[i] + value;
}

FakeLaunch launch_of(CUfunction function, std::array<uint32_t, 3> groups,
                     std::array<uint32_t, 3> threads, void** parameters, bool in_graph) {
  FakeLaunch launch{function->name, groups, threads, {}, in_graph};
  std::memcpy(&launch.arguments, parameters[0], sizeof launch.arguments);
  return launch;
}

// What stands behind .reqntid between a kernel's name and the next kernel.
unsigned required_threads(const std::string& text, const char* kernel) {
  const size_t begin = text.find(std::string(kernel) + "(");
  if (begin == text.npos) return 0;
  const size_t found = text.find(".reqntid", begin);
  if (found == text.npos || found > text.find(".entry", begin)) return 0;
  return static_cast<unsigned>(std::atoi(text.c_str() + found + std::strlen(".reqntid")));
}

// Runs what was put on the stream before it had `end` pieces of work.
void drain(CUstream stream, uint64_t end = UINT64_MAX) {
  while (!stream->work.empty() && stream->done < end) {
    stream->work.front()();
    stream->work.pop_front();
    ++stream->done;
  }
}

}  // namespace

namespace lily::test {

FakeCuda& fake_cuda() {
  static FakeCuda fake;
  return fake;
}

void reset_fake_cuda() {
  fake_cuda() = FakeCuda();
  functions.clear();
  broken = CUDA_SUCCESS;
}

}  // namespace lily::test

#define FAKE(symbol) extern "C" LILY_FAKE_EXPORT CUresult symbol
// The driver is safe for threads, so its stand-in is.
#define LOCK const std::lock_guard lock(the_lock);
#define ENTER(symbol, ...) \
  LOCK if (const CUresult result = enter(#symbol, ##__VA_ARGS__)) { return result; }

FAKE(cuGetErrorName)(CUresult result, const char** name) {
  const std::map<CUresult, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},     {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {218, "CUDA_ERROR_INVALID_PTX"},     {500, "CUDA_ERROR_NOT_FOUND"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}};
  const auto found = names.find(result);
  if (found == names.end()) return CUDA_ERROR_INVALID_VALUE;
  *name = found->second;
  return CUDA_SUCCESS;
}
FAKE(cuGetErrorString)(CUresult, const char** text) {
  *text = "as the fake says";
  return CUDA_SUCCESS;
}
FAKE(cuInit)(unsigned) { LOCK return enter("cuInit", false); }
FAKE(cuDriverGetVersion)(int* version) {
  ENTER(cuDriverGetVersion, false)
  *version = 13000;
  return CUDA_SUCCESS;
}
FAKE(cuDeviceGet)(CUdevice* device, int ordinal) {
  ENTER(cuDeviceGet, false)
  *device = ordinal;
  return CUDA_SUCCESS;
}
FAKE(cuDeviceGetCount)(int* count) {
  ENTER(cuDeviceGetCount, false)
  *count = fake_cuda().devices;
  return CUDA_SUCCESS;
}
FAKE(cuDeviceGetName)(char* name, int size, CUdevice) {
  ENTER(cuDeviceGetName, false)
  std::strncpy(name, "Fake GPU", static_cast<size_t>(size));
  return CUDA_SUCCESS;
}
FAKE(cuDeviceGetAttribute)(int* value, int which, CUdevice) {
  ENTER(cuDeviceGetAttribute, false)
  const std::map<int, int> values = {{16, 132}, {75, fake_cuda().major}, {76, 0}};
  *value = values.at(which);
  return CUDA_SUCCESS;
}
FAKE(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice) {
  ENTER(cuDevicePrimaryCtxRetain, false)
  ++fake_cuda().alive;
  *context = &the_context;
  return CUDA_SUCCESS;
}
FAKE(cuDevicePrimaryCtxRelease_v2)(CUdevice) {
  LOCK

      -- fake_cuda()
          .alive;
  return enter("cuDevicePrimaryCtxRelease_v2", false);
}
FAKE(cuCtxSetCurrent)(CUcontext context) {
  ENTER(cuCtxSetCurrent, false)
  current = context;
  return CUDA_SUCCESS;
}

FAKE(cuMemGetInfo_v2)(size_t* available, size_t* total) {
  ENTER(cuMemGetInfo_v2)
  *total = fake_cuda().memory_bytes;
  *available = *total - fake_cuda().bytes_in_use;
  return CUDA_SUCCESS;
}
FAKE(cuMemAlloc_v2)(CUdeviceptr* address, size_t bytes) {
  ENTER(cuMemAlloc_v2)
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > fake_cuda().memory_bytes - fake_cuda().bytes_in_use) return CUDA_ERROR_OUT_OF_MEMORY;
  void* block = std::malloc(bytes);
  std::memset(block, 0xCD, bytes);
  *address = reinterpret_cast<CUdeviceptr>(block);
  memory[*address] = bytes;
  ++fake_cuda().alive;
  fake_cuda().bytes_in_use += bytes;
  return CUDA_SUCCESS;
}
FAKE(cuMemFree_v2)(CUdeviceptr address) {
  LOCK

  fake_cuda()
      .bytes_in_use -= memory.at(address);
  memory.erase(address);
  --fake_cuda().alive;
  std::free(reinterpret_cast<void*>(address));
  return enter("cuMemFree_v2");
}
FAKE(cuMemAllocHost_v2)(void** address, size_t bytes) {
  ENTER(cuMemAllocHost_v2)
  *address = std::malloc(bytes);
  ++fake_cuda().alive;
  return CUDA_SUCCESS;
}
FAKE(cuMemFreeHost)(void* address) {
  LOCK

      std::free(address);
  --fake_cuda().alive;
  return enter("cuMemFreeHost");
}
FAKE(cuMemsetD8Async)(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  ENTER(cuMemsetD8Async)
  stream->work.push_back([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return CUDA_SUCCESS;
}
FAKE(cuMemcpyHtoDAsync_v2)(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync_v2)
  stream->work.push_back([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  return CUDA_SUCCESS;
}
FAKE(cuMemcpyDtoHAsync_v2)(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync_v2)
  stream->work.push_back([=] { std::memcpy(to, reinterpret_cast<void*>(from), bytes); });
  return CUDA_SUCCESS;
}
FAKE(cuMemcpyDtoDAsync_v2)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyDtoDAsync_v2)
  stream->work.push_back(
      [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
  return CUDA_SUCCESS;
}

FAKE(cuModuleLoadDataEx)(CUmodule* module, const void* text, unsigned count, int* options,
                         void** values) {
  ENTER(cuModuleLoadDataEx)
  const char* ptx = static_cast<const char*>(text);
  if (std::strstr(ptx, "nonsense") != nullptr) {
    if (count == 2 && options[0] == CU_JIT_ERROR_LOG_BUFFER) {
      std::strncpy(static_cast<char*>(values[0]), "line 1: 'nonsense' is no instruction",
                   reinterpret_cast<size_t>(values[1]));
    }
    return kInvalidPtx;
  }
  *module = made<CUmod_st>();
  (*module)->text = ptx;
  return CUDA_SUCCESS;
}
FAKE(cuModuleUnload)(CUmodule module) {
  LOCK

      gone(module);
  return enter("cuModuleUnload");
}
FAKE(cuModuleGetFunction)(CUfunction* function, CUmodule module, const char* name) {
  ENTER(cuModuleGetFunction)
  if (module->text.find(name) == std::string::npos) return kNotFound;
  const CUfunc_st found{name, required_threads(module->text, name)};
  *function = &functions.try_emplace(name, found).first->second;
  return CUDA_SUCCESS;
}
FAKE(cuFuncGetAttribute)(int* value, int which, CUfunction function) {
  ENTER(cuFuncGetAttribute)
  if (which == CU_FUNC_ATTRIBUTE_PTX_VERSION) {
    *value = fake_cuda().ptx_version;
    return CUDA_SUCCESS;
  }
  *value = function->threads ? static_cast<int>(function->threads) : 1024;
  return CUDA_SUCCESS;
}
FAKE(cuLaunchKernel)(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned tx,
                     unsigned ty, unsigned tz, unsigned, CUstream stream, void** parameters,
                     void**) {
  ENTER(cuLaunchKernel)
  if (gx * gy * gz == 0) return CUDA_ERROR_INVALID_VALUE;
  if (function->threads != 0 && tx * ty * tz != function->threads) return CUDA_ERROR_INVALID_VALUE;
  const FakeLaunch launch = launch_of(function, {gx, gy, gz}, {tx, ty, tz}, parameters, false);
  stream->work.push_back([=] { run(launch); });
  return CUDA_SUCCESS;
}

FAKE(cuStreamCreate)(CUstream* stream, unsigned) {
  ENTER(cuStreamCreate)
  *stream = made<CUstream_st>();
  return CUDA_SUCCESS;
}
FAKE(cuStreamDestroy_v2)(CUstream stream) {
  LOCK

      gone(stream);
  return enter("cuStreamDestroy_v2");
}
FAKE(cuStreamSynchronize)(CUstream stream) {
  LOCK

      if (const CUresult result = enter("cuStreamSynchronize")) {
    stream->work.clear();  // a stream that failed runs nothing more
    return result;
  }
  drain(stream);
  return broken;
}
FAKE(cuEventCreate)(CUevent* event, unsigned) {
  ENTER(cuEventCreate)
  *event = made<CUevent_st>();
  return CUDA_SUCCESS;
}
FAKE(cuEventDestroy_v2)(CUevent event) {
  LOCK

      gone(event);
  return enter("cuEventDestroy_v2");
}
FAKE(cuEventRecord)(CUevent event, CUstream stream) {
  ENTER(cuEventRecord)
  event->stream = stream;
  event->place = stream->done + stream->work.size();
  return CUDA_SUCCESS;
}
FAKE(cuEventSynchronize)(CUevent event) {
  ENTER(cuEventSynchronize)
  if (event->stream != nullptr) drain(event->stream, event->place);
  return broken;
}
FAKE(cuEventElapsedTime)(float* milliseconds, CUevent begin, CUevent end) {
  ENTER(cuEventElapsedTime)
  if (begin->stream == nullptr || end->stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *milliseconds = 0.25f;
  return CUDA_SUCCESS;
}
FAKE(cuGraphCreate)(CUgraph* graph, unsigned) {
  ENTER(cuGraphCreate)
  *graph = made<CUgraph_st>();
  return CUDA_SUCCESS;
}
FAKE(cuGraphDestroy)(CUgraph graph) {
  LOCK

      gone(graph);
  return enter("cuGraphDestroy");
}
FAKE(cuGraphAddKernelNode_v2)(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS* p) {
  ENTER(cuGraphAddKernelNode_v2)
  if (count > 1) return CUDA_ERROR_INVALID_VALUE;
  if (count == 1 && before[0] != &graph->nodes.back()) return CUDA_ERROR_INVALID_VALUE;
  graph->nodes.push_back(
      {launch_of(p->func, {p->gridDimX, p->gridDimY, p->gridDimZ},
                 {p->blockDimX, p->blockDimY, p->blockDimZ}, p->kernelParams, true),
       count == 1});
  *node = &graph->nodes.back();
  return CUDA_SUCCESS;
}
FAKE(cuGraphAddDependencies_v2)(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                const CUgraphEdgeData* edge, size_t count) {
  ENTER(cuGraphAddDependencies_v2)
  const size_t nodes = graph->nodes.size();
  if (count != 1 || nodes < 2 || *from != &graph->nodes[nodes - 2] || *to != &graph->nodes.back()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  graph->nodes.back().waits = true;
  graph->nodes.back().launch.early = edge->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
                                     edge->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  return CUDA_SUCCESS;
}
FAKE(cuGraphInstantiateWithFlags)(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  ENTER(cuGraphInstantiateWithFlags)
  // The chain must be one: each node after the one before it.
  for (size_t at = 1; at < graph->nodes.size(); ++at) {
    if (!graph->nodes[at].waits) return CUDA_ERROR_INVALID_VALUE;
  }
  *executable = made<CUgraphExec_st>();
  for (const CUgraphNode_st& node : graph->nodes) (*executable)->launches.push_back(node.launch);
  return CUDA_SUCCESS;
}
FAKE(cuGraphExecDestroy)(CUgraphExec executable) {
  LOCK

      gone(executable);
  return enter("cuGraphExecDestroy");
}
FAKE(cuGraphLaunch)(CUgraphExec executable, CUstream stream) {
  ENTER(cuGraphLaunch)
  // The driver keeps what is in flight.
  stream->work.push_back([launches = executable->launches] {
    for (const FakeLaunch& launch : launches) run(launch);
  });
  return CUDA_SUCCESS;
}
