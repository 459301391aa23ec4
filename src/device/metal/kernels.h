// Finds a kernel by name: in the metallib, or in the library that its family's source compiles to;
// and makes the pipeline that the GPU runs. Pipelines are made once in the life of a machine's
// system: an archive in the user's cache folder keeps them. Knows no dispatch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "device/metal/gpu.h"
#include "device/metal/sources.h"

namespace lily::metal {

// One kernel, ready to run. Lives as long as Kernels.
struct Kernel {
  std::string name;
  uint32_t number;   // counted from 0, as they were made
  uint32_t threads;  // in a group, for which it was compiled
  Ref<MTL::ComputePipelineState> pipeline;
};

struct KernelPlaces {
  std::span<const KernelSource> sources;
  // Empty: compile the sources. It has no tensor ops, whose sources are compiled in any case.
  std::filesystem::path metallib;
  std::filesystem::path cache;  // a folder; empty: keep nothing
};

class Kernels {
 public:
  Kernels(std::shared_ptr<const Gpu> gpu, KernelPlaces places);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // From any thread; waits where another is making the same kernel. Throws InvalidInput for a name
  // that no library has and for threads that the kernel cannot have, and DeviceError, with what the
  // compiler said, for a library that does not compile.
  const Kernel& find(const std::string& name, uint32_t threads);
  // Makes it on another thread, if it is not there yet. Errors are left to find().
  void prewarm(const std::string& name, uint32_t threads);

  // "lily.metallib" or "compiled from source", and where the archive is; for people.
  std::string describe_code() const;
  std::string describe_cache() const;

 private:
  struct Library {
    std::string_view name;
    std::string_view source;  // empty: the metallib
    Ref<MTL::Library> library;
  };
  using Promise = std::promise<std::shared_ptr<const Kernel>>;
  using Future = std::shared_future<std::shared_ptr<const Kernel>>;

  void open_archive();
  void save_archive();
  std::shared_ptr<const Kernel> make(const std::string& name, uint32_t threads);
  Ref<MTL::Function> find_function(const std::string& name);
  MTL::Library& load(Library& library);
  Ref<MTL::ComputePipelineState> make_pipeline(const MTL::Function& function,
                                               const std::string& name, uint32_t threads);
  void work_off();

  std::shared_ptr<const Gpu> gpu_;
  const KernelPlaces places_;
  std::filesystem::path archive_path_;

  std::mutex libraries_mutex_;
  std::vector<Library> libraries_;

  std::mutex archive_mutex_;
  Ref<MTL::BinaryArchive> archive_;
  bool archive_is_new_ = false;  // it has pipelines that the file has not

  std::mutex found_mutex_;
  std::unordered_map<std::string, Future> found_;
  std::atomic<uint32_t> num_made_{0};

  std::mutex queue_mutex_;
  std::condition_variable queue_changed_;
  std::deque<std::pair<std::string, uint32_t>> queue_;
  bool is_ending_ = false;
  std::thread worker_;  // begins with the first prewarm
};

}  // namespace lily::metal
