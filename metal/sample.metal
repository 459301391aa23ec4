// sample: lm_head with candidate selection, the draw, and scores of given tokens. The meaning of
// the draw is stated in python/lily/sampling.py; this is the part of it that 64 candidates decide.
#include "candidates.h"
#include "choose.h"
#include "digits.h"
#include "weights.h"

namespace lily {

// --- Logits and their best. A threadgroup takes kSampleBlockRows rows of the vocabulary, each
// simdgroup as many of them as the others.

enum : uint {
  kRowsAtOnce = 4,
  kRowsPerSimdgroup = kSampleBlockRows / kGemvSimdgroups,  // 128: four for each lane
  kLaneRows = kRowsPerSimdgroup / kLanes
};

// Where a threadgroup's logits become its block of candidates.
struct RankMemory {
  threadgroup float* partial;    // [2 * kGemvSimdgroups]
  threadgroup float* found;      // [kSampleBlockRows]: the logits, each simdgroup's after another's
  threadgroup Candidate* lists;  // [kGemvSimdgroups / 2 * kCandidates]
};

// Writes the logits of rows from `first` on, which this simdgroup has found, and the best of the
// block. All threads must call it.
inline void rank_logits(RankMemory memory, uint first, uint vocab, device float* logits,
                        device SampleBlock& block, uint lane, uint simdgroup) {
  threadgroup const float* mine = memory.found + simdgroup * kRowsPerSimdgroup;
  Candidate sorted[kLaneRows];
  float top = -INFINITY;
  LILY_UNROLL
  for (uint n = 0; n < kLaneRows; ++n) {
    const uint i = n * kLanes + lane;
    const bool there = first + i < vocab;
    const float logit = mine[i];
    if (there) logits[first + i] = logit;
    sorted[n] = candidate(logit, first + i, there);
    top = max(top, sorted[n].logit);
  }
  top = simd_max(top);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) memory.partial[simdgroup] = top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 0; s < kGemvSimdgroups; ++s) top = max(top, memory.partial[s]);
  float sum = 0.0f;
  LILY_UNROLL
  for (uint n = 0; n < kLaneRows; ++n) {
    const uint i = n * kLanes + lane;
    if (first + i < vocab) sum += exp(mine[i] - top);
  }
  sum = simd_sum(sum);
  if (lane == 0) memory.partial[kGemvSimdgroups + simdgroup] = sum;

  sort_candidates<kLaneRows>(sorted, lane);
  Candidate best[kLaneBest];
  LILY_UNROLL
  for (uint n = 0; n < kLaneBest; ++n) best[n] = sorted[n];
  merge_lists<kGemvSimdgroups>(best, memory.lists, lane, simdgroup);
  if (simdgroup != 0) return;
  uint count = 0;
  LILY_UNROLL
  for (uint n = 0; n < kLaneBest; ++n) {
    count += best[n].id != kNoToken;
    block.ids[n * kLanes + lane] = best[n].id;
    block.logits[n * kLanes + lane] = best[n].logit;
  }
  count = simd_sum(count);
  if (lane != 0) return;
  float sum_exp = 0.0f;
  for (uint s = 0; s < kGemvSimdgroups; ++s) sum_exp += memory.partial[kGemvSimdgroups + s];
  block.max_logit = top;
  block.sum_exp = sum_exp;
  block.num_candidates = count;
}

// 1 / rms of x from each thread's part of the sum of squares. All threads must call it.
inline float rms_factor(float squares, uint hidden, float eps, threadgroup float* partial,
                        uint lane, uint simdgroup) {
  squares = simd_sum(squares);
  if (lane == 0) partial[simdgroup] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint s = 0; s < kGemvSimdgroups; ++s) total += partial[s];
  return precise::rsqrt(total / float(hidden) + eps);
}

