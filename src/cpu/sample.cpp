// sample: lm_head with candidate selection, the draw, and scores of given tokens. The meaning of
// the draw is stated in python/lily/sampling.py; this is the part of it that 64 candidates decide.
#include <cmath>

#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {
namespace {

// Higher logit first; equal logits: lower id first. A NaN is never better than anything.
inline bool better(float logit, uint32_t id, float other_logit, uint32_t other_id) {
  return logit > other_logit || (logit == other_logit && id < other_id);
}

// The best kCandidates of what is offered: a heap whose root is the worst of them.
class Best {
 public:
  Best(uint32_t* ids, float* logits) : ids_(ids), logits_(logits) {}
  uint32_t count() const { return count_; }

  void offer(float logit, uint32_t id) {
    if (count_ == kCandidates) {
      if (!better(logit, id, logits_[0], ids_[0])) return;
      sift_down(logit, id, count_);
      return;
    }
    if (std::isnan(logit)) return;
    uint32_t at = count_++;
    for (; at > 0 && better(logits_[(at - 1) / 2], ids_[(at - 1) / 2], logit, id);
         at = (at - 1) / 2) {
      put(at, logits_[(at - 1) / 2], ids_[(at - 1) / 2]);
    }
    put(at, logit, id);
  }

  // Sorts them, best first. Nothing may be offered afterwards.
  void finish() {
    for (uint32_t left = count_; left > 1; --left) {
      const float logit = logits_[left - 1];
      const uint32_t id = ids_[left - 1];
      put(left - 1, logits_[0], ids_[0]);
      sift_down(logit, id, left - 1);
    }
  }

 private:
  void put(uint32_t at, float logit, uint32_t id) { logits_[at] = logit, ids_[at] = id; }
  // Places (logit, id) from the root of a heap of `size`.
  void sift_down(float logit, uint32_t id, uint32_t size) {
    uint32_t at = 0;
    for (;;) {
      uint32_t child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size &&
          better(logits_[child], ids_[child], logits_[child + 1], ids_[child + 1])) {
        ++child;
      }
      if (!better(logit, id, logits_[child], ids_[child])) break;
      put(at, logits_[child], ids_[child]);
      at = child;
    }
    put(at, logit, id);
  }

  uint32_t* ids_;
  float* logits_;
  uint32_t count_ = 0;
};

float highest(const float* x, int n) {
  Floats top = splat(x[0]);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) top = max(top, load(x + i));
  float result = maximum(top);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

float sum_exp(const float* x, int n, float maximum) {
  Floats total = zeros();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) total = total + exp(load(x + i) - splat(maximum));
  float rest = 0.0f;
  for (; i < n; ++i) rest += std::exp(x[i] - maximum);
  return sum(total) + rest;
}

template <class S>
void sample_logits(const Args& args) {
  const auto& p = args.as<SampleParams>();
  const float* x = args.at<const float>(0);
  const float* gain = args.at<const float>(1);
  const Stored lm_head = stored_at(args, 2, p.hidden, p.group_size);
  float* logits = args.at<float>(5);
  SampleBlock* blocks = args.at<SampleBlock>(6);
  const int hidden = static_cast<int>(p.hidden);
  float* normed = reinterpret_cast<float*>(args.scratch);
  rms_norm(x, gain, hidden, p.eps, normed);
  const PreparedRow row = prepare_row<S>(normed, hidden, p.group_size, normed + hidden + kLanes);
  args.work.for_ranges(p.num_blocks, 1, [&](uint64_t index, uint64_t) {
    const uint32_t first = static_cast<uint32_t>(index) * kSampleBlockRows;
    const uint32_t left = p.vocab - first;
    const uint32_t count = left < kSampleBlockRows ? left : static_cast<uint32_t>(kSampleBlockRows);
    dot_rows<S>(lm_head, first, count, row, logits + first);
    SampleBlock& block = blocks[index];
    Best best(block.ids, block.logits);
    for (uint32_t i = 0; i < count; ++i) best.offer(logits[first + i], first + i);
    best.finish();
    block.num_candidates = best.count();
    block.max_logit = highest(logits + first, static_cast<int>(count));
    block.sum_exp = sum_exp(logits + first, static_cast<int>(count), block.max_logit);
  });
}

// Philox4x32-10 (Salmon et al., SC11), first word: 24 uniform bits of (seed, position).
float uniform(uint32_t seed_low, uint32_t seed_high, uint64_t position) {
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  uint32_t k0 = seed_low, k1 = seed_high;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    std::memcpy(c, next, sizeof c);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return static_cast<float>(c[0] >> 8) * 0x1p-24f;
}

