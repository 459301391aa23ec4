// The simulated Metal keeps Metal's rules: each broken one is noticed. What these tests do, no
// device may.
#include <future>

#include "device/metal/metal_cpp.h"
#include "probes.h"

namespace lily {
namespace {

using namespace test;
using metal::Pool;
using metal::Ref;
using simulated::Violation;

constexpr MTL::ResourceOptions kUntracked =
    MTL::ResourceStorageModeShared | MTL::ResourceHazardTrackingModeUntracked;

// A GPU with a pipeline and a buffer, driven by hand.
struct Hand {
  Hand() {
    simulated::set_executor(std::make_shared<ProbeExecutor>());
    simulated::reset();
    device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
    queue = NS::TransferPtr(device->newCommandQueue());
    buffer = NS::TransferPtr(device->newBuffer(4096, kUntracked));
    fence = NS::TransferPtr(device->newFence());
    count = pipeline("probe_count");
    add = pipeline("probe_add");
  }

  Ref<MTL::ComputePipelineState> pipeline(const char* name, NS::UInteger threads = 64) {
    NS::Error* error = nullptr;
    const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
    options->setLanguageVersion(MTL::LanguageVersion3_1);
    options->setFastMathEnabled(false);
    const auto library = NS::TransferPtr(
        device->newLibrary(metal::text_of("#line 1 \"probe.metal\"\n"), options.get(), &error));
    const auto function = NS::TransferPtr(library->newFunction(metal::text_of(name)));
    const auto descriptor = NS::TransferPtr(MTL::ComputePipelineDescriptor::alloc()->init());
    descriptor->setComputeFunction(function.get());
    if (threads != 0) descriptor->setMaxTotalThreadsPerThreadgroup(threads);
    return NS::TransferPtr(device->newComputePipelineState(
        descriptor.get(), MTL::PipelineOptionNone, nullptr, &error));
  }
  MTL::CommandBuffer* begin() { return queue->commandBufferWithUnretainedReferences(); }
  MTL::ComputeCommandEncoder* encoder(MTL::CommandBuffer* of) {
    return of->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  }
  // One word counts up.
  void encode_count(MTL::ComputeCommandEncoder* on, size_t offset = 0) {
    on->setComputePipelineState(count.get());
    on->setBuffer(buffer.get(), offset, 0);
    on->setBytes(&zero, sizeof zero, 1);
    on->dispatchThreadgroups(MTL::Size(1, 1, 1), MTL::Size(64, 1, 1));
  }
  // Commits, and returns what the error says, or nothing.
  std::string run(MTL::CommandBuffer* it) {
    std::promise<std::string> done;
    it->addCompletedHandler([&](MTL::CommandBuffer* ended) {
      const bool is_well = ended->status() == MTL::CommandBufferStatusCompleted;
      done.set_value(is_well ? "" : metal::text_of(ended->error()));
    });
    it->commit();
    return done.get_future().get();
  }

  Pool pool;
  float zero = 0;
  Ref<MTL::Device> device;
  Ref<MTL::CommandQueue> queue;
  Ref<MTL::Buffer> buffer;
  Ref<MTL::Fence> fence;
  Ref<MTL::ComputePipelineState> count, add;
};

const size_t kPageBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(simulation_keeps_the_order_of_calls) {
  Hand hand;
  MTL::CommandBuffer* buffer = hand.begin();
  MTL::ComputeCommandEncoder* encoder = hand.encoder(buffer);
  CHECK_THROWS(Violation, "commit: an encoder was not ended", buffer->commit());
  CHECK_THROWS(Violation, "the encoder before this one was not ended", hand.encoder(buffer));
  CHECK_THROWS(Violation, "GPUEndTime: the command buffer has not completed", buffer->GPUEndTime());
  encoder->endEncoding();
  CHECK_THROWS(Violation, "an encoder that was ended", hand.encode_count(encoder));
  CHECK_THROWS(Violation, "an encoder that was ended", encoder->endEncoding());
  CHECK_EQ(hand.run(buffer), "");
  CHECK_THROWS(Violation, "commit: the command buffer was committed already", buffer->commit());
  CHECK_THROWS(Violation, "committed already", hand.encoder(buffer));
  CHECK_THROWS(Violation, "committed already",
               buffer->addCompletedHandler([](MTL::CommandBuffer*) {}));
}

TEST(simulation_checks_bindings_and_grids) {
  Hand hand;
  MTL::CommandBuffer* buffer = hand.begin();
  MTL::ComputeCommandEncoder* encoder = hand.encoder(buffer);
  const auto dispatch = [&](NS::UInteger groups, NS::UInteger threads) {
    encoder->dispatchThreadgroups(MTL::Size(groups, 1, 1), MTL::Size(threads, 1, 1));
  };
  const std::vector<std::byte> many(5000);
  CHECK_THROWS(Violation, "a dispatch without a pipeline", dispatch(1, 64));
  encoder->setComputePipelineState(hand.count.get());
  CHECK_THROWS(Violation, "nothing is bound at index 0", dispatch(1, 64));
  encoder->setBuffer(hand.buffer.get(), 0, 0);
  CHECK_THROWS(Violation, "nothing is bound at index 1", dispatch(1, 64));
  CHECK_THROWS(Violation, "setBytes of 5000 bytes", encoder->setBytes(many.data(), 5000, 1));
  encoder->setBytes(many.data(), 8, 1);
  CHECK_THROWS(Violation, "8 bytes of params, expected 4", dispatch(1, 64));
  encoder->setBytes(many.data(), 4, 1);
  CHECK_THROWS(Violation, "65 threads in a group, its pipeline takes up to 64", dispatch(1, 65));
  CHECK_THROWS(Violation, "an empty grid", dispatch(0, 64));
  CHECK_THROWS(Violation, "at index 31, of 31", encoder->setBuffer(hand.buffer.get(), 0, 31));
  CHECK_THROWS(Violation, "past the end of its buffer",
               encoder->setBuffer(hand.buffer.get(), 4096, 0));
  CHECK_THROWS(Violation, "no whole words", encoder->setBuffer(hand.buffer.get(), 2, 0));
  encoder->setBuffer(hand.buffer.get(), 0, 1);
  CHECK_THROWS(Violation, "the wrong kind of binding at index 1", dispatch(1, 64));
  encoder->endEncoding();
  CHECK_EQ(hand.pipeline("probe_count", 0)->maxTotalThreadsPerThreadgroup(), 32u);
}

TEST(simulation_checks_memory) {
  Hand hand;
  alignas(64) static std::byte somewhere[1 << 16];
  CHECK_THROWS(Violation, "on no page boundary",
               hand.device->newBuffer(somewhere + 64, kPageBytes, kUntracked, nullptr));
  CHECK_THROWS(Violation, "not whole pages",
               hand.device->newBuffer(nullptr, kPageBytes + 1, kUntracked, nullptr));
  CHECK_THROWS(Violation, "a buffer of 0 bytes",
               hand.device->newBuffer(NS::UInteger{0}, kUntracked));
  CHECK_THROWS(Violation, "longer than maxBufferLength",
               hand.device->newBuffer(NS::UInteger{9} << 30, kUntracked));
  CHECK_THROWS(Violation, "not shared",
               hand.device->newBuffer(64, MTL::ResourceStorageModePrivate));
}

TEST(simulation_finds_hazards_within_a_pass) {
  Hand hand;
  for (const bool with_barrier : {false, true}) {
    MTL::CommandBuffer* buffer = hand.begin();
    MTL::ComputeCommandEncoder* encoder = hand.encoder(buffer);
    encoder->waitForFence(hand.fence.get());
    hand.encode_count(encoder);
    if (with_barrier) encoder->memoryBarrier(MTL::BarrierScopeBuffers);
    hand.encode_count(encoder);
    hand.encode_count(encoder, 64);  // other bytes: beside it
    encoder->updateFence(hand.fence.get());
    encoder->endEncoding();
    const std::string error = hand.run(buffer);
    CHECK_EQ(contains(error, "hazard: kernels probe_count and probe_count"), !with_barrier);
    CHECK_EQ(contains(error, "with no barrier between"), !with_barrier);
  }
  MTL::ComputeCommandEncoder* encoder = hand.encoder(hand.begin());
  CHECK_THROWS(Violation, "does not order buffers",
               encoder->memoryBarrier(MTL::BarrierScopeTextures));
  encoder->endEncoding();
}

// Without a fence, passes of one command buffer may overlap as those of two may.
TEST(simulation_finds_hazards_between_passes) {
  for (const bool waits : {false, true}) {
    Hand hand;
    MTL::CommandBuffer* buffer = hand.begin();
    for (int pass = 0; pass < 2; ++pass) {
      MTL::ComputeCommandEncoder* encoder = hand.encoder(buffer);
      if (waits) encoder->waitForFence(hand.fence.get());
      hand.encode_count(encoder);
      encoder->updateFence(hand.fence.get());
      CHECK_THROWS(Violation, "waits for a fence after its update",
                   encoder->waitForFence(hand.fence.get()));
      encoder->endEncoding();
    }
    CHECK_EQ(contains(hand.run(buffer), "with no fence between"), !waits);
  }
}

TEST(simulation_lets_the_host_order_passes) {
  Hand hand;
  for (int pass = 0; pass < 2; ++pass) {
    MTL::CommandBuffer* buffer = hand.begin();
    MTL::ComputeCommandEncoder* encoder = hand.encoder(buffer);
    hand.encode_count(encoder);
    encoder->endEncoding();
    CHECK_EQ(hand.run(buffer), "");
  }
}

TEST(simulation_finds_what_is_gone) {
  Hand hand;
  MTL::CommandBuffer* buffer = hand.begin();
  MTL::ComputeCommandEncoder* encoder = hand.encoder(buffer);
  hand.encode_count(encoder);
  encoder->endEncoding();
  hand.buffer.reset();
  CHECK(contains(hand.run(buffer), "uses a buffer that was freed"));
}

#if !defined(__has_feature) || !__has_feature(address_sanitizer)
TEST(simulation_answers_for_objects_that_are_gone) {
  Hand hand;
  MTL::Fence* gone = hand.device->newFence();
  gone->release();
  CHECK_THROWS(Violation, "[an object that is gone retain]", gone->retain());
}
#endif

TEST(simulation_needs_a_pool) {
  Hand hand;
  std::thread([&] {
    CHECK_THROWS(Violation, "autoreleased with no pool in place", hand.device->name());
  }).join();
  CHECK_THROWS(Violation, "written in Metal 3.1", [&] {
    NS::Error* error = nullptr;
    const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
    hand.device->newLibrary(metal::text_of("x"), options.get(), &error);
  }());
}

}  // namespace
}  // namespace lily
