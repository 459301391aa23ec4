// See kernels.h.
#include "device/metal/kernels.h"

#include <unistd.h>

#include <system_error>

#include "core/error.h"

namespace lily::metal {
namespace {

constexpr uint32_t kSimdgroup = 32;  // what metal/ is written for

std::string_view family_of(std::string_view name) { return name.substr(0, name.find('_')); }

// Whether a source is in Metal 4.
bool is_for_tensor_units(std::string_view source) { return source.starts_with("tensor_ops/"); }
bool may_hold(std::string_view source, std::string_view kernel) {
  const bool is_tensor = kernel.ends_with("_tensor");
  if (is_for_tensor_units(source)) return is_tensor;
  return !is_tensor && family_of(source) == family_of(kernel);
}

// FNV-1a: short, and the same in every process.
void digest(uint64_t& hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
}

// What a compiled pipeline depends on: the kernels, the system with its compiler, and the GPU.
std::string archive_name(const Gpu& gpu, std::span<const KernelSource> sources) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const KernelSource& source : sources) digest(hash, source.text);
  digest(hash, gpu.os());
  digest(hash, gpu.name());
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return "kernels-" + std::string(text) + ".binarchive";
}

NS::URL* url_of(const std::filesystem::path& path) {
  return NS::URL::fileURLWithPath(text_of(path.string()));
}

}  // namespace

Kernels::Kernels(std::shared_ptr<const Gpu> gpu, KernelPlaces places)
    : gpu_(std::move(gpu)), places_(std::move(places)) {
  const bool has_metallib = !places_.metallib.empty();
  if (has_metallib) libraries_.push_back({"metallib", {}, {}});
  for (const KernelSource& source : places_.sources) {
    if (has_metallib && !is_for_tensor_units(source.name)) continue;
    libraries_.push_back({source.name, source.text, {}});
  }
  open_archive();
}

Kernels::~Kernels() {
  {
    std::lock_guard lock(queue_mutex_);
    is_ending_ = true;
  }
  queue_changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  const Pool pool;
  save_archive();
}

std::string Kernels::describe_code() const {
  return places_.metallib.empty() ? "compiled from source" : places_.metallib.string();
}
std::string Kernels::describe_cache() const { return archive_ ? archive_path_.string() : "none"; }

// An archive only saves time: whatever is wrong with it, kernels are compiled.
void Kernels::open_archive() {
  if (places_.cache.empty()) return;
  const Pool pool;
  archive_path_ = places_.cache / archive_name(*gpu_, places_.sources);
  const auto descriptor = NS::TransferPtr(MTL::BinaryArchiveDescriptor::alloc()->init());
  std::error_code ignored;
  NS::Error* error = nullptr;
  if (std::filesystem::exists(archive_path_, ignored)) {
    descriptor->setUrl(url_of(archive_path_));
    archive_ = NS::TransferPtr(gpu_->device().newBinaryArchive(descriptor.get(), &error));
    if (archive_) return;
    descriptor->setUrl(nullptr);  // damaged: begin anew
  }
  archive_ = NS::TransferPtr(gpu_->device().newBinaryArchive(descriptor.get(), &error));
}

// Written beside and moved there, so that no process ever reads half a file.
void Kernels::save_archive() {
  std::lock_guard lock(archive_mutex_);
  if (!archive_ || !archive_is_new_) return;
  archive_is_new_ = false;
  std::error_code failed;
  std::filesystem::create_directories(places_.cache, failed);
  const std::filesystem::path fresh =
      archive_path_.string() + "." + std::to_string(getpid()) + ".part";
  NS::Error* error = nullptr;
  if (archive_->serializeToURL(url_of(fresh), &error)) {
    std::filesystem::rename(fresh, archive_path_, failed);
  }
  std::filesystem::remove(fresh, failed);
}

const Kernel& Kernels::find(const std::string& name, uint32_t threads) {
  Promise promise;
  Future future;
  bool is_mine = false;
  {
    std::lock_guard lock(found_mutex_);
    auto& known = found_[name];
    is_mine = !known.valid();
    if (is_mine) known = promise.get_future().share();
    future = known;
  }
  if (is_mine) {
    try {
      promise.set_value(make(name, threads));
    } catch (...) {
      promise.set_exception(std::current_exception());
      std::lock_guard lock(found_mutex_);
      found_.erase(name);  // the next caller tries again
    }
  }
  const Kernel& kernel = *future.get();
  if (kernel.threads == threads) return kernel;
  throw InvalidInput("metal: kernel '" + name + "' has " + grouped(kernel.threads) +
                     " threads in a group, " + grouped(threads) + " were given");
}

