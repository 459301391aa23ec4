// See launches.h.
#include "device/cuda/launches.h"

#include <cstring>

#include "core/error.h"

namespace lily::cuda {
namespace {

std::string extents(const uint32_t (&of)[3]) {
  return std::to_string(of[0]) + "x" + std::to_string(of[1]) + "x" + std::to_string(of[2]);
}

uint64_t address_of(const Launch& launch, const Context& context, const View& view) {
  const auto* memory = dynamic_cast<const DeviceMemory*>(view.buffer.get());
  if (memory == nullptr || &memory->context() != &context) {
    throw InvalidInput("cuda: " + describe(launch) + " is bound to memory of another device");
  }
  return memory->address() + view.offset_bytes;
}

void check_fits(const Launch& launch, const Dispatch& dispatch, unsigned max_threads) {
  const auto require = [&](const char* what, uint64_t given, uint64_t most) {
    if (given <= most) return;
    throw InvalidInput("cuda: " + describe(launch) + " has " + grouped(given) + " " + what +
                       ", expected up to " + grouped(most));
  };
  require("bindings", dispatch.bindings.size(), Arguments::kMostBuffers);
  require("bytes of parameters", dispatch.params.size(), Arguments::kMostParamBytes);
  const uint32_t* threads = launch.threads;
  require("threads in a group", uint64_t{threads[0]} * threads[1] * threads[2], max_threads);
}

Launch resolve(const Context& context, Kernels& kernels, const Dispatch& dispatch) {
  Launch launch{};
  launch.kernel = dispatch.kernel + dispatch.grid.variant;
  std::memcpy(launch.groups, dispatch.grid.groups, sizeof launch.groups);
  std::memcpy(launch.threads, dispatch.grid.threads, sizeof launch.threads);
  const Kernel& kernel = kernels.find(launch.kernel);
  launch.function = kernel.function;
  launch.begins_early = kernel.begins_early;
  check_fits(launch, dispatch, kernel.max_threads);
  for (size_t at = 0; at < dispatch.bindings.size(); ++at) {
    launch.arguments.buffers[at] = address_of(launch, context, dispatch.bindings[at].view);
  }
  if (!dispatch.params.empty()) {
    std::memcpy(launch.arguments.params, dispatch.params.data(), dispatch.params.size());
  }
  return launch;
}

// `to` is launched as soon as all groups of `from` run, and waits by itself for what they write.
void add_early_edge(const Driver& driver, CUgraph graph, CUgraphNode from, CUgraphNode to,
                    const Launch& launch) {
  CUgraphEdgeData edge{};
  edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  driver.call_about(" to " + describe(launch), driver.graph_add_edges, graph, &from, &to, &edge,
                    size_t{1});
}

}  // namespace

std::string describe(const Launch& launch) {
  return "kernel '" + launch.kernel + "' [" + extents(launch.groups) + " groups of " +
         extents(launch.threads) + "]";
}

CudaStep::CudaStep(std::shared_ptr<const Context> context, Kernels& kernels, const Step& step)
    : context_(std::move(context)) {
  launches_.reserve(step.dispatches().size());
  for (const Dispatch& dispatch : step.dispatches()) {
    launches_.push_back(resolve(*context_, kernels, dispatch));
  }
}

CudaStep::~CudaStep() {
  if (graph_ && !context_->try_enter()) graph_.forget();
}

CUresult CudaStep::enqueue(const Launch& launch) const {
  Arguments arguments = launch.arguments;
  void* parameters[] = {&arguments};
  const uint32_t *groups = launch.groups, *threads = launch.threads;
  return context_->driver().launch_kernel.address(launch.function, groups[0], groups[1], groups[2],
                                                  threads[0], threads[1], threads[2], 0u,
                                                  context_->stream(), parameters, nullptr);
}

CUgraphExec CudaStep::graph() {
  if (graph_) return graph_.get();
  const Driver& driver = context_->driver();
  CUgraph made = nullptr;
  driver.call(driver.graph_create, &made, 0u);
  const Handle<CUgraph> graph(made, driver.graph_destroy);
  CUgraphNode last = nullptr;
  for (Launch& launch : launches_) {
    void* parameters[] = {&launch.arguments};
    const uint32_t *groups = launch.groups, *threads = launch.threads;
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = launch.function;
    node.gridDimX = groups[0], node.gridDimY = groups[1], node.gridDimZ = groups[2];
    node.blockDimX = threads[0], node.blockDimY = threads[1], node.blockDimZ = threads[2];
    node.kernelParams = parameters;
    // A chain: every kernel after the one before it, as on the stream. One that waits by itself is
    // added without, and its edge afterwards.
    const CUgraphNode before = last;
    const bool early = before && launch.begins_early && driver.graph_add_edges.address != nullptr;
    driver.call_about(" of " + describe(launch), driver.graph_add_kernel, &last, graph.get(),
                      &before, before && !early ? size_t{1} : size_t{0}, &node);
    if (early) add_early_edge(driver, graph.get(), before, last, launch);
  }
  CUgraphExec executable = nullptr;
  driver.call(driver.graph_instantiate, &executable, graph.get(), 0ull);
  graph_ = Handle<CUgraphExec>(executable, driver.graph_exec_destroy);
  return executable;
}

}  // namespace lily::cuda
