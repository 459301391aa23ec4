// See session.h; scores are in session_score.cpp. A call marks the state unsound before the device
// touches it and sound when the whole step is done, so that whatever is thrown in between is safe.
#include "engine/session.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "core/error.h"
#include "engine/session_use.h"
#include "model/arena.h"

namespace lily {
namespace {

// A snapshot costs as much memory as thousands of tokens; prefilling fewer than this again costs
// less than evicting something else for it. Places that the caller names are kept all the same.
constexpr uint32_t kFewestTokensWorthASnapshot = 32;

// Who took so many of the device's draws in a row takes the next as well, as a rule. Who chooses by
// other rules meets them now and then, and pays for each step that was begun in vain.
constexpr uint32_t kFollowedToBeginAhead = 3;

uint32_t common_prefix(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  const size_t most = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < most && a[length] == b[length]) ++length;
  return static_cast<uint32_t>(length);
}

uint64_t session_bytes(const Runtime& runtime, uint32_t max_tokens) {
  Arena counter(nullptr);
  SessionState(counter, runtime.config(), runtime.kv_dtype(), max_tokens,
               sides_for(runtime.device()));
  return counter.bytes();
}

}  // namespace

class Session::StateSource final : public SegmentSource {
 public:
  StateSource(Device& device, const SessionState& state, uint32_t side)
      : device_(device), state_(state), side_(side) {}
  uint64_t kv_bytes(uint32_t begin, uint32_t end) const override {
    return state_.kv_bytes(begin, end);
  }
  uint64_t recurrent_bytes() const override { return state_.recurrent_bytes(); }
  Segment capture(uint32_t begin, uint32_t end) override {
    return {begin, end, state_.save_kv(device_, begin, end), state_.save_recurrent(device_, side_)};
  }

 private:
  Device& device_;
  const SessionState& state_;
  const uint32_t side_;
};

Session::Session(std::shared_ptr<Runtime> runtime, uint32_t max_tokens)
    : max_tokens_(max_tokens), runtime_(std::move(runtime)) {
  const uint64_t bytes = session_bytes(*runtime_, max_tokens);
  runtime_->reserve(bytes);
  reserved_bytes_ = bytes;
  try {
    Arena arena(&device());
    state_.emplace(arena, runtime_->config(), runtime_->kv_dtype(), max_tokens,
                   sides_for(device()));
    for (uint32_t side = 0; side < state_->num_sides(); ++side) {
      forward().record_decode(decode_steps_.emplace_back(device().tiles()), *state_, side);
      forward().record_draw(draw_steps_.emplace_back(device().tiles()), *state_, side);
    }
    device().prewarm(decode_steps_[0]);
    set_sampler({});
  } catch (...) {
    runtime_->release(bytes);
    throw;
  }
}

Session::~Session() { free_memory(); }

std::vector<uint32_t> Session::tokens() const {
  std::lock_guard lock(timeline_mutex_);
  return timeline_;
}

uint32_t Session::num_tokens() const {
  std::lock_guard lock(timeline_mutex_);
  return static_cast<uint32_t>(timeline_.size());
}

void Session::close() {
  closing_ = true;
  std::unique_lock lock(use_mutex_);
  // Called from inside a call of its own (a progress callback): that call frees when it ends.
  if (in_use_ && user_ == std::this_thread::get_id()) return;
  use_ended_.wait(lock, [&] { return !in_use_; });
  free_memory();
}

void Session::free_memory() {
  if (!runtime_) return;
  decode_steps_.clear();
  draw_steps_.clear();
  state_.reset();
  runtime_->release(reserved_bytes_);
  runtime_.reset();
}

void Session::check_tokens(std::span<const uint32_t> tokens, const char* what) const {
  const uint32_t vocab = runtime_->config().vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < vocab) continue;
    throw InvalidInput(std::string(what) + ": token " + grouped(i) + " is " + grouped(tokens[i]) +
                       ", the model's vocabulary has " + grouped(vocab));
  }
  if (tokens.size() > max_tokens_) {
    throw ContextFull(std::string(what) + ": the prompt has " + grouped(tokens.size()) +
                      " tokens, this session's context holds " + grouped(max_tokens_));
  }
}

void Session::check_checkpoints(std::span<const uint32_t> tokens,
                                const CallOptions& options) const {
  for (const uint32_t place : options.checkpoints) {
    if (place > 0 && place <= tokens.size()) continue;
    throw InvalidInput("prefill: checkpoint " + grouped(place) +
                       " is not between 1 and the prompt's " + grouped(tokens.size()) + " tokens");
  }
}

void Session::check_stop(const CallOptions& options) const {
  const std::string place = " after " + grouped(timeline_.size()) + " tokens";
  if (closing_) throw Cancelled("the session was closed" + place);
  if (options.cancel != nullptr && options.cancel->is_set()) throw Cancelled("cancelled" + place);
  if (options.poll) options.poll();
}

void Session::require_sound() const {
  if (sound_) return;
  throw DeviceError("the session cannot go on after its token " + grouped(timeline_.size()) +
                    ": a step failed; prefill anew");
}

void Session::require_logits() const {
  require_sound();
  if (logits_ready_) return;
  throw InvalidInput(timeline_.empty() ? "no logits are ready: nothing was prefilled"
                                       : "no logits are ready: the last prefill did not finish");
}

void Session::set_sampler(const SamplerSettings& s) {
  const Use use(*this);
  if (!(std::isfinite(s.temperature) && s.temperature >= 0)) {
    throw InvalidInput("temperature is " + std::to_string(s.temperature) +
                       ", expected a finite number of at least 0");
  }
  if (!(s.top_p > 0 && s.top_p <= 1)) {
    throw InvalidInput("top_p is " + std::to_string(s.top_p) + ", expected above 0 and at most 1");
  }
  if (!(s.min_p >= 0 && s.min_p <= 1)) {
    throw InvalidInput("min_p is " + std::to_string(s.min_p) + ", expected 0 to 1");
  }
  const Sampler sampler{s.temperature,
                        s.top_p,
                        s.min_p,
                        s.top_k,
                        static_cast<uint32_t>(s.seed),
                        static_cast<uint32_t>(s.seed >> 32)};
  const Turn turn(runtime_->turns());
  drop_ahead();  // its draw would be the old sampler's
  device().write(state_->sampler().view, &sampler, sizeof sampler);
  draw_ready_ = false;
}

uint32_t Session::prefill(std::span<const uint32_t> tokens, const CallOptions& options) {
  const Use use(*this);
  if (tokens.empty()) throw InvalidInput("prefill: the prompt is empty, expected a token or more");
  check_tokens(tokens, "prefill");
  check_checkpoints(tokens, options);
  check_stop(options);
  const uint32_t total = static_cast<uint32_t>(tokens.size());
  const uint32_t reused = resume(tokens);
  const std::vector<uint32_t> places = snapshot_places(tokens, reused, options.checkpoints);
  auto place = places.begin();
  for (uint32_t at = reused; at < total;) {
    uint32_t end = std::min(total, at + runtime_->chunk().capacity);
    if (place != places.end()) end = std::min(end, *place);
    check_stop(options);
    {
      const Turn turn(runtime_->turns());
      run_chunk(tokens.subspan(at, end - at), end == total);
      if (place != places.end() && *place == end) keep_snapshot();
    }
    if (place != places.end() && *place == end) ++place;
    at = end;
    if (options.progress) options.progress(at, total);
  }
  return reused;
}

// Brings the state to the longest prefix of `tokens` that is known, and returns its length. The
// whole prompt counts only where its logits are still ready; otherwise a token is left to compute.
uint32_t Session::resume(std::span<const uint32_t> tokens) {
  const uint32_t total = static_cast<uint32_t>(tokens.size());
  const uint32_t own = sound_ ? common_prefix(timeline_, tokens) : 0;
  const bool is_live = sound_ && own == timeline_.size();
  if (is_live && own == total && logits_ready_) return own;
  const uint32_t live = is_live && own < total ? own : 0;
  const Turn turn(runtime_->turns());
  PrefixCache& cache = runtime_->cache();
  if (live > 0 && live >= cache.depth(tokens.first(total - 1))) return live;
  const PrefixCache::Match match = cache.lookup(tokens, total - 1);
  unsettle();
  if (match.tokens == 0) {
    state_->clear_recurrent(device(), side_);
  } else {
    for (const auto& segment : match.path) {
      state_->load_kv(device(), segment->kv, segment->begin, segment->end, own);
    }
    state_->load_recurrent(device(), side_, match.path.back()->recurrent);
  }
  {
    std::lock_guard lock(timeline_mutex_);
    timeline_.assign(tokens.begin(), tokens.begin() + match.tokens);
  }
  sound_ = true;
  return match.tokens;
}

