// engine/session under threads, for the sanitizers: several sessions at once, intruders, cancelling
// and closing from outside. Numbers are tested from Python; here they only have to agree with
// themselves.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "files.h"
#include "model/checkpoint.h"
#include "model/weights.h"
#include "models.h"

namespace lily {
namespace {

using test::prompt;
using test::Tokens;

struct Model {
  explicit Model(uint32_t chunk_tokens) {
    test::write_model(folder, test::small_config(), test::Fill::random);
    EngineOptions options;
    options.device = "cpu";
    options.threads = 2;
    options.chunk_tokens = chunk_tokens;
    options.cache_bytes = 1 << 20;
    engine = Engine::load(folder.path(), options);
  }
  test::Folder folder;
  std::shared_ptr<Engine> engine;
};

Tokens generate(Session& session, const Tokens& text, int count) {
  session.prefill(text, {});
  Tokens tokens;
  Draw draw = session.sampled();
  for (int i = 0; i < count; ++i) {
    tokens.push_back(draw.token_id);
    draw = session.step(draw.token_id, nullptr);
  }
  session.save();
  return tokens;
}

TEST(session_threads_do_not_mix) {
  Model model(8);
  std::vector<Tokens> expected, got(6);
  for (uint32_t seed = 0; seed < 3; ++seed) {
    expected.push_back(generate(*model.engine->open_session(0), prompt(seed, 40), 10));
  }
  std::vector<std::thread> threads;
  for (uint32_t index = 0; index < 6; ++index) {
    threads.emplace_back([&, index] {
      got[index] = generate(*model.engine->open_session(100), prompt(index % 3, 40), 10);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t index = 0; index < 6; ++index) CHECK(got[index] == expected[index % 3]);
  CHECK(model.engine->cache_stats().hits > 0);
}

TEST(session_refuses_a_second_thread) {
  Model model(4);
  const auto session = model.engine->open_session(0);
  std::atomic<bool> done{false};
  std::atomic<int> refused{0};
  std::vector<std::thread> intruders;
  for (int i = 0; i < 2; ++i) {
    intruders.emplace_back([&] {
      while (!done) {
        CHECK(session->num_tokens() <= 200);
        try {
          session->set_sampler({});
        } catch (const InvalidInput&) {
          ++refused;
        }
        std::this_thread::yield();
      }
    });
  }
  bool finished = false;
  for (int attempt = 0; attempt < 10'000 && !(finished && refused > 0); ++attempt) {
    try {
      session->prefill(prompt(attempt, 200), {});
      finished = true;
    } catch (const InvalidInput&) {
    }
  }
  done = true;
  for (std::thread& thread : intruders) thread.join();
  CHECK(finished);
  CHECK(refused > 0);
}

// Where a snapshot before the last token would stand at the very place that is live.
TEST(session_takes_one_token_more_than_it_holds) {
  Model model(8);
  const auto session = model.engine->open_session(0);
  session->prefill(prompt(1, 10), {});
  for (uint32_t token = 0; token < 50; ++token) session->step(token, nullptr);
  Tokens longer = session->tokens();
  longer.push_back(7);
  CHECK_EQ(session->prefill(longer, {}), 60u);
  CHECK_EQ(session->num_tokens(), 61u);
}

TEST(session_cancel_from_another_thread) {
  Model model(1);
  const auto session = model.engine->open_session(0);
  Cancel cancel;
  CallOptions options;
  options.cancel = &cancel;
  std::atomic<bool> started{false};
  options.progress = [&](uint32_t, uint32_t) { started = true; };
  std::thread canceller([&] {
    while (!started) std::this_thread::yield();
    cancel.set();
  });
  CHECK_THROWS(
      Cancelled, "cancelled after", for (uint32_t seed = 0; seed < 10'000; ++seed) {
        session->prefill(prompt(seed, 400), options);
      });
  canceller.join();
  Tokens longer = session->tokens();
  const size_t done = longer.size();
  longer.push_back(1);
  CHECK_EQ(session->prefill(longer, {}), done);
}

// The CPU device, with a submission that fails when told to.
class FlakyDevice final : public Device {
 public:
  std::string_view name() const override { return cpu_->name(); }
  std::string description() const override { return cpu_->description(); }
  DType activation_dtype() const override { return cpu_->activation_dtype(); }
  size_t weight_alignment_bytes() const override { return cpu_->weight_alignment_bytes(); }
  uint64_t memory_total_bytes() const override { return cpu_->memory_total_bytes(); }
  uint64_t memory_available_bytes() const override { return cpu_->memory_available_bytes(); }
  Buffer allocate(size_t bytes) override { return cpu_->allocate(bytes); }
  Buffer wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) override {
    return cpu_->wrap(std::move(owner), mapped, bytes);
  }
  Buffer allocate_shared(size_t bytes) override { return cpu_->allocate_shared(bytes); }
  Ticket submit(const Step& step) override { return cpu_->submit(step); }
  void wait() override {
    if (fails) throw DeviceError("flaky: the power went");
    cpu_->wait();
  }
  void wait(Ticket) override { wait(); }
  void read(const View& from, void* to, size_t n) override {
    wait();
    cpu_->read(from, to, n);
  }
  void write(const View& to, const void* from, size_t n) override { cpu_->write(to, from, n); }
  void copy(const View& to, const View& from, size_t n) override { cpu_->copy(to, from, n); }
  void clear(const View& view) override { cpu_->clear(view); }

  bool fails = false;

 private:
  std::shared_ptr<Device> cpu_ = open_device("cpu", {.threads = 1, .isa = {}});
};

TEST(session_after_a_device_failure) {
  const test::Folder folder;
  test::write_model(folder, test::small_config(), test::Fill::random);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  const auto device = std::make_shared<FlakyDevice>();
  MemoryPlan plan;
  plan.cache_bytes = 1 << 20;
  plan.limit_bytes = uint64_t{1} << 30;
  plan.max_context = 200;
  const auto runtime = std::make_shared<Runtime>(
      device, Forward(checkpoint.config(), load_weights(checkpoint, *device)), DType::f32, 16,
      plan);
  Session expected(runtime, 200), session(runtime, 200);
  const Tokens text = prompt(1, 40), answer = generate(expected, text, 6);

  CallOptions options;
  options.progress = [&](uint32_t done, uint32_t) { device->fails = done == 16; };
  runtime->cache().clear();
  CHECK_THROWS(DeviceError, "the power went", session.prefill(text, options));
  device->fails = false;
  CHECK_EQ(session.num_tokens(), 16u);
  CHECK_THROWS(DeviceError, "cannot go on after its token 16", session.step(1, nullptr));
  CHECK_THROWS(DeviceError, "prefill anew", session.sampled());
  CHECK_THROWS(DeviceError, "prefill anew", session.save());
  CHECK(generate(session, text, 6) == answer);

  device->fails = true;
  CHECK_THROWS(DeviceError, "the power went", session.step(1, nullptr));
  device->fails = false;
  CHECK_EQ(session.num_tokens(), 46u);
  CHECK(generate(session, text, 6) == answer);
}

TEST(session_closed_while_it_runs) {
  for (const bool whole_engine : {false, true}) {
    Model model(1);
    const auto session = model.engine->open_session(0);
    std::atomic<bool> started{false};
    std::thread closer([&] {
      while (!started) std::this_thread::yield();
      whole_engine ? model.engine->close() : session->close();
    });
    CallOptions options;
    options.progress = [&](uint32_t, uint32_t) { started = true; };
    bool ended = false;
    try {
      for (uint32_t seed = 0; seed < 10'000; ++seed) session->prefill(prompt(seed, 400), options);
    } catch (const Cancelled&) {
      ended = true;
    } catch (const InvalidInput&) {  // closed between two prompts
      ended = true;
    }
    closer.join();
    CHECK(ended);
    CHECK_THROWS(InvalidInput, "closed", session->step(1, nullptr));
  }
}

TEST(session_closed_from_inside) {
  Model model(4);
  const auto session = model.engine->open_session(0);
  CallOptions options;
  options.progress = [&](uint32_t, uint32_t) { session->close(); };
  CHECK_THROWS(Cancelled, "was closed", session->prefill(prompt(1, 40), options));
  CHECK_THROWS(InvalidInput, "closed", session->sampled());
}

}  // namespace
}  // namespace lily
