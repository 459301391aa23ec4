// Inside the simulated Metal only: its objects. Fields are what Metal's own would have to know; the
// rules about them stand where the methods are.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "objc_runtime.h"

namespace lily::simulated {

// As Metal passes them.
struct Size {
  uintptr_t width, height, depth;
};

// --- Foundation

struct String : Object {
  std::string text;
};
struct Array : Object {
  std::vector<Held<Object>> objects;
};
struct Error : Object {
  std::string text;
  intptr_t code = 0;
};
struct Url : Object {
  std::string path;
};

String* make_string(const std::string& text);               // autoreleased
Error* make_error(const std::string& text, intptr_t code);  // autoreleased

// --- device and memory

struct MetalDevice : Object {};

struct MetalBuffer : Object {
  std::byte* memory = nullptr;
  size_t bytes = 0;
  uint64_t options = 0;
  bool is_owned = false;
  ~MetalBuffer();
};
// Whether the buffer still exists. Only its address is looked at.
bool is_alive(const MetalBuffer* buffer);

struct ResidencySetDescriptor : Object {};
struct ResidencySet : Object {
  std::set<const Object*> now, after_commit;
  ~ResidencySet();
};

// Passes that updated it, and those that came before them.
struct Fence : Object {
  std::optional<uint64_t> updated_by;
};

// --- code

struct CompileOptions : Object {
  uint64_t language_version = 0;
  bool fast_math = true;
};
struct Library : Object {
  std::set<std::string> functions;
};
struct Function : Object {
  std::string name;
};
struct ArchiveDescriptor : Object {
  Held<Url> url;
};
struct Archive : Object {
  std::set<std::string> functions;
};
struct PipelineDescriptor : Object {
  Held<Function> function;
  Held<Array> archives;
  uintptr_t max_threads = 0;
  bool whole_simdgroups = false;
};
struct Pipeline : Object {
  std::string name;
  Kernel kernel;
  uintptr_t max_threads = 0;
  bool whole_simdgroups = false;
};

// --- commands

struct BoundBuffer {
  bool is_set = false;
  MetalBuffer* buffer = nullptr;  // not retained
  size_t offset = 0;
  std::vector<std::byte> bytes;  // of setBytes
};

// A dispatch or a barrier, as it stands in a pass.
struct Command {
  bool is_barrier = false;
  Pipeline* pipeline = nullptr;  // not retained
  Size groups{}, threads{};
  std::vector<BoundBuffer> buffers;
};

struct Pass {
  uint64_t id = 0;
  uint64_t begun_after = 0;  // all passes up to this were known to have ended when it was committed
  bool is_concurrent = false;
  std::vector<Command> commands;
  std::vector<Fence*> waits, updates;  // not retained
};

struct Queue;
struct Encoder;

enum class Status : uintptr_t { begun = 0, committed = 2, completed = 4, failed = 5 };

struct CommandBuffer : Object {
  Held<Queue> queue;
  std::vector<Pass> passes;
  Encoder* open = nullptr;
  std::vector<void*> handlers;  // blocks
  std::atomic<Status> status{Status::begun};
  Held<Error> error;
  double begin_s = 0, end_s = 0;
  ~CommandBuffer();
};

struct Encoder : Object {
  Held<CommandBuffer> buffer;  // null once ended
  Pass pass;
  Pipeline* pipeline = nullptr;
  std::vector<BoundBuffer> bound;
  ~Encoder();
};

class Timeline;
struct Queue : Object {
  std::shared_ptr<Timeline> timeline;
  Queue();
  ~Queue();
};

}  // namespace lily::simulated