void Session::restart() {
  const Turn turn(runtime_->turns());
  unsettle();
  state_->clear_recurrent(device(), side_);
  std::lock_guard lock(timeline_mutex_);
  timeline_.clear();
  sound_ = true;
}

// Where prefill stops to keep a snapshot, sorted. The last one stands before the last token: there
// it serves the same prompt again as well as a longer one, for the price of one decode step.
std::vector<uint32_t> Session::snapshot_places(std::span<const uint32_t> tokens, uint32_t reused,
                                               const std::vector<uint32_t>& checkpoints) const {
  if (runtime_->cache().budget_bytes() == 0) return {};
  const uint32_t total = static_cast<uint32_t>(tokens.size());
  const uint32_t interval = runtime_->snapshot_interval();
  std::set<uint32_t> places;
  for (const uint32_t place : checkpoints) {
    if (place > reused) places.insert(place);
  }
  for (uint64_t place = (uint64_t{reused} / interval + 1) * interval; place < total;
       place += interval) {
    if (place >= uint64_t{reused} + kFewestTokensWorthASnapshot) {
      places.insert(static_cast<uint32_t>(place));
    }
  }
  const uint32_t deepest = std::max(runtime_->cache().depth(tokens.first(reused)),
                                    places.empty() ? 0 : *places.rbegin());
  if (total - 1 > reused && total - 1 >= deepest + kFewestTokensWorthASnapshot) {
    places.insert(total - 1);
  }
  return {places.begin(), places.end()};
}

void Session::run_chunk(std::span<const uint32_t> tokens, bool is_last) {
  if (is_last && tokens.size() == 1) {
    if (!decode(tokens.front(), false)) refuse_logits();
    return;
  }
  Step step(device().tiles());
  record_chunk(step, tokens, is_last);
  run(step);
  if (is_last) require_draw(static_cast<uint32_t>(timeline_.size() + tokens.size() - 1));
  accept(tokens);
  logits_ready_ = draw_ready_ = is_last;
}

// Uploads the tokens and records their way through the layers, with logits behind the last.
void Session::record_chunk(Step& step, std::span<const uint32_t> tokens, bool is_last) {
  const ChunkActivations& chunk = runtime_->chunk();
  const uint32_t count = static_cast<uint32_t>(tokens.size());
  const uint32_t position = static_cast<uint32_t>(timeline_.size());
  const uint32_t offsets[2] = {0, count};
  device().write(chunk.ids.view, tokens.data(), tokens.size_bytes());
  device().write(chunk.shared_offsets.view, offsets, sizeof offsets);
  forward().record_prefill(step, chunk, *state_, side_, count, position);
  if (!is_last) return;
  write_cursor(tokens.back(), position + count - 1);
  forward().record_logits(step, chunk, *state_, side_, count - 1);
}

// False where the logits are not finite: the state then belongs to no timeline. The step is under
// way where the one before was followed as expected; and the next is begun before this one is
// waited for, so that the device need not wait for the host.
bool Session::decode(uint32_t token, bool beside) {
  const uint32_t position = static_cast<uint32_t>(timeline_.size());
  const bool is_draw = cursor_ && cursor_->token_id == token && cursor_->position == position;
  followed_ = is_draw ? followed_ + 1 : 0;
  const std::optional<Ticket> begun = is_draw ? std::exchange(ahead_, std::nullopt) : std::nullopt;
  unsettle();
  Ticket ticket;
  if (begun) {
    ticket = *begun;
  } else {
    write_cursor(token, position);
    const Step& step = decode_steps_[side_];
    ticket = beside ? device().submit_beside(step) : device().submit(step);
  }
  cursor_.reset();
  side_ = state_->next_side(side_);
  if (is_worth_beginning(position + 1)) ahead_ = device().submit(decode_steps_[side_]);
  device().wait(ticket);
  if (!read_draw(position)) return false;
  accept({&token, 1});
  logits_ready_ = draw_ready_ = true;
  return true;
}

// Not where others wait for the device, which is busy then.
bool Session::is_worth_beginning(uint32_t position) const {
  return device().runs_behind() && followed_ >= kFollowedToBeginAhead && position < max_tokens_ &&
         !runtime_->turns().are_wanted();
}

