// model/forward: the dispatches of the real model, recorded for a device that has no memory, over a
// checkpoint that has the real shapes and no bytes. Also what the steps look like to a scheduler.
#include <map>
#include <string>

#include "check.h"
#include "files.h"
#include "model/checkpoint.h"
#include "model/forward.h"
#include "model/weights.h"
#include "models.h"

namespace lily {
namespace {

class NoMemory final : public BufferStorage {
 public:
  explicit NoMemory(size_t bytes) : BufferStorage(bytes, nullptr) {}
};

// Records can be made for it; it can run nothing.
class PaperDevice final : public Device {
 public:
  explicit PaperDevice(DType act, size_t alignment = 1) : act_(act), alignment_(alignment) {}
  std::string_view name() const override { return "paper"; }
  std::string description() const override { return "paper"; }
  DType activation_dtype() const override { return act_; }
  size_t weight_alignment_bytes() const override { return alignment_; }
  uint64_t memory_total_bytes() const override { return 0; }
  uint64_t memory_available_bytes() const override { return 0; }
  Buffer allocate(size_t bytes) override {
    allocated += bytes;
    return std::make_shared<NoMemory>(bytes);
  }
  Buffer wrap(std::shared_ptr<const void>, const void*, size_t bytes) override {
    ++wraps;
    return std::make_shared<NoMemory>(bytes);
  }
  Buffer allocate_shared(size_t bytes) override { return allocate(bytes); }
  Ticket submit(const Step&) override { return 0; }
  void wait() override {}
  void wait(Ticket) override {}
  void read(const View&, void*, size_t) override {}
  void write(const View&, const void*, size_t) override {}
  void copy(const View&, const View&, size_t) override {}
  void clear(const View&) override {}

  uint64_t allocated = 0;
  int wraps = 0;

 private:
  DType act_;
  size_t alignment_;
};

std::map<std::string, int> kernels_of(const Step& step) {
  std::map<std::string, int> counts;
  for (const Dispatch& dispatch : step.dispatches()) ++counts[dispatch.kernel];
  return counts;
}

// A device that faults on odd addresses gets copies, and the plan knows it; one that does not reads
// the same file in place.
TEST(weights_are_copied_only_where_the_device_needs_it) {
  const test::Folder folder;
  test::write_model(folder, test::small_config(), test::Fill::random);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  uint64_t copied[2] = {};
  for (int i = 0; i < 2; ++i) {
    const size_t alignment = i == 0 ? 1 : 4096;  // no tensor of such a file lies on page borders
    PaperDevice device(DType::f32, alignment);
    load_weights(checkpoint, device);
    const WeightsReport report = inspect_weights(checkpoint, CheckDepth::headers, alignment);
    CHECK_EQ(report.copied_bytes, device.allocated);
    copied[i] = report.copied_bytes;
    CHECK_EQ(report.in_place_bytes > 0, i == 0);
  }
  CHECK(copied[1] > 2 * copied[0]);
}

TEST(forward_of_the_real_model) {
  const test::Folder folder;
  test::write_model(folder, test::real_config(), test::Fill::sparse);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  const Config& config = checkpoint.config();
  PaperDevice device(DType::bf16);
  const Forward forward(config, load_weights(checkpoint, device));
  CHECK_EQ(device.wraps, 1);
  const WeightsReport report = inspect_weights(checkpoint, CheckDepth::headers, 1);
  CHECK_EQ(report.copied_bytes, device.allocated);
  CHECK(report.copied_bytes < 10'000'000);
  CHECK_EQ(report.parameters / 1'000'000'000, 34u);
  CHECK_EQ(report.active_parameters / 100'000'000, 29u);

  CHECK_EQ(kv_bytes_per_token(config, DType::bf16), 20'480u);  // DESIGN.md section 5
  Arena counter(nullptr);
  const SessionState counted(counter, config, DType::bf16, 4096, 2);
  CHECK_EQ(counted.recurrent_bytes() / 1'000'000, 66u);  // 63 MB of state, and the rings
  device.allocated = 0;
  Arena arena(&device);
  const SessionState state(arena, config, DType::bf16, 4096, 2);
  CHECK_EQ(device.allocated, counter.bytes());

  Step decode;
  forward.record_decode(decode, state, 0);
  CHECK_EQ(decode.dispatches().size(), 253u);  // 30 * 6 + 10 * 7 + 3
  CHECK_EQ(kernels_of(decode)["moe_gate_up_bf16"], 40);
  CHECK_EQ(kernels_of(decode)["delta_step_f32"], 30);
  CHECK_EQ(kernels_of(decode)["attention_decode_bf16"], 10);

  const ChunkActivations chunk(arena, config, DType::bf16, 512);
  for (const uint32_t tokens : {1u, 2u, 511u, 512u}) {
    Step prefill;
    forward.record_prefill(prefill, chunk, state, 0, tokens, 100);
    CHECK_EQ(prefill.dispatches().size(), 1u + 30 * 16 + 10 * 14);
    forward.record_logits(prefill, chunk, state, 0, tokens - 1);
    CHECK_EQ(prefill.dispatches().size(), 3u + 30 * 16 + 10 * 14);
  }
}

TEST(forward_refuses_rows_beyond_the_cache) {
  const test::Folder folder;
  test::write_model(folder, test::small_config(), test::Fill::random);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  PaperDevice device(DType::f32);
  const Forward forward(checkpoint.config(), load_weights(checkpoint, device));
  Arena arena(&device);
  const SessionState state(arena, checkpoint.config(), DType::f32, 20, 1);
  const ChunkActivations chunk(arena, checkpoint.config(), DType::f32, 16);
  Step step;
  forward.record_prefill(step, chunk, state, 0, 16, 4);
  CHECK_THROWS(InvalidInput, "leave k_cache", forward.record_prefill(step, chunk, state, 0, 16, 5));
  CHECK_THROWS(InvalidInput, "rows", forward.record_prefill(step, chunk, state, 0, 17, 0));
}

}  // namespace
}  // namespace lily
