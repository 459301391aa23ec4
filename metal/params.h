// One parameter struct per kernel, read by the kernels (Metal, CPU) and by src/ops alike. A leaf:
// plain C structs of 32-bit fields, the same bytes for every compiler. Knows no host and no model.
//
// Letters used in shape comments everywhere:
//   T tokens      H hidden       V vocabulary     N output rows   K input columns
//   Q query heads G kv heads     D head_dim       P capacity of a KV cache in tokens
//   Hk key heads  Hv value heads Dk key_dim       Dv value_dim    C = 2*Hk*Dk + Hv*Dv conv channels
//   E experts     S experts per token ("slots")   I expert width
//   W windows     of the gate's encoder: rows of one text, which attend to each other alone
#pragma once

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

enum {
  kMaxSegments = 4,            // matrices that one linear kernel can read (qkv | z | b | a)
  kMaxSlots = 16,              // experts per token
  kMaxExperts = 256,           // of a layer: 8 logits a lane when a simdgroup chooses
  kMaxExpertWidth = 4096,      // of one expert: its row of activations lies in threadgroup memory
  kMaxQueryGroup = 8,          // query heads that share a kv head: rows of a matrix tile
  kMaxHiddenOfHead = 4096,     // columns of lm_head: its row of activations lies there too
  kMaxColumns = 32768,         // of a weight matrix: threads keep rows of that length in scratch
  kConvWidth = 4,              // taps of the causal convolution; also slots of its ring of inputs
  kCandidates = 64,            // best logits that the device keeps
  kSampleBlockRows = 1024,     // vocabulary rows that share one list of candidates
  kMaxSampleBlocks = 1024,     // of a vocabulary: the draw ranks them, a thread each
  kAttentionMaxSplits = 128,   // parts into which decode attention cuts a context
  kAttentionSplitTokens = 64,  // fewest tokens in a part
  kEncoderHeadDim = 32,        // of the gate's encoder: a lane a dimension
  kEncoderMaxWindow = 512      // rows of a window: its scores lie in a CPU thread's scratch
};

// Where a session stands; device memory. Written by the host at prefill and by sample_draw.
struct Cursor {
  uint32_t token_id;  // input of the next decode step
  uint32_t position;  // its place in the timeline = tokens already in the KV cache
  uint32_t reserved[2];
};

// How sample_draw chooses; device memory, so that a recorded step serves every request.
struct Sampler {
  float temperature;  // 0: greedy
  float top_p;        // 1: off
  float min_p;        // 0: off
  uint32_t top_k;     // 0: off
  uint32_t seed_low;
  uint32_t seed_high;
};

// What sample_draw found; device memory. Candidates: logit descending, then id ascending.
struct Sampled {
  uint32_t token_id;
  uint32_t exact;           // 0: the filters reach past the candidates, token_id is not valid
  uint32_t num_candidates;  // min(kCandidates, V)
  float logsumexp;          // of the whole row at temperature 1
  uint32_t ids[kCandidates];
  float logits[kCandidates];
};

// Best candidates of kSampleBlockRows rows, and their part of the log-sum-exp.
struct SampleBlock {
  float max_logit;
  float sum_exp;  // sum of exp(logit - max_logit)
  uint32_t num_candidates;
  uint32_t reserved;
  uint32_t ids[kCandidates];
  float logits[kCandidates];
};

struct EmbedRowsParams {
  uint32_t tokens, hidden, group_size;
};

struct NormRmsParams {
  uint32_t tokens, hidden;
  float eps;
};

struct LinearParams {
  uint32_t tokens, cols, group_size, num_segments;
  uint32_t segment_rows[kMaxSegments];
  uint32_t out_stride;  // columns of the whole y: row n of the segments, taken as one matrix, gives
  uint32_t out_offset;  // y[t * out_stride + out_offset + n]
  float eps;            // of the folded norm
};

struct AttentionParams {
  uint32_t tokens, q_heads, kv_heads, head_dim, rotary_dims;
  uint32_t capacity;  // P: stride between kv heads in the cache, in tokens
  uint32_t position;  // of the first row (prefill); decode reads it from the cursor
  float eps, scale;
};

struct DeltaParams {
  uint32_t tokens, key_heads, value_heads, key_dim, value_dim;
  uint32_t position;  // of the first row (prefill); decode reads it from the cursor
  float eps;
};

struct MoeParams {
  uint32_t tokens, hidden, experts, slots, width, shared_width, group_size;
  uint32_t expert_stride_rows;  // rows between experts of the gate and up stacks
  uint32_t shared_group_size;
  float eps;
};

struct EncoderParams {
  uint32_t tokens, windows, heads;
  uint32_t width;  // columns of a row
  float eps, scale;
};

struct SampleParams {
  uint32_t tokens, vocab, hidden, group_size, num_blocks;
  float eps;
};