// Until accept() says otherwise, the state belongs to no timeline. A step that is under way in vain
// leaves what matters as it is.
void Session::unsettle() {
  sound_ = logits_ready_ = draw_ready_ = false;
  drop_ahead();
}

void Session::drop_ahead() {
  if (!ahead_) return;
  ahead_.reset();
  cursor_.reset();  // it has moved, or will
}

void Session::run(const Step& step) {
  unsettle();
  device().submit(step);
  device().wait();
}

void Session::accept(std::span<const uint32_t> tokens) {
  std::lock_guard lock(timeline_mutex_);
  timeline_.insert(timeline_.end(), tokens.begin(), tokens.end());
  sound_ = true;
}

// The draw has left the cursor at its own token; only another choice must be written.
void Session::write_cursor(uint32_t token, uint32_t position) {
  drop_ahead();
  const Cursor cursor{token, position, {0, 0}};
  const bool is_there = cursor_ && cursor_->token_id == token && cursor_->position == position;
  cursor_.reset();  // the step that follows moves it
  if (!is_there) device().write(state_->cursor().view, &cursor, sizeof cursor);
}

// After the logits of the token at `position`, when the step that drew is done.
bool Session::read_draw(uint32_t position) {
  std::memcpy(&sampled_, state_->side(side_).sampled.view.host(), sizeof sampled_);
  if (!std::isfinite(sampled_.logsumexp)) return false;
  if (sampled_.exact) cursor_ = Cursor{sampled_.token_id, position + 1, {0, 0}};
  return true;
}

void Session::require_draw(uint32_t position) {
  if (!read_draw(position)) refuse_logits();
}

// Whoever calls this is alone on the device.
void Session::refuse_logits() {
  // Snapshots may have been taken from the same numbers.
  runtime_->cache().clear();
  throw ModelError("logits are not finite after token " + grouped(timeline_.size()) +
                   ": the checkpoint holds NaN or Inf weights");
}

void Session::keep_snapshot() {
  StateSource source(device(), *state_, side_);
  try {
    runtime_->cache().insert(timeline_, source);
  } catch (const OutOfMemory&) {
    // A snapshot is a convenience; the prompt goes on without it.
  }
}

Draw Session::sampled() {
  const Use use(*this);
  require_logits();
  if (!draw_ready_) {
    const Turn turn(runtime_->turns());
    const uint32_t position = static_cast<uint32_t>(timeline_.size()) - 1;
    write_cursor(timeline_.back(), position);
    device().submit(draw_steps_[side_]);
    device().wait();
    require_draw(position);
    draw_ready_ = true;
  }
  return {sampled_.token_id, sampled_.exact != 0, sampled_.logsumexp};
}

Draw Session::step(uint32_t token, const Cancel* cancel) {
  const Use use(*this);
  require_sound();
  check_tokens({&token, 1}, "step");
  if (timeline_.size() >= max_tokens_) {
    throw ContextFull("step: the context of " + grouped(max_tokens_) + " tokens is full with " +
                      grouped(timeline_.size()));
  }
  CallOptions options;
  options.cancel = cancel;
  check_stop(options);
  bool is_finite;
  {
    const StepTurn turn(runtime_->turns());
    is_finite = decode(token, turn.beside());
  }
  if (!is_finite) {
    const Turn turn(runtime_->turns());
    refuse_logits();
  }
  return {sampled_.token_id, sampled_.exact != 0, sampled_.logsumexp};
}

std::vector<float> Session::logits() {
  const Use use(*this);
  require_logits();
  std::vector<float> row(runtime_->config().vocab);
  const Turn turn(runtime_->turns());
  followed_ = 0;  // the caller chooses by other rules than the device's
  device().read(state_->side(side_).logits.view, row.data(), row.size() * sizeof(float));
  return row;
}

Candidates Session::candidates() {
  const Use use(*this);
  require_logits();
  const uint32_t count = std::min<uint32_t>(sampled_.num_candidates, kCandidates);
  return {{sampled_.ids, sampled_.ids + count}, {sampled_.logits, sampled_.logits + count}};
}

void Session::save() {
  const Use use(*this);
  require_sound();
  const Turn turn(runtime_->turns());
  if (!timeline_.empty()) keep_snapshot();
}

}  // namespace lily
