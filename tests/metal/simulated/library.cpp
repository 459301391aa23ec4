// The simulated compiler: libraries from source or a file, functions, pipelines, archives of them.
// What a library holds is asked of the executor: the kernels of the file that the source's first
// line names. Compiles nothing.
#include <algorithm>
#include <fstream>

#include "objects.h"
#include "state.h"

namespace lily::simulated {
namespace {

constexpr uint64_t kLanguage31 = (3 << 16) + 1, kLanguage40 = 4 << 16;
constexpr uintptr_t kFailOnArchiveMiss = 1 << 2;  // MTLPipelineOption
constexpr char kFileHead[] = "simulated metallib\n", kArchiveHead[] = "simulated archive\n";

template <class T>
T* fail(Error** error, const std::string& text, intptr_t code) {
  if (error != nullptr) *error = make_error(text, code);
  return nullptr;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The kernels of the file that `#line 1 "norm.metal"` names.
std::set<std::string> kernels_of(const std::string& source) {
  const size_t begin = source.find('"'), end = source.find('"', begin + 1);
  std::set<std::string> found;
  if (source.compare(0, 7, "#line 1") != 0 || end == std::string::npos) return found;
  const std::string file = source.substr(begin + 1, end - begin - 1);
  for (const std::string& name : executor().names()) {
    if (executor().find(name)->source == file) found.insert(name);
  }
  return found;
}

Library* new_library_from_source(MetalDevice*, SEL, String* source, CompileOptions* options,
                                 Error** error) {
  const bool has_tensor_ops = source->text.find("#define LILY_TENSOR_OPS\n") != std::string::npos;
  const uint64_t written_in = has_tensor_ops ? kLanguage40 : kLanguage31;
  if (options == nullptr || options->language_version != written_in) {
    violate("the kernels are written in Metal 3.1, and tensor ops in Metal 4");
  }
  if (options->fast_math) violate("the kernels are not written for fast math");
  if (source->text.find("#include \"") != std::string::npos) {
    return fail<Library>(error, "error: a header was not found", 3);
  }
  auto functions = kernels_of(source->text);
  if (functions.empty()) {
    return fail<Library>(error,
                         "In file included from it:1:\nIn file included from a.h:9:\n"
                         "b.h:3:5: error: there is no kernel in it\n    ^",
                         3);
  }
  auto* made = make<Library>("MTLLibrary");
  made->functions = std::move(functions);
  note([](Statistics& all) { ++all.libraries_compiled; });
  return made;
}

// A file of names stands for a metallib.
Library* new_library_from_file(MetalDevice*, SEL, Url* url, Error** error) {
  const std::string text = read_file(url->path);
  if (!text.starts_with(kFileHead)) return fail<Library>(error, "no metallib", 6);
  auto* made = make<Library>("MTLLibrary");
  for (const std::string& name : executor().names()) {
    if (text.find("\n" + name + "\n") != std::string::npos) made->functions.insert(name);
  }
  return made;
}

Pipeline* new_pipeline(MetalDevice*, SEL, PipelineDescriptor* descriptor, uintptr_t options,
                       void** reflection, Error** error) {
  if (reflection != nullptr) violate("this simulation has no reflection");
  if (!descriptor->function) violate("a pipeline without a function");
  const std::string& name = descriptor->function->name;
  bool is_in_archive = false;
  for (size_t at = 0; descriptor->archives && at < descriptor->archives->objects.size(); ++at) {
    auto* archive = static_cast<Archive*>(descriptor->archives->objects[at].get());
    is_in_archive = is_in_archive || archive->functions.contains(name);
  }
  if (!is_in_archive && (options & kFailOnArchiveMiss) != 0) {
    return fail<Pipeline>(error, "no such pipeline in the archives", 3);
  }
  auto* made = make<Pipeline>("MTLComputePipelineState");
  made->name = name;
  made->kernel = *executor().find(name);
  // Where nobody says how many threads there will be, a kernel that needs many registers gets them,
  // and runs with fewer threads.
  made->max_threads = descriptor->max_threads ? descriptor->max_threads : made->kernel.threads / 2;
  made->whole_simdgroups = descriptor->whole_simdgroups;
  note([&](Statistics& all) {
    ++(is_in_archive ? all.pipelines_from_archive : all.pipelines_compiled);
  });
  return made;
}

Archive* new_archive(MetalDevice*, SEL, ArchiveDescriptor* descriptor, Error** error) {
  if (settings().fail_archives) return fail<Archive>(error, "archives do not work today", 4);
  auto* made = make<Archive>("MTLBinaryArchive");
  if (!descriptor->url) return made;
  const std::string text = read_file(descriptor->url->path);
  if (!text.starts_with(kArchiveHead)) {
    release(made);
    return fail<Archive>(error, "the archive is damaged", 1);
  }
  for (const std::string& name : executor().names()) {
    if (text.find("\n" + name + "\n") != std::string::npos) made->functions.insert(name);
  }
  return made;
}

void add_archives() {
  add(
      "+MTLBinaryArchiveDescriptor", "alloc",
      +[](Object*, SEL) { return make<ArchiveDescriptor>("MTLBinaryArchiveDescriptor"); });
  add(
      "MTLBinaryArchiveDescriptor",
      "setUrl:", +[](ArchiveDescriptor* self, SEL, Url* url) { self->url = Held<Url>(url); });
  add("MTLDevice", "newBinaryArchiveWithDescriptor:error:", &new_archive);
  add(
      "MTLBinaryArchive", "addComputePipelineFunctionsWithDescriptor:error:",
      +[](Archive* self, SEL, PipelineDescriptor* descriptor, Error**) {
        self->functions.insert(descriptor->function->name);
        return true;
      });
  add(
      "MTLBinaryArchive", "serializeToURL:error:", +[](Archive* self, SEL, Url* url, Error** e) {
        std::ofstream file(url->path, std::ios::binary);
        file << kArchiveHead;
        for (const std::string& name : self->functions) file << name << "\n";
        if (file.flush()) return true;
        fail<Archive>(e, "the file cannot be written", 4);
        return false;
      });
}

}  // namespace

void add_library() {
  add(
      "+MTLCompileOptions", "alloc",
      +[](Object*, SEL) { return make<CompileOptions>("MTLCompileOptions"); });
  add(
      "MTLCompileOptions", "setLanguageVersion:",
      +[](CompileOptions* self, SEL, uintptr_t version) { self->language_version = version; });
  add(
      "MTLCompileOptions", "setFastMathEnabled:", +[](CompileOptions* self, SEL, bool is_on) {
        self->fast_math = is_on;
      });
  add("MTLDevice", "newLibraryWithSource:options:error:", &new_library_from_source);
  add("MTLDevice", "newLibraryWithURL:error:", &new_library_from_file);
  add(
      "MTLLibrary", "newFunctionWithName:", +[](Library* self, SEL, String* name) -> Function* {
        if (!self->functions.contains(name->text)) return nullptr;
        auto* made = make<Function>("MTLFunction");
        made->name = name->text;
        return made;
      });
  add(
      "+MTLComputePipelineDescriptor", "alloc",
      +[](Object*, SEL) { return make<PipelineDescriptor>("MTLComputePipelineDescriptor"); });
  add("MTLComputePipelineDescriptor", "setLabel:", +[](PipelineDescriptor*, SEL, String*) {});
  add(
      "MTLComputePipelineDescriptor", "setComputeFunction:",
      +[](PipelineDescriptor* self, SEL, Function* it) { self->function = Held<Function>(it); });
  add(
      "MTLComputePipelineDescriptor", "setMaxTotalThreadsPerThreadgroup:",
      +[](PipelineDescriptor* self, SEL, uintptr_t most) { self->max_threads = most; });
  add(
      "MTLComputePipelineDescriptor", "setThreadGroupSizeIsMultipleOfThreadExecutionWidth:",
      +[](PipelineDescriptor* self, SEL, bool is_so) { self->whole_simdgroups = is_so; });
  add(
      "MTLComputePipelineDescriptor", "setBinaryArchives:",
      +[](PipelineDescriptor* self, SEL, Array* all) { self->archives = Held<Array>(all); });
  add("MTLDevice",
      "newComputePipelineStateWithDescriptor:options:reflection:error:", &new_pipeline);
  add(
      "MTLComputePipelineState", "maxTotalThreadsPerThreadgroup",
      +[](Pipeline* self, SEL) { return self->max_threads; });
  add(
      "MTLComputePipelineState", "threadExecutionWidth",
      +[](Pipeline*, SEL) -> uintptr_t { return 32; });
  add(
      "MTLComputePipelineState", "staticThreadgroupMemoryLength",
      +[](Pipeline*, SEL) -> uintptr_t { return 0; });
  add_archives();
}

}  // namespace lily::simulated
