// One timeline of tokens and the work of moving it: prefill with reuse of what is known, decode
// steps, the next of them begun while the caller looks at the last, scores. Guards itself against
// being used by two threads at once, and is left at its last complete chunk or step whatever ends a
// call. Knows no text and no Python.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "device/device.h"
#include "engine/runtime.h"
#include "model/state.h"

namespace lily {

// A flag that any thread may set.
class Cancel {
 public:
  void set() { flag_.store(true, std::memory_order_relaxed); }
  void clear() { flag_.store(false, std::memory_order_relaxed); }
  bool is_set() const { return flag_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> flag_{false};
};

// How the device draws; see Sampler in metal/params.h for what turns each filter off.
struct SamplerSettings {
  float temperature = 0;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
};

// What the device proposes for the next position.
struct Draw {
  uint32_t token_id = 0;
  bool exact = false;   // false: the filters reach past the candidates
  float logsumexp = 0;  // of the raw row
};

struct Candidates {
  std::vector<uint32_t> ids;  // best first; equal logits: lower id first
  std::vector<float> logits;
};

struct Scores {
  std::vector<float> logprobs;  // of tokens[1:]
  std::vector<uint32_t> best;   // the arg-max prediction at each of those places
};

// What may end or watch a long call. All are asked between chunks, on the caller's thread.
struct CallOptions {
  std::vector<uint32_t> checkpoints;  // places in (0, tokens] at which to keep a snapshot
  const Cancel* cancel = nullptr;
  std::function<void()> poll;  // may throw: Ctrl-C
  std::function<void(uint32_t done, uint32_t total)> progress;
};

class Session {
 public:
  Session(std::shared_ptr<Runtime> runtime, uint32_t max_tokens);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // From any thread, at any time.
  std::vector<uint32_t> tokens() const;
  uint32_t num_tokens() const;
  uint32_t max_tokens() const { return max_tokens_; }
  // Waits for a call that runs in another thread (it ends after its chunk, Cancelled), then frees
  // the memory. Later calls raise InvalidInput.
  void close();

  void set_sampler(const SamplerSettings& settings);
  // Makes `tokens` the timeline and its last logits ready; returns how many tokens were reused.
  // Beyond the checkpoints it keeps snapshots of its own choice for later prompts.
  uint32_t prefill(std::span<const uint32_t> tokens, const CallOptions& options);
  Draw sampled();
  Draw step(uint32_t token, const Cancel* cancel);
  std::vector<float> logits();
  Candidates candidates();
  // Fresh passes over `tokens`, which become the timeline, as if prefilled without reuse.
  Scores score(std::span<const uint32_t> tokens, const CallOptions& options);
  std::vector<float> all_logits(std::span<const uint32_t> tokens, const CallOptions& options);
  // Keeps a snapshot of the present place in the prefix cache.
  void save();

 private:
  class Use;
  class StateSource;

  Device& device() const { return runtime_->device(); }
  const Forward& forward() const { return runtime_->forward(); }

  void free_memory();
  void check_tokens(std::span<const uint32_t> tokens, const char* what) const;
  void check_checkpoints(std::span<const uint32_t> tokens, const CallOptions& options) const;
  void check_stop(const CallOptions& options) const;
  void require_sound() const;
  void require_logits() const;

  uint32_t resume(std::span<const uint32_t> tokens);
  void restart();
  std::vector<uint32_t> snapshot_places(std::span<const uint32_t> tokens, uint32_t reused,
                                        const std::vector<uint32_t>& checkpoints) const;
  // These hold the turn already.
  void run_chunk(std::span<const uint32_t> tokens, bool is_last);
  void record_chunk(Step& step, std::span<const uint32_t> tokens, bool is_last);
  bool decode(uint32_t token, bool beside);
  bool is_worth_beginning(uint32_t position) const;
  void unsettle();
  void drop_ahead();
  void run(const Step& step);
  void write_cursor(uint32_t token, uint32_t position);
  // False, with nothing taken over, where the logits are not finite.
  [[nodiscard]] bool read_draw(uint32_t position);
  void require_draw(uint32_t position);
  void keep_snapshot();
  void accept(std::span<const uint32_t> tokens);
  // Calls block(begin, end) for blocks of rows of the prompt whose logits stand in score_rows().
  void for_logit_rows(std::span<const uint32_t> tokens, const CallOptions& options,
                      const std::function<void(uint32_t begin, uint32_t end)>& block);
  [[noreturn]] void refuse_logits();

  const uint32_t max_tokens_;

  // Who is inside. Everything below is theirs alone, except that timeline_ is read under its mutex.
  mutable std::mutex use_mutex_;
  std::condition_variable use_ended_;
  bool in_use_ = false;
  std::atomic<bool> closing_{false};
  std::thread::id user_;

  std::shared_ptr<Runtime> runtime_;  // empty once closed
  uint64_t reserved_bytes_ = 0;
  std::optional<SessionState> state_;
  // Recorded once, replayed for every token; one for each side of the state.
  std::vector<Step> decode_steps_, draw_steps_;
  mutable std::mutex timeline_mutex_;
  std::vector<uint32_t> timeline_;
  uint32_t side_ = 0;          // of state_, where the timeline stands
  bool sound_ = true;          // it is that of timeline_
  bool logits_ready_ = false;  // ... and the logits are those of its last token
  bool draw_ready_ = false;    // ... and sampled_ was drawn from them with the present sampler
  Sampled sampled_{};
  std::optional<Cursor> cursor_;  // what the device holds, or held when it began the step ahead
  std::optional<Ticket> ahead_;   // the step from cursor_, which nobody has asked for yet
  uint32_t followed_ = 0;         // tokens in a row for which the caller took the device's draw
};

}  // namespace lily
