// The simulated command queue, command buffers and compute encoders: what may be called when, and
// with what. Runs nothing (timeline.h does).
#include "objects.h"
#include "state.h"
#include "timeline.h"

extern "C" void* _Block_copy(const void* block);
extern "C" void _Block_release(const void* block);

namespace lily::simulated {
namespace {

constexpr size_t kMostBindings = 31, kMostInlineBytes = 4096, kOffsetAlignment = 4;
constexpr uintptr_t kSerial = 0, kConcurrent = 1;  // MTLDispatchType
constexpr uintptr_t kBuffers = 1;                  // MTLBarrierScope

std::string at_index(uintptr_t index) { return " at index " + std::to_string(index); }

// --- command buffers

CommandBuffer* new_command_buffer(Queue* self, SEL) {
  self->timeline->take_slot();
  auto* made = make<CommandBuffer>("MTLCommandBuffer");
  made->queue = Held<Queue>(self);
  return made_autoreleased(made);
}

void require_begun(const CommandBuffer& buffer, const char* what) {
  if (buffer.status != Status::begun) {
    violate(std::string(what) + ": the command buffer was committed already");
  }
}

Encoder* new_encoder(CommandBuffer* self, SEL, uintptr_t type) {
  require_begun(*self, "computeCommandEncoder");
  if (self->open != nullptr) violate("the encoder before this one was not ended");
  if (type != kSerial && type != kConcurrent) violate("no such dispatch type");
  auto* made = make<Encoder>("MTLComputeCommandEncoder");
  made->buffer = Held<CommandBuffer>(self);
  made->bound.resize(kMostBindings);
  made->pass.is_concurrent = type == kConcurrent;
  self->open = made;
  return made_autoreleased(made);
}

void commit(CommandBuffer* self, SEL) {
  require_begun(*self, "commit");
  if (self->open != nullptr) violate("commit: an encoder was not ended");
  self->status = Status::committed;
  for (Pass& pass : self->passes) self->queue->timeline->number(pass);
  note([](Statistics& all) { ++all.committed; });
  self->queue->timeline->commit(Held<CommandBuffer>(self));
}

void require_done(const CommandBuffer& buffer, const char* what) {
  if (buffer.status != Status::completed && buffer.status != Status::failed) {
    violate(std::string(what) + ": the command buffer has not completed");
  }
}

void add_command_buffers() {
  add(
      "MTLDevice", "newCommandQueue",
      +[](MetalDevice*, SEL) { return make<Queue>("MTLCommandQueue"); });
  add("MTLCommandQueue", "commandBufferWithUnretainedReferences", &new_command_buffer);
  add(
      "MTLCommandQueue", "addResidencySet:", +[](Queue*, SEL, ResidencySet* set) {
        if (set == nullptr) violate("addResidencySet: there is none");
      });
  add("MTLCommandQueue", "removeResidencySet:", +[](Queue*, SEL, ResidencySet*) {});
  add("MTLCommandBuffer", "computeCommandEncoderWithDispatchType:", &new_encoder);
  add(
      "MTLCommandBuffer", "addCompletedHandler:", +[](CommandBuffer* self, SEL, void* block) {
        require_begun(*self, "addCompletedHandler");
        self->handlers.push_back(_Block_copy(block));
      });
  add("MTLCommandBuffer", "commit", &commit);
  add(
      "MTLCommandBuffer", "status",
      +[](CommandBuffer* self, SEL) { return static_cast<uintptr_t>(self->status.load()); });
  add("MTLCommandBuffer", "error", +[](CommandBuffer* self, SEL) { return self->error.get(); });
  add(
      "MTLCommandBuffer", "GPUStartTime", +[](CommandBuffer* self, SEL) {
        require_done(*self, "GPUStartTime");
        return self->begin_s;
      });
  add(
      "MTLCommandBuffer", "GPUEndTime", +[](CommandBuffer* self, SEL) {
        require_done(*self, "GPUEndTime");
        return self->end_s;
      });
}

// --- encoders

Encoder& open(Encoder* self) {
  if (!self->buffer) violate("a call to an encoder that was ended");
  return *self;
}

BoundBuffer& slot(Encoder* self, uintptr_t index) {
  if (index >= kMostBindings) violate("a binding" + at_index(index) + ", of 31 that there are");
  return open(self).bound[index];
}

void set_buffer(Encoder* self, SEL, MetalBuffer* buffer, uintptr_t offset, uintptr_t index) {
  BoundBuffer& bound = slot(self, index);
  if (buffer != nullptr && !is_alive(buffer)) violate("a buffer that is gone" + at_index(index));
  if (buffer != nullptr && offset >= buffer->bytes) {
    violate("an offset past the end of its buffer" + at_index(index));
  }
  if (offset % kOffsetAlignment != 0) violate("an offset of no whole words" + at_index(index));
  bound = {true, buffer, offset, {}};
}

void set_bytes(Encoder* self, SEL, const std::byte* bytes, uintptr_t count, uintptr_t index) {
  BoundBuffer& bound = slot(self, index);
  if (count == 0 || count > kMostInlineBytes) {
    violate("setBytes of " + std::to_string(count) + " bytes, expected 1 to 4096");
  }
  bound = {true, nullptr, 0, std::vector<std::byte>(bytes, bytes + count)};
}

// What a kernel takes must be bound in this pass: its buffers, then its params as bytes.
std::vector<BoundBuffer> take_bindings(const Encoder& encoder) {
  const Kernel& kernel = encoder.pipeline->kernel;
  const std::string about = encoder.pipeline->name;
  const uint32_t count = kernel.bindings + (kernel.params_bytes != 0);
  for (uint32_t index = 0; index < count; ++index) {
    const BoundBuffer& bound = encoder.bound[index];
    if (!bound.is_set) violate(about + ": nothing is bound" + at_index(index));
    const bool wants_bytes = index == kernel.bindings;
    if (wants_bytes != !bound.bytes.empty()) {
      violate(about + ": the wrong kind of binding" + at_index(index));
    }
    if (!wants_bytes && bound.buffer == nullptr) violate(about + ": no buffer" + at_index(index));
    if (wants_bytes && bound.bytes.size() != kernel.params_bytes) {
      violate(about + ": " + std::to_string(bound.bytes.size()) + " bytes of params, expected " +
              std::to_string(kernel.params_bytes));
    }
  }
  return {encoder.bound.begin(), encoder.bound.begin() + count};
}

void dispatch(Encoder* self, SEL, Size groups, Size threads) {
  Encoder& encoder = open(self);
  if (encoder.pipeline == nullptr) violate("a dispatch without a pipeline");
  const Pipeline& pipeline = *encoder.pipeline;
  const uintptr_t count = threads.width * threads.height * threads.depth;
  if (groups.width * groups.height * groups.depth == 0 || count == 0) {
    violate(pipeline.name + ": an empty grid");
  }
  if (count > pipeline.max_threads) {
    violate(pipeline.name + ": " + std::to_string(count) +
            " threads in a group, its pipeline takes up to " +
            std::to_string(pipeline.max_threads));
  }
  if (pipeline.whole_simdgroups && count % 32 != 0) {
    violate(pipeline.name + ": a threadgroup of no whole simdgroups");
  }
  Command command;
  command.pipeline = encoder.pipeline;
  command.groups = groups;
  command.threads = threads;
  command.buffers = take_bindings(encoder);
  encoder.pass.commands.push_back(std::move(command));
}

void end_encoding(Encoder* self, SEL) {
  Encoder& encoder = open(self);
  encoder.buffer->passes.push_back(std::move(encoder.pass));
  encoder.buffer->open = nullptr;
  encoder.buffer = {};
}

void add_encoders() {
  const auto name = "MTLComputeCommandEncoder";
  add(
      name, "setComputePipelineState:", +[](Encoder* self, SEL, Pipeline* pipeline) {
        if (pipeline == nullptr) violate("setComputePipelineState: there is none");
        open(self).pipeline = pipeline;
      });
  add(name, "setBuffer:offset:atIndex:", &set_buffer);
  add(
      name, "setBufferOffset:atIndex:", +[](Encoder* self, SEL, uintptr_t offset, uintptr_t index) {
        if (slot(self, index).buffer == nullptr) violate("an offset without a buffer");
        set_buffer(self, nullptr, slot(self, index).buffer, offset, index);
      });
  add(name, "setBytes:length:atIndex:", &set_bytes);
  add(name, "dispatchThreadgroups:threadsPerThreadgroup:", &dispatch);
  add(
      name, "memoryBarrierWithScope:", +[](Encoder* self, SEL, uintptr_t scope) {
        if ((scope & kBuffers) == 0) violate("a barrier that does not order buffers");
        open(self).pass.commands.emplace_back().is_barrier = true;
        note([](Statistics& all) { ++all.barriers; });
      });
  add(
      name, "waitForFence:", +[](Encoder* self, SEL, Fence* fence) {
        if (!open(self).pass.updates.empty()) violate("a pass waits for a fence after its update");
        if (!self->pass.commands.empty())
          violate("a pass waits for a fence after its first dispatch");
        self->pass.waits.push_back(fence);
      });
  add(
      name, "updateFence:", +[](Encoder* self, SEL, Fence* fence) {
        open(self).pass.updates.push_back(fence);
      });
  add(name, "endEncoding", &end_encoding);
}

}  // namespace

CommandBuffer::~CommandBuffer() {
  for (void* handler : handlers) _Block_release(handler);
  if (status == Status::begun) queue->timeline->give_slot_back();
}

Encoder::~Encoder() {
  if (!buffer) return;
  note_violation("an encoder was dropped without endEncoding");
  buffer->open = nullptr;
}

Queue::Queue() : timeline(std::make_shared<Timeline>()) { timeline->begin(); }
Queue::~Queue() { timeline->end(); }

void add_commands() {
  add_command_buffers();
  add_encoders();
}

}  // namespace lily::simulated
