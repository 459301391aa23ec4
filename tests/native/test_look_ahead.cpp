// Decode steps that a session begins before they are asked for: whatever the caller then does, it
// sees what it would see without them. On a device that runs steps as late as it may.
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "engine/session.h"
#include "model/checkpoint.h"
#include "model/weights.h"
#include "models.h"

namespace lily {
namespace {

using test::prompt;
using test::Tokens;

// The CPU device behind a queue: a step runs when something waits for it, or for a later one.
class LateDevice final : public Device {
 public:
  std::string_view name() const override { return "late"; }
  std::string description() const override { return "late"; }
  DType activation_dtype() const override { return cpu_->activation_dtype(); }
  size_t weight_alignment_bytes() const override { return cpu_->weight_alignment_bytes(); }
  uint64_t memory_total_bytes() const override { return cpu_->memory_total_bytes(); }
  uint64_t memory_available_bytes() const override { return cpu_->memory_available_bytes(); }
  Buffer allocate(size_t bytes) override { return cpu_->allocate(bytes); }
  Buffer allocate_shared(size_t bytes) override { return cpu_->allocate_shared(bytes); }
  Buffer wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) override {
    return cpu_->wrap(std::move(owner), mapped, bytes);
  }
  bool runs_behind() const override { return true; }
  Ticket submit(const Step& step) override {
    Step copy(step.tiles());
    for (const Dispatch& dispatch : step.dispatches()) copy.add(dispatch);
    queue_.push_back(std::move(copy));
    return ++submitted;
  }
  void wait() override { wait(submitted); }
  void wait(Ticket ticket) override {
    for (; ran_ < ticket; ++ran_) {
      if (ran_ + 1 == fails_at) throw DeviceError("late: the power went");
      cpu_->submit(queue_.front());
      queue_.pop_front();
    }
  }
  void read(const View& from, void* to, size_t n) override { wait(), cpu_->read(from, to, n); }
  void write(const View& to, const void* from, size_t n) override {
    wait(), cpu_->write(to, from, n);
  }
  void copy(const View& to, const View& from, size_t n) override {
    wait(), cpu_->copy(to, from, n);
  }
  void clear(const View& view) override { wait(), cpu_->clear(view); }

  Ticket submitted = 0, fails_at = 0;

 private:
  std::shared_ptr<Device> cpu_ = open_device("cpu", {.threads = 1, .isa = {}});
  std::deque<Step> queue_;
  Ticket ran_ = 0;
};

constexpr uint32_t kContext = 120;

std::shared_ptr<Runtime> runtime_on(std::shared_ptr<Device> device, const test::Folder& folder) {
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  MemoryPlan plan;
  plan.cache_bytes = 1 << 20;
  plan.limit_bytes = uint64_t{1} << 30;
  plan.max_context = kContext;
  Forward forward(checkpoint.config(), load_weights(checkpoint, *device));
  return std::make_shared<Runtime>(std::move(device), std::move(forward), DType::f32, 16, plan);
}

struct Pair {
  Pair() {
    test::write_model(folder, test::small_config(), test::Fill::random);
    const auto cpu = open_device("cpu", {.threads = 1, .isa = {}});
    ahead = std::make_unique<Session>(runtime_on(late, folder), kContext);
    plain = std::make_unique<Session>(runtime_on(cpu, folder), kContext);
  }
  // Does the same to both, and compares what comes of it.
  template <class Do>
  auto both(Do&& act) {
    const auto got = act(*ahead), expected = act(*plain);
    CHECK(got == expected);
    return expected;
  }

  test::Folder folder;
  std::shared_ptr<LateDevice> late = std::make_shared<LateDevice>();
  std::unique_ptr<Session> ahead, plain;
};

// What a draw says, bit for bit.
std::vector<uint32_t> words(const Draw& draw) {
  uint32_t logsumexp = 0;
  std::memcpy(&logsumexp, &draw.logsumexp, sizeof logsumexp);
  return {draw.token_id, draw.exact, logsumexp};
}

TEST(look_ahead_begins_the_next_step_before_it_waits) {
  Pair pair;
  pair.ahead->prefill(prompt(1, 20), {});
  uint32_t token = pair.ahead->sampled().token_id;
  const Ticket before = pair.late->submitted;
  constexpr Ticket kSteps = 30;
  for (Ticket step = 0; step < kSteps; ++step) token = pair.ahead->step(token, nullptr).token_id;
  CHECK_EQ(pair.late->submitted - before, kSteps + 1);  // and one that nobody asked for
}

// A thousand things that callers do, in every order.
TEST(look_ahead_never_shows) {
  Pair pair;
  std::mt19937 random(7);
  const auto below = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  SamplerSettings sampler;
  pair.both([](Session& s) { return s.prefill(prompt(1, 20), {}); });
  for (int turn = 0; turn < 1000; ++turn) {
    if (pair.plain->num_tokens() + 12 > kContext) {
      const uint32_t seed = below(3), size = 5 + below(40);
      pair.both([&](Session& s) { return s.prefill(prompt(seed, size), {}); });
    }
    switch (below(8)) {
      case 0: pair.both([](Session& s) { return s.logits(); }); break;
      case 1: pair.both([](Session& s) { return s.candidates().ids; }); break;
      case 2: {  // the prompt goes on
        Tokens longer = pair.plain->tokens();
        for (uint32_t more = 1 + below(3); more > 0; --more) longer.push_back(below(211));
        pair.both([&](Session& s) { return s.prefill(longer, {}); });
        break;
      }
      case 3: pair.both([](Session& s) { return s.save(), s.num_tokens(); }); break;
      case 4:
        sampler.temperature = static_cast<float>(below(2)), sampler.seed = below(1000);
        pair.both([&](Session& s) { return s.set_sampler(sampler), words(s.sampled()); });
        break;
      case 5: {
        const uint32_t token = below(211);
        pair.both([&](Session& s) { return words(s.step(token, nullptr)); });
        break;
      }
      default:  // as most do
        for (int step = 0; step < 8; ++step) {
          const uint32_t token = pair.plain->sampled().token_id;
          pair.both([&](Session& s) { return words(s.step(token, nullptr)); });
        }
    }
    pair.both([](Session& s) { return words(s.sampled()); });
    pair.both([](Session& s) { return s.tokens(); });
  }
}

TEST(look_ahead_stays_within_the_context) {
  Pair pair;
  pair.both([](Session& s) { return s.prefill(prompt(2, kContext - 10), {}); });
  for (int step = 0; step < 10; ++step) {
    const uint32_t token = pair.plain->sampled().token_id;
    pair.both([&](Session& s) { return words(s.step(token, nullptr)); });
  }
  CHECK_THROWS(ContextFull, "is full", pair.ahead->step(1, nullptr));
}

TEST(look_ahead_that_fails_is_told_when_it_is_asked_for) {
  Pair pair;
  pair.both([](Session& s) { return s.prefill(prompt(3, 20), {}); });
  uint32_t token = 0;
  for (int step = 0; step < 6; ++step) {
    token = pair.plain->sampled().token_id;
    pair.both([&](Session& s) { return words(s.step(token, nullptr)); });
  }
  pair.late->fails_at = pair.late->submitted;  // the step that was begun
  CHECK_EQ(pair.ahead->num_tokens(), 26u);
  token = pair.plain->sampled().token_id;
  CHECK_THROWS(DeviceError, "the power went", pair.ahead->step(token, nullptr));
  CHECK_THROWS(DeviceError, "prefill anew", pair.ahead->step(token, nullptr));
  pair.late->fails_at = 0;
  pair.both([](Session& s) { return s.prefill(prompt(3, 20), {}), words(s.sampled()); });
}

}  // namespace
}  // namespace lily