float sum_of(const float* weights, uint32_t count) {
  float total = 0.0f;
  for (uint32_t i = 0; i < count; ++i) total += weights[i];
  return total;
}

// Chooses among the candidates in `found`; returns false when the filters reach past them.
bool draw(Sampled& found, const Sampler& sampler, uint32_t vocab, uint64_t position) {
  const uint32_t n = found.num_candidates;
  if (n == 0) return false;
  found.token_id = found.ids[0];
  if (sampler.temperature == 0.0f) return true;
  float weights[kCandidates];
  const float inverse = 1.0f / sampler.temperature;
  for (uint32_t i = 0; i < n; ++i)
    weights[i] = std::exp((found.logits[i] - found.logits[0]) * inverse);
  uint32_t kept = n;
  bool all_seen = n == vocab;
  if (sampler.top_k > 0 && sampler.top_k <= n) kept = sampler.top_k, all_seen = true;
  // The mass of everything that is not filtered out; of a whole row it is known at temperature 1
  // only.
  const bool mass_known = all_seen || (sampler.temperature == 1.0f && sampler.top_k == 0);
  float total = all_seen ? sum_of(weights, kept) : std::exp(found.logsumexp - found.logits[0]);
  if (sampler.top_p < 1.0f) {
    if (!mass_known) return false;
    const float wanted = sampler.top_p * total;
    float mass = weights[0];
    uint32_t smallest = 1;
    while (smallest < kept && mass < wanted) mass += weights[smallest++];
    if (mass < wanted && !all_seen) return false;
    kept = smallest;
    all_seen = true;
  }
  if (sampler.min_p > 0.0f) {
    if (!all_seen && weights[kept - 1] >= sampler.min_p) return false;
    while (kept > 1 && weights[kept - 1] < sampler.min_p) --kept;
    all_seen = true;
  }
  if (all_seen) {
    total = sum_of(weights, kept);
  } else if (!mass_known) {
    return false;
  }
  const float target = uniform(sampler.seed_low, sampler.seed_high, position) * total;
  float mass = 0.0f;
  for (uint32_t i = 0; i < kept; ++i) {
    mass += weights[i];
    if (mass > target || (all_seen && i + 1 == kept)) {
      found.token_id = found.ids[i];
      return true;
    }
  }
  return false;  // the draw fell among tokens that are no candidates
}

void sample_draw(const Args& args) {
  const auto& p = args.as<SampleParams>();
  const SampleBlock* blocks = args.at<const SampleBlock>(0);
  Cursor& cursor = *args.at<Cursor>(2);
  Sampled& found = *args.at<Sampled>(3);
  args.work.for_ranges(1, 1, [&](uint64_t, uint64_t) {
    Best best(found.ids, found.logits);
    float top = blocks[0].max_logit, total = 0.0f;
    for (uint32_t b = 0; b < p.num_blocks; ++b) {
      for (uint32_t i = 0; i < blocks[b].num_candidates; ++i) {
        best.offer(blocks[b].logits[i], blocks[b].ids[i]);
      }
      top = blocks[b].max_logit > top ? blocks[b].max_logit : top;
    }
    best.finish();
    for (uint32_t b = 0; b < p.num_blocks; ++b) {
      total += blocks[b].sum_exp * std::exp(blocks[b].max_logit - top);
    }
    found.num_candidates = best.count();
    found.logsumexp = top + std::log(total);
    found.token_id = 0;
    const uint32_t position = cursor.position + 1;
    found.exact = draw(found, *args.at<const Sampler>(1), p.vocab, position);
    cursor.token_id = found.token_id;
    cursor.position = position;
  });
}

void sample_score(const Args& args) {
  const auto& p = args.as<SampleParams>();
  const int vocab = static_cast<int>(p.vocab);
  args.work.for_ranges(p.tokens, 1, [&](uint64_t t, uint64_t) {
    const float* row = args.at<const float>(0) + t * p.vocab;
    int best = 0;
    for (int i = 1; i < vocab; ++i) best = row[i] > row[best] ? i : best;
    const float top = highest(row, vocab);
    const float target = row[args.at<const uint32_t>(1)[t]];
    args.at<float>(2)[t] = target - (top + std::log(sum_exp(row, vocab, top)));
    args.at<uint32_t>(3)[t] = static_cast<uint32_t>(best);
  });
}

constexpr NamedKernel kKernels[] = {
    {"sample_logits_f32", sample_logits<StoredF32>},
    {"sample_logits_bf16", sample_logits<StoredBf16>},
    {"sample_logits_q8", sample_logits<StoredQ8>},
    {"sample_logits_q4", sample_logits<StoredQ4>},
    {"sample_draw_f32", sample_draw},
    {"sample_score_f32", sample_score},
};

}  // namespace

KernelList sample_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA
