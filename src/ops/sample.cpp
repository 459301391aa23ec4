// From the last hidden row to a token: logits with their best candidates, the draw that feeds
// itself back, and the scores of given tokens. Sampler and cursor are device memory.
#include "ops/check.h"

namespace lily::ops {
namespace {

uint32_t num_blocks(uint32_t vocab) {
  return vocab / kSampleBlockRows + (vocab % kSampleBlockRows != 0);
}

}  // namespace

void sample_logits(Step& step, const Tensor& logits, const Tensor& blocks, const Tensor& x,
                   const Tensor& gain, float eps, const Matrix& lm_head) {
  const Check check("sample_logits");
  const uint32_t hidden = check.count("hidden", x.dim(1), kMaxHiddenOfHead);
  const uint32_t vocab = check.count("vocab", lm_head.rows);
  check.f32("x", x, {{"one token", 1}, {"hidden", hidden}});
  check.f32("gain", gain, {{"hidden", hidden}});
  check.eps(eps);
  check.matrix("lm_head", lm_head, {"vocab", vocab}, {"hidden", hidden});
  check.f32("logits", logits, {{"one token", 1}, {"vocab", vocab}});
  check.record("blocks", blocks, "one SampleBlock for kSampleBlockRows of vocab each",
               num_blocks(vocab) * uint64_t{sizeof(SampleBlock)});

  SampleParams params{};
  params.tokens = 1;
  params.vocab = vocab;
  params.hidden = hidden;
  params.group_size = lm_head.group_size;
  params.num_blocks = num_blocks(vocab);
  params.eps = eps;
  step.add(kernel_name("sample_logits", lm_head.storage),
           Bindings().in(x).in(gain).in(lm_head).out(logits).out(blocks), params,
           sample_logits_grid(step.tiles(), lm_head, params.num_blocks));
}

void sample_draw(Step& step, const Tensor& result, const Tensor& blocks, const Tensor& sampler,
                 const Tensor& cursor, uint32_t vocab) {
  const Check check("sample_draw");
  SampleParams params{};
  params.tokens = 1;
  params.vocab = check.count("vocab", vocab, kMaxSampleBlocks * kSampleBlockRows);
  params.num_blocks = num_blocks(vocab);
  check.record("blocks", blocks, "one SampleBlock for kSampleBlockRows of vocab each",
               params.num_blocks * uint64_t{sizeof(SampleBlock)});
  check.record("sampler", sampler, "Sampler", sizeof(Sampler));
  check.record("cursor", cursor, "Cursor", sizeof(Cursor));
  check.record("result", result, "Sampled", sizeof(Sampled));

  step.add(kernel_name("sample_draw", DType::f32),
           Bindings().in(blocks).in(sampler).inout(cursor).out(result), params, sample_draw_grid());
}

void sample_score(Step& step, const Tensor& logprobs, const Tensor& best, const Tensor& logits,
                  const Tensor& targets) {
  const Check check("sample_score");
  const uint32_t tokens = check.count("tokens", logits.dim(0));
  const uint32_t vocab = check.count("vocab", logits.dim(1));
  check.f32("logits", logits, {{"tokens", tokens}, {"vocab", vocab}});
  check.u32("targets", targets, {{"tokens", tokens}});
  check.f32("logprobs", logprobs, {{"tokens", tokens}});
  check.u32("best", best, {{"tokens", tokens}});

  SampleParams params{};
  params.tokens = tokens;
  params.vocab = vocab;
  step.add(kernel_name("sample_score", DType::f32),
           Bindings().in(logits).in(targets).out(logprobs).out(best), params,
           sample_score_grid(tokens));
}

}  // namespace lily::ops