// x f32 [1, H], gain f32 [H], logits f32 [1, V], blocks [ceil(V / kSampleBlockRows)]
template <class S>
[[kernel]] void sample_logits(
    device const float* x [[buffer(0)]], device const float* gain [[buffer(1)]],
    device const uchar* weight [[buffer(2)]], device const bfloat* scales [[buffer(3)]],
    device const bfloat* biases [[buffer(4)]], device float* logits [[buffer(5)]],
    device SampleBlock* blocks [[buffer(6)]], constant SampleParams& p [[buffer(7)]], LILY_PLACE) {
  LILY_THREADGROUP(float, slab, kSlabColumns);
  LILY_THREADGROUP(float, partial, 2 * kGemvSimdgroups);
  LILY_THREADGROUP(float, found, kSampleBlockRows);
  LILY_THREADGROUP(Candidate, lists, kGemvSimdgroups / 2 * kCandidates);
  const Stored lm_head{weight, scales, biases, p.hidden, p.group_size};
  const float squares = stage<S>(x, gain, p.hidden, slab, thread_index);
  const float factor = rms_factor(squares, p.hidden, p.eps, partial, lane, simdgroup);

  threadgroup float* mine = found + simdgroup * kRowsPerSimdgroup;
  const uint first = group.x * kSampleBlockRows + simdgroup * kRowsPerSimdgroup;
  for (uint at = 0; at < kRowsPerSimdgroup; at += kRowsAtOnce) {
    Row rows[kRowsAtOnce];
    float acc[kRowsAtOnce];
    LILY_UNROLL
    for (uint r = 0; r < kRowsAtOnce; ++r) {
      rows[r] = row_of<S>(lm_head, min(first + at + r, p.vocab - 1));
      acc[r] = 0.0f;
    }
    Ahead<S, kRowsAtOnce> ahead;
    ahead.load(rows, lm_head, 0, p.hidden, 0, lane);
    multiply_slab<S, kRowsAtOnce, 1>(rows, lm_head, 0, p.hidden, slab, 0, lane, ahead, acc);
    LILY_UNROLL
    for (uint r = 0; r < kRowsAtOnce; ++r) {
      const float logit = simd_sum(acc[r]) * factor;
      if (lane == 0) mine[at + r] = logit;
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  rank_logits({partial, found, lists}, first, p.vocab, logits, blocks[group.x], lane, simdgroup);
}

LILY_KERNEL(sample_logits_f32, 256, sample_logits<F32>)
LILY_KERNEL(sample_logits_bf16, 256, sample_logits<Bf16>)
LILY_KERNEL(sample_logits_q8, 256, sample_logits<Q8>)
LILY_KERNEL(sample_logits_q4, 256, sample_logits<Q4<4>>)

// --- The same by integer matrix units (digits.h), for 4-bit rows. A simdgroup takes its rows in
// tiles of 16 and these in slices of 256 columns, the next of them under way.

enum : uint {
  kHeadSteps = 2,
  kHeadSlice = kHeadSteps * kStepColumns,
  kHeadMemory = digit_memory(kMaxHiddenOfHead / kStepColumns, 1)
};

struct HeadRows {
  Stored head;
  uint first, last;
  Row row(uint n) const thread { return code_row<Q4<4>>(head, min(first + n, last)); }
};

typedef Codes<Q4<4>, 1, kHeadSteps> HeadCodes;

// Slice `at` of this simdgroup's, counted over its tiles.
struct HeadSlices {
  Stored head;
  uint first, last, slices;  // rows; slices of a tile
  void load(thread HeadCodes& codes, uint at, uint lane) const thread {
    const HeadRows rows{head, first + at / slices * kTileCodes, last};
    codes.load(rows, at % slices * kHeadSlice, lane);
  }
};

// Slice `at` times its digits; after a tile's last, its logits into `found`.
inline void multiply_head(thread const HeadCodes& codes, Digits digits, uint at, uint slices,
                          float factor, threadgroup float* found, uint lane,
                          thread float (&sums)[2]) {
  const uint slice = at % slices;
  const Digits here{digits.planes + slice * kHeadSteps * kStepBytes,
                    digits.factors + slice * kHeadSteps * 2, digits.zeros};
  multiply_digits<Q4<4>, 1, kHeadSteps>(codes, here, lane, sums);
  if (slice + 1 != slices) return;
  LILY_UNROLL
  for (uint r = 0; r < 2; ++r) {
    float sum = sums[r] + simd_shuffle_xor(sums[r], 1);
    sum += simd_shuffle_xor(sum, 2);
    if (lane % 4 == 0) found[at / slices * kTileCodes + r * 8 + lane / 4] = sum * factor;
    sums[r] = 0.0f;
  }
}

[[kernel]] void sample_logits_digits(
    device const float* x [[buffer(0)]], device const float* gain [[buffer(1)]],
    device const uchar* weight [[buffer(2)]], device const bfloat* scales [[buffer(3)]],
    device const bfloat* biases [[buffer(4)]], device float* logits [[buffer(5)]],
    device SampleBlock* blocks [[buffer(6)]], constant SampleParams& p [[buffer(7)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, kHeadMemory);
  LILY_THREADGROUP(float, partial, 2 * kGemvSimdgroups);
  LILY_THREADGROUP(float, found, kSampleBlockRows);
  LILY_THREADGROUP(Candidate, lists, kGemvSimdgroups / 2 * kCandidates);
  const Digits digits = digits_in(memory, kMaxHiddenOfHead / kStepColumns, 1, 0);
  const uint first = group.x * kSampleBlockRows + simdgroup * kRowsPerSimdgroup;
  const HeadSlices slices{
      {weight, scales, biases, p.hidden, p.group_size}, first, p.vocab - 1, p.hidden / kHeadSlice};
  HeadCodes now, next;
  slices.load(now, 0, lane);
  LILY_WAIT_FOR_STEP();
  RowOfX<float, true> source{x, gain, {}};
  float squares = 0.0f;
  if (thread_index < 2) digits.zeros[thread_index] = uint4(0);
  for (uint k = thread_index * 8; k < p.hidden; k += kGemvThreads * 8) {
    float eight[8];
    source.load_ahead(k);
    squares += source.load(k, eight);
    stage_eight<Q4<4>>(eight, digits, k);
  }
  const float factor = rms_factor(squares, p.hidden, p.eps, partial, lane, simdgroup);

  threadgroup float* mine = found + simdgroup * kRowsPerSimdgroup;
  const uint all = kRowsPerSimdgroup / kTileCodes * slices.slices;  // an even number
  float sums[2] = {0.0f, 0.0f};
  for (uint at = 0; at < all; at += 2) {
    slices.load(next, at + 1, lane);
    multiply_head(now, digits, at, slices.slices, factor, mine, lane, sums);
    if (at + 2 < all) slices.load(now, at + 2, lane);
    multiply_head(next, digits, at + 1, slices.slices, factor, mine, lane, sums);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  rank_logits({partial, found, lists}, first, p.vocab, logits, blocks[group.x], lane, simdgroup);
}
LILY_EARLY_KERNEL(sample_logits_q4_i256, 256, 2, sample_logits_digits)

// --- The draw

enum : uint { kDrawThreads = kMaxSampleBlocks, kDrawSimdgroups = kDrawThreads / kLanes };

// Philox4x32-10 (Salmon et al., SC11), first word: 24 uniform bits of (seed, position).
inline float uniform_draw(uint seed_low, uint seed_high, uint position) {
  uint c0 = position, c1 = 0, c2 = 0, c3 = 0, k0 = seed_low, k1 = seed_high;
  for (int round = 0; round < 10; ++round) {
    const uint high0 = mulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint high1 = mulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return float(c0 >> 8) * 0x1p-24f;
}

// How many of the best candidates the filters leave, given the mass of the row where it is known.
// all_seen: nothing that passes lies outside the candidates. Returns false when that cannot be
// said.
struct Kept {
  uint count;
  float total;
  bool all_seen;
};
inline float mass_of(threadgroup const float* weights, uint count) {
  float mass = 0.0f;
  for (uint i = 0; i < count; ++i) mass += weights[i];
  return mass;
}
inline bool filter_candidates(thread Kept& kept, Sampler sampler, threadgroup const float* weights,
                              bool mass_known) {
  if (sampler.top_p < 1.0f) {
    if (!mass_known) return false;
    const float wanted = sampler.top_p * kept.total;
    float mass = weights[0];
    uint smallest = 1;
    while (smallest < kept.count && mass < wanted) mass += weights[smallest++];
    if (mass < wanted && !kept.all_seen) return false;
    kept.count = smallest;
    kept.all_seen = true;
  }
  if (sampler.min_p > 0.0f) {
    if (!kept.all_seen && weights[kept.count - 1] >= sampler.min_p) return false;
    while (kept.count > 1 && weights[kept.count - 1] < sampler.min_p) --kept.count;
    kept.all_seen = true;
  }
  if (kept.all_seen) kept.total = mass_of(weights, kept.count);
  return kept.all_seen || mass_known;
}

// The place of the drawn token among n sorted candidates, or n when they do not decide it.
inline uint draw_place(Sampler sampler, threadgroup const float* logits, threadgroup float* weights,
                       uint n, uint vocab, float logsumexp, uint position) {
  if (n == 0) return n;
  if (sampler.temperature == 0.0f) return 0;
  const float inverse = 1.0f / sampler.temperature;
  for (uint i = 0; i < n; ++i) weights[i] = exp((logits[i] - logits[0]) * inverse);
  Kept kept{n, 0.0f, n == vocab};
  if (sampler.top_k > 0 && sampler.top_k <= n) kept.count = sampler.top_k, kept.all_seen = true;
  // The mass of everything not filtered out; of a whole row it is known at temperature 1 only.
  const bool mass_known = kept.all_seen || (sampler.temperature == 1.0f && sampler.top_k == 0);
  kept.total = kept.all_seen ? mass_of(weights, kept.count) : exp(logsumexp - logits[0]);
  if (!filter_candidates(kept, sampler, weights, mass_known)) return n;
  const float target = uniform_draw(sampler.seed_low, sampler.seed_high, position) * kept.total;
  float mass = 0.0f;
  for (uint i = 0; i < kept.count; ++i) {
    mass += weights[i];
    if (mass > target || (kept.all_seen && i + 1 == kept.count)) return i;
  }
  return n;  // the draw fell among tokens that are no candidates
}

// The lane's candidates of a block's list; of kNoToken's, none.
inline void load_list(thread Candidate (&list)[kLaneBest], device const SampleBlock* blocks,
                      uint at, uint lane) {
  const bool there = at != kNoToken;
  device const SampleBlock& block = blocks[there ? at : 0];
  LILY_UNROLL
  for (uint n = 0; n < kLaneBest; ++n) {
    const uint i = n * kLanes + lane;
    list[n] = candidate(block.logits[i], block.ids[i], there && i < block.num_candidates);
  }
}

// The blocks of the kCandidates highest logits, in order, in `order`: of blocks that are as high
// the first, whose ids are lower. A candidate of any other block has as many before it. tops:
// [kDrawThreads]. All threads must call it.
inline void rank_blocks(device const SampleBlock* blocks, uint num_blocks, threadgroup uint* tops,
                        threadgroup uint* order, uint thread_index) {
  const bool there = thread_index < num_blocks;
  device const SampleBlock& own = blocks[there ? thread_index : 0];
  const uint top = there && own.num_candidates > 0 ? key_of(own.max_logit) : 0;
  tops[thread_index] = top;
  if (thread_index < kCandidates) order[thread_index] = kNoToken;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (top > 0) {
    uint before = 0;  // blocks that are higher, or as high and earlier
    for (uint b = 0; b < num_blocks; b += 4) {
      const uint4 others = *(threadgroup const uint4*)(tops + b);
      LILY_UNROLL
      for (uint i = 0; i < 4; ++i) before += others[i] + uint(b + i < thread_index) > top;
    }
    if (before < kCandidates) order[before] = thread_index;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline Candidate simd_best(Candidate mine) {
  const float top = simd_max(mine.logit);
  return {top, simd_min(mine.logit == top ? mine.id : uint(kNoToken))};
}

// log-sum-exp of the row from its blocks' parts. All threads must call it.
inline float row_logsumexp(device const SampleBlock* blocks, uint num_blocks,
                           threadgroup float* partial, uint thread_index, uint lane,
                           uint simdgroup) {
  const bool there = thread_index < num_blocks;
  device const SampleBlock& own = blocks[there ? thread_index : 0];
  const float own_top = there ? own.max_logit : -INFINITY, own_sum = there ? own.sum_exp : 0.0f;
  const float highest = simd_max(own_top);
  if (lane == 0) partial[simdgroup] = highest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float top = simd_max(partial[lane]);
  const float sum = simd_sum(there ? own_sum * exp(own_top - top) : 0.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) partial[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return top + log(simd_sum(partial[lane]));
}

// blocks [num_blocks], sampler, cursor (inout), result Sampled
[[kernel]] void sample_draw(device const SampleBlock* blocks [[buffer(0)]],
                            device const Sampler* sampler [[buffer(1)]],
                            device Cursor* cursor [[buffer(2)]],
                            device Sampled* result [[buffer(3)]],
                            constant SampleParams& p [[buffer(4)]], LILY_PLACE) {
  LILY_THREADGROUP(Candidate, lists, kDrawSimdgroups / 2 * kCandidates);
  LILY_THREADGROUP(Sixteen, top_memory, kDrawThreads / 4);
  LILY_THREADGROUP(uint, order, kCandidates);
  LILY_THREADGROUP(float, partial, kDrawSimdgroups);
  LILY_THREADGROUP(float, logits, kCandidates);
  LILY_THREADGROUP(float, weights, kCandidates);
  // Each simdgroup merges two lists; then they merge theirs.
  const uint position = cursor->position + 1;
  rank_blocks(blocks, p.num_blocks, (threadgroup uint*)top_memory, order, thread_index);
  Candidate best[kLaneBest], other[kLaneBest];
  load_list(best, blocks, order[simdgroup], lane);
  load_list(other, blocks, order[simdgroup + kDrawSimdgroups], lane);
  const float logsumexp =
      row_logsumexp(blocks, p.num_blocks, partial, thread_index, lane, simdgroup);
  merge_registers<kLaneBest>(best, other, lane);
  merge_lists<kDrawSimdgroups>(best, lists, lane, simdgroup);
  uint count = 0;
  if (simdgroup == 0) {
    LILY_UNROLL
    for (uint n = 0; n < kLaneBest; ++n) {
      const uint i = n * kLanes + lane;
      logits[i] = best[n].logit;
      count += best[n].id != kNoToken;
      if (best[n].id == kNoToken) continue;
      result->ids[i] = best[n].id;
      result->logits[i] = best[n].logit;
    }
    count = simd_sum(count);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup != 0) return;
  uint place = 0;
  if (lane == 0) {
    place = draw_place(*sampler, logits, weights, count, p.vocab, logsumexp, position);
  }
  place = simd_broadcast(place, 0);
  uint token = 0;
  LILY_UNROLL
  for (uint n = 0; n < kLaneBest; ++n) {
    if (place < count && place == n * kLanes + lane) token = best[n].id;
  }
  token = simd_sum(token);
  if (lane != 0) return;
  result->num_candidates = count;
  result->logsumexp = logsumexp;
  result->token_id = token;
  result->exact = place < count;
  cursor->token_id = token;
  cursor->position = position;
}
LILY_KERNEL(sample_draw_f32, 1024, sample_draw)

// --- Scores. A threadgroup takes a row.

enum : uint { kScoreThreads = 1024, kScoreSimdgroups = kScoreThreads / kLanes };

// logits f32 [T, V], targets u32 [T], logprobs f32 [T], best u32 [T]
[[kernel]] void sample_score(device const float* logits [[buffer(0)]],
                             device const uint* targets [[buffer(1)]],
                             device float* logprobs [[buffer(2)]], device uint* best [[buffer(3)]],
                             constant SampleParams& p [[buffer(4)]], LILY_PLACE) {
  LILY_THREADGROUP(Candidate, winners, kScoreSimdgroups);
  LILY_THREADGROUP(float, partial, kScoreSimdgroups);
  device const float* row = logits + ulong(group.x) * p.vocab;
  Candidate top{-INFINITY, kNoToken};
  for (uint i = thread_index; i < p.vocab; i += kScoreThreads) {
    top = choose_candidate(top, candidate(row[i], i, true), true);
  }
  top = simd_best(top);
  if (lane == 0) winners[simdgroup] = top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 0; s < kScoreSimdgroups; ++s) top = choose_candidate(top, winners[s], true);
  float sum = 0.0f;
  for (uint i = thread_index; i < p.vocab; i += kScoreThreads) sum += exp(row[i] - top.logit);
  sum = simd_sum(sum);
  if (lane == 0) partial[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index != 0) return;
  float total = 0.0f;
  for (uint s = 0; s < kScoreSimdgroups; ++s) total += partial[s];
  logprobs[group.x] = row[targets[group.x]] - (top.logit + log(total));
  best[group.x] = top.id == kNoToken ? 0 : top.id;
}
LILY_KERNEL(sample_score_f32, 1024, sample_score)

}  // namespace lily