std::shared_ptr<const Kernel> Kernels::make(const std::string& name, uint32_t threads) {
  const Pool pool;
  const Ref<MTL::Function> function = find_function(name);
  auto kernel = std::make_shared<Kernel>();
  kernel->name = name;
  kernel->number = num_made_.fetch_add(1);
  kernel->threads = threads;
  kernel->pipeline = make_pipeline(*function.get(), name, threads);
  const MTL::ComputePipelineState& made = *kernel->pipeline.get();
  const auto refuse = [&](const std::string& why) {
    throw DeviceError("metal: kernel '" + name + "' does not fit this GPU: " + why);
  };
  if (made.maxTotalThreadsPerThreadgroup() < threads) {
    refuse(grouped(threads) + " threads in a group, at most " +
           grouped(made.maxTotalThreadsPerThreadgroup()) + " run");
  }
  if (made.threadExecutionWidth() != kSimdgroup) {
    refuse("simdgroups of " + grouped(made.threadExecutionWidth()) + " threads, expected 32");
  }
  if (made.staticThreadgroupMemoryLength() > gpu_->device().maxThreadgroupMemoryLength()) {
    refuse(grouped(made.staticThreadgroupMemoryLength()) + " bytes of threadgroup memory");
  }
  return kernel;
}

Ref<MTL::Function> Kernels::find_function(const std::string& name) {
  std::lock_guard lock(libraries_mutex_);
  for (Library& library : libraries_) {
    if (!library.source.empty() && !may_hold(library.name, name)) continue;
    auto function = NS::TransferPtr(load(library).newFunction(text_of(name)));
    if (function) return function;
  }
  throw InvalidInput("metal: there is no kernel named '" + name + "'");
}

MTL::Library& Kernels::load(Library& library) {
  if (library.library) return *library.library.get();
  NS::Error* error = nullptr;
  if (library.source.empty()) {
    library.library = NS::TransferPtr(gpu_->device().newLibrary(url_of(places_.metallib), &error));
    if (library.library) return *library.library.get();
    throw DeviceError("metal: cannot load " + places_.metallib.string() + ": " + text_of(error));
  }
  const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
  // As CMake compiles the metallib: one mode for all kernels, which name fast functions themselves.
  options->setLanguageVersion(is_for_tensor_units(library.name) ? MTL::LanguageVersion4_0
                                                                : MTL::LanguageVersion3_1);
  options->setFastMathEnabled(false);
  library.library = NS::TransferPtr(
      gpu_->device().newLibrary(text_of(std::string(library.source)), options.get(), &error));
  if (library.library) return *library.library.get();
  throw DeviceError("metal: metal/" + std::string(library.name) +
                    ".metal does not compile here: " + text_of(error));
}

Ref<MTL::ComputePipelineState> Kernels::make_pipeline(const MTL::Function& function,
                                                      const std::string& name, uint32_t threads) {
  const auto descriptor = NS::TransferPtr(MTL::ComputePipelineDescriptor::alloc()->init());
  descriptor->setLabel(text_of(name));
  descriptor->setComputeFunction(&function);
  // The compiler then gives each thread as many registers as so many threads leave, and not more.
  descriptor->setMaxTotalThreadsPerThreadgroup(threads);
  descriptor->setThreadGroupSizeIsMultipleOfThreadExecutionWidth(true);
  NS::Error* error = nullptr;
  MTL::Device& device = gpu_->device();
  if (archive_) {
    std::lock_guard lock(archive_mutex_);  // not while anything compiles
    descriptor->setBinaryArchives(NS::Array::array(archive_.get()));
    auto kept = NS::TransferPtr(device.newComputePipelineState(
        descriptor.get(), MTL::PipelineOptionFailOnBinaryArchiveMiss, nullptr, &error));
    if (kept) return kept;
    descriptor->setBinaryArchives(nullptr);
  }
  error = nullptr;
  auto made = NS::TransferPtr(
      device.newComputePipelineState(descriptor.get(), MTL::PipelineOptionNone, nullptr, &error));
  if (!made) {
    throw DeviceError("metal: no pipeline for kernel '" + name + "': " + text_of(error));
  }
  if (archive_) {
    std::lock_guard lock(archive_mutex_);
    NS::Error* ignored = nullptr;
    archive_is_new_ |= archive_->addComputePipelineFunctions(descriptor.get(), &ignored);
  }
  return made;
}

void Kernels::prewarm(const std::string& name, uint32_t threads) {
  {
    std::lock_guard lock(found_mutex_);
    if (found_.contains(name)) return;
  }
  std::lock_guard lock(queue_mutex_);
  queue_.emplace_back(name, threads);
  if (!worker_.joinable()) worker_ = std::thread([this] { work_off(); });
  queue_changed_.notify_all();
}

void Kernels::work_off() {
  for (;;) {
    std::pair<std::string, uint32_t> next;
    {
      std::unique_lock lock(queue_mutex_);
      queue_changed_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
      if (is_ending_) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      find(next.first, next.second);
    } catch (const Error&) {
      // Whoever runs the kernel gets the same error.
    }
  }
}

}  // namespace lily::metal
