// What a text is worth: logits at every place of a prompt, a block of rows at a time. See
// session.h.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "engine/session.h"
#include "engine/session_use.h"

namespace lily {

void Session::for_logit_rows(std::span<const uint32_t> tokens, const CallOptions& options,
                             const std::function<void(uint32_t begin, uint32_t end)>& block) {
  check_stop(options);
  restart();
  const uint32_t total = static_cast<uint32_t>(tokens.size());
  for (uint32_t at = 0; at < total;) {
    const uint32_t end = std::min(total, at + runtime_->chunk().capacity);
    check_stop(options);
    const Turn turn(runtime_->turns());
    const ScoreRows& rows = runtime_->score_rows();
    Step step(device().tiles());
    record_chunk(step, tokens.subspan(at, end - at), end == total);
    run(step);
    for (uint32_t begin = at; begin < end; begin += rows.capacity) {
      const uint32_t block_end = std::min(end, begin + rows.capacity);
      Step logits(device().tiles());
      forward().record_rows(logits, runtime_->chunk(), rows, begin - at, block_end - at);
      run(logits);
      block(begin, block_end);
    }
    if (end == total) require_draw(end - 1);
    accept(tokens.subspan(at, end - at));
    logits_ready_ = draw_ready_ = end == total;
    at = end;
    if (options.progress) options.progress(at, total);
  }
}

Scores Session::score(std::span<const uint32_t> tokens, const CallOptions& options) {
  const Use use(*this);
  if (tokens.size() < 2) {
    throw InvalidInput("score: " + grouped(tokens.size()) + " tokens given, expected 2 or more");
  }
  check_tokens(tokens, "score");
  Scores scores;
  scores.logprobs.resize(tokens.size() - 1);
  scores.best.resize(tokens.size() - 1);
  for_logit_rows(tokens, options, [&](uint32_t begin, uint32_t end) {
    end =
        std::min<uint32_t>(end, static_cast<uint32_t>(tokens.size()) - 1);  // the last has no next
    if (begin >= end) return;
    const ScoreRows& rows = runtime_->score_rows();
    const size_t bytes = (end - begin) * sizeof(uint32_t);
    device().write(rows.targets.view, tokens.data() + begin + 1, bytes);
    Step step(device().tiles());
    forward().record_score(step, rows, end - begin);
    run(step);
    device().read(rows.logprobs.view, scores.logprobs.data() + begin, bytes);
    device().read(rows.best.view, scores.best.data() + begin, bytes);
    const auto is_nan = [](float value) { return std::isnan(value); };
    const auto first = scores.logprobs.begin() + begin, last = scores.logprobs.begin() + end;
    if (std::any_of(first, last, is_nan)) refuse_logits();
  });
  return scores;
}

std::vector<float> Session::all_logits(std::span<const uint32_t> tokens,
                                       const CallOptions& options) {
  const Use use(*this);
  if (tokens.empty()) throw InvalidInput("all_logits: expected a token or more");
  check_tokens(tokens, "all_logits");
  const size_t vocab = runtime_->config().vocab;
  std::vector<float> logits(tokens.size() * vocab);
  for_logit_rows(tokens, options, [&](uint32_t begin, uint32_t end) {
    const ScoreRows& rows = runtime_->score_rows();
    const size_t bytes = (end - begin) * vocab * sizeof(float);
    device().read(rows.logits.view, logits.data() + begin * vocab, bytes);
  });
  return logits;
}

}  // namespace lily
