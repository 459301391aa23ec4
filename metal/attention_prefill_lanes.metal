// attention_prefill by matrix units whose lanes are known (lane_tile.h): weights never leave the
// registers, and keys and values are copied ahead: the next keys while values are added up, the
// next values while scores are formed. Knows no layer.
#include "activation.h"
#include "attention_parts.h"
#include "heads.h"
#include "lane_memory.h"

namespace lily {

template <uint D>
struct StreamShape {
  enum : uint {
    kThreads = 128,
    kRows = kThreads / kLanes * 16,
    kBlock = 32,  // tokens at a time
    // Of a row's queries, steps of 16 dimensions that stay in registers; the others have no room.
    kHeld = D / 16 < 8 ? D / 16 : 8u,
    kStagedDims = D - 16 * kHeld,
    kVectors = D / 8,
    kRowsApart = kThreads / kVectors  // of a thread's copies
  };
};

// Where vectors of 8 elements lie in threadgroup memory: they change places within a row of `width`
// elements by the row's number, so that 8 rows of a matrix read different banks.
inline uint vector_at(uint row, uint vector, uint width) {
  return row * width + (vector ^ (row % 8)) * 8;
}
// Where `step` vector pairs further on lie, than vector 0 or 1 at `place`: in terms of which four
// addresses serve all steps.
inline uint further(uint place, uint step) { return (place ^ step % 4 * 16) + step / 4 * 64; }

// Tokens [from, from + kBlock) of one kv head; zeros from `end` on.
template <uint D>
inline void copy_block(threadgroup bfloat* block, device const bfloat* cache, uint from, uint end,
                       uint thread_index) {
  typedef StreamShape<D> Shape;
  const uint row = thread_index / Shape::kVectors, vector = thread_index % Shape::kVectors;
  device const bfloat* source = cache + ulong(from + row) * D + vector * 8;
  if (from + Shape::kBlock <= end) {
    LILY_UNROLL
    for (uint i = 0; i < Shape::kBlock; i += Shape::kRowsApart) {
      copy_ahead(block + vector_at(i + row, vector, D), source + i * D, true);
    }
  } else {
    for (uint i = 0; i < Shape::kBlock; i += Shape::kRowsApart) {
      const bool there = from + i + row < end;
      copy_ahead(block + vector_at(i + row, vector, D), there ? source + i * D : cache, there);
    }
  }
}

// One simdgroup's 16 rows.
template <uint D>
struct Stream {
  typedef StreamShape<D> Shape;
  enum : uint { kBlock = Shape::kBlock };
  uint queries[Shape::kHeld][4];
  threadgroup const bfloat* staged;  // the rest of them, of this simdgroup: [16, kStagedDims]
  float values[D / 8][4];
  float highest[2], total[2];  // of rows lane / 4 and lane / 4 + 8; totals of this lane's tokens

  void clear() thread {
    LILY_UNROLL
    for (uint n = 0; n < D / 8; ++n) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) values[n][e] = 0.0f;
    }
    highest[0] = highest[1] = lowest(), total[0] = total[1] = 0.0f;
  }

  // The queries of row lane / 4 (r = 0) or the one 8 further on: some into registers, and some on
  // their way into `memory`, by the four lanes of the row.
  void load(uint r, device const bfloat* from, threadgroup bfloat* memory, uint lane) thread {
    LILY_UNROLL
    for (uint k = 0; k < Shape::kHeld; ++k) {
      queries[k][r] = ((device const uint*)from)[8 * k + lane % 4];
      queries[k][2 + r] = ((device const uint*)from)[8 * k + 4 + lane % 4];
    }
    LILY_UNROLL
    for (uint vector = 0; vector < Shape::kStagedDims / 8; vector += 4) {
      const uint at = vector_at(r * 8 + lane / 4, vector + lane % 4, Shape::kStagedDims);
      copy_ahead(memory + at, from + 16 * Shape::kHeld + (vector + lane % 4) * 8, true);
    }
    staged = memory;
  }

  void score(thread float (&scores)[kBlock / 8][4], threadgroup bfloat* keys, uint lane) thread {
    LILY_UNROLL
    for (uint n = 0; n < kBlock / 8; ++n) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) scores[n][e] = 0.0f;
    }
    const uint key = vector_at(lane / 16 * 8 + lane % 8, lane / 8 % 2, D);
    const uint query = vector_at(lane % 16, lane / 16, Shape::kStagedDims);
    LILY_UNROLL
    for (uint k = 0; k < D / 16; ++k) {
      uint left[4];
      LILY_UNROLL
      for (uint i = 0; i < 4; ++i) left[i] = queries[k % Shape::kHeld][i];
      if (k >= Shape::kHeld) {
        load_matrices(left, staged, further(query, k - Shape::kHeld));
      }
      LILY_UNROLL
      for (uint n = 0; n < kBlock / 16; ++n) {
        uint part[4];
        load_matrices(part, keys, n * 16 * D + further(key, k));
        multiply_halves(scores[2 * n], left, part[0], part[1]);
        multiply_halves(scores[2 * n + 1], left, part[2], part[3]);
      }
    }
  }

  // Scores of tokens from `from` on become weights; with a mask, of those up to last[] of the two
  // rows alone.
  void weigh(thread float (&scores)[kBlock / 8][4], uint from, thread const uint (&last)[2],
             bool is_masked, float scale, uint lane) thread {
    if (is_masked) {
      LILY_UNROLL
      for (uint n = 0; n < kBlock / 8; ++n) {
        LILY_UNROLL
        for (uint e = 0; e < 4; ++e) {
          const bool seen = from + n * 8 + lane % 4 * 2 + e % 2 <= last[e / 2];
          scores[n][e] = seen ? scores[n][e] : lowest();
        }
      }
    }
    float top[2];
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) {
      top[r] = highest[r];
      LILY_UNROLL
      for (uint n = 0; n < kBlock / 8; ++n) {
        top[r] = max(top[r], max(scores[n][2 * r], scores[n][2 * r + 1]));
      }
      top[r] = max(top[r], simd_shuffle_xor(top[r], ushort(1)));
      top[r] = max(top[r], simd_shuffle_xor(top[r], ushort(2)));
    }
    // Seldom, once some tokens have been seen.
    if (simd_any(top[0] > highest[0] || top[1] > highest[1])) rescale(top, scale);
    LILY_UNROLL
    for (uint n = 0; n < kBlock / 8; ++n) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) {
        scores[n][e] = fast::exp2(fma(scores[n][e], scale, -highest[e / 2] * scale));
        total[e / 2] += scores[n][e];
      }
    }
  }
  void rescale(thread const float (&top)[2], float scale) thread {
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) {
      const float factor = fast::exp2((highest[r] - top[r]) * scale);
      highest[r] = top[r], total[r] *= factor;
      LILY_UNROLL
      for (uint n = 0; n < D / 8; ++n) {
        values[n][2 * r] *= factor, values[n][2 * r + 1] *= factor;
      }
    }
  }

  void add(thread const float (&weights)[kBlock / 8][4], threadgroup bfloat* block,
           uint lane) thread {
    const uint value = vector_at(lane / 8 % 2 * 8 + lane % 8, lane / 16, D);
    LILY_UNROLL
    for (uint k = 0; k < kBlock / 16; ++k) {
      uint left[4];
      LILY_UNROLL
      for (uint i = 0; i < 4; ++i) {
        left[i] =
            bfloat_pair(weights[2 * k + i / 2][i % 2 * 2], weights[2 * k + i / 2][i % 2 * 2 + 1]);
      }
      LILY_UNROLL
      for (uint n = 0; n < D / 16; ++n) {
        uint part[4];
        load_turned_matrices(part, block, k * 16 * D + further(value, n));
        multiply_halves(values[2 * n], left, part[0], part[1]);
        multiply_halves(values[2 * n + 1], left, part[2], part[3]);
      }
    }
  }

  // Row lane / 4 (r = 0) or the one 8 further on, times its gates. factor: 1 / sum of weights.
  void store(uint r, float factor, device const float* gates, device bfloat* to,
             uint lane) const thread {
    LILY_UNROLL
    for (uint n = 0; n < D / 8; ++n) {
      const uint at = n * 8 + lane % 4 * 2;
      const float2 gate = *(device const float2*)(gates + at);
      *(device uint*)(to + at) = bfloat_pair(values[n][2 * r] * factor * sigmoid(gate.x),
                                             values[n][2 * r + 1] * factor * sigmoid(gate.y));
    }
  }
};

// Rows are (token, head of the group) pairs in token order. group.x: tile of rows, last first,
// because they see the most keys; group.y: kv head.
template <uint D>
[[kernel]] void attention_prefill_lanes(device const bfloat* q [[buffer(0)]],
                                        device const float* proj [[buffer(1)]],
                                        device const bfloat* k_cache [[buffer(2)]],
                                        device const bfloat* v_cache [[buffer(3)]],
                                        device bfloat* y [[buffer(4)]],
                                        constant AttentionParams& p [[buffer(5)]], LILY_PLACE) {
  typedef StreamShape<D> Shape;
  LILY_THREADGROUP(Sixteen, key_memory, (Shape::kBlock * D / 8));
  LILY_THREADGROUP(Sixteen, value_memory, (Shape::kBlock * D / 8));
  LILY_THREADGROUP(Sixteen, query_memory,
                   (Shape::kStagedDims > 0 ? Shape::kRows * Shape::kStagedDims / 8 : 1));
  threadgroup bfloat* keys = (threadgroup bfloat*)key_memory;
  threadgroup bfloat* block = (threadgroup bfloat*)value_memory;
  const ProjectionRow row = projection_row(p);
  const uint shared_heads = p.q_heads / p.kv_heads, kv_head = group.y;
  const uint rows = p.tokens * shared_heads;
  const uint first = ((rows + Shape::kRows - 1) / Shape::kRows - 1 - group.x) * Shape::kRows;
  const uint last_row = min(first + Shape::kRows, rows) - 1;
  const uint end = p.position + last_row / shared_heads + 1;
  device const bfloat* k_head = k_cache + ulong(kv_head) * p.capacity * D;
  device const bfloat* v_head = v_cache + ulong(kv_head) * p.capacity * D;
  Stream<D> stream;
  stream.clear();
  threadgroup bfloat* queries =
      (threadgroup bfloat*)query_memory + simdgroup * 16 * Shape::kStagedDims;
  uint token[2], head[2], last[2];
  LILY_UNROLL
  for (uint r = 0; r < 2; ++r) {
    const uint at = min(first + simdgroup * 16 + r * 8 + lane / 4, rows - 1);
    token[r] = at / shared_heads, head[r] = kv_head * shared_heads + at % shared_heads;
    last[r] = p.position + token[r];
    stream.load(r, q + (ulong(token[r]) * p.q_heads + head[r]) * D, queries, lane);
  }
  copy_block<D>(keys, k_head, 0, end, thread_index);
  close_copies();
  copy_block<D>(block, v_head, 0, end, thread_index);
  close_copies();
  const float scale = p.scale * 1.44269504f;                 // exp(x) = exp2(x log2 e)
  const uint whole = p.position + first / shared_heads + 1;  // tokens that all rows see
  for (uint from = 0; from < end; from += Shape::kBlock) {
    const uint next = from + Shape::kBlock;
    wait_for_copies<1>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float scores[Shape::kBlock / 8][4];
    stream.score(scores, keys, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (next < end) copy_block<D>(keys, k_head, next, end, thread_index);
    close_copies();
    stream.weigh(scores, from, last, next > whole, scale, lane);
    wait_for_copies<1>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stream.add(scores, block, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (next < end) copy_block<D>(block, v_head, next, end, thread_index);
    close_copies();
  }
  LILY_UNROLL
  for (uint r = 0; r < 2; ++r) {
    float total = stream.total[r];
    total += simd_shuffle_xor(total, ushort(1));
    total += simd_shuffle_xor(total, ushort(2));
    if (first + simdgroup * 16 + r * 8 + lane / 4 >= rows) continue;
    stream.store(r, 1.0f / total, proj + ulong(token[r]) * row.stride() + row.gate(head[r]),
                 y + (ulong(token[r]) * p.q_heads + head[r]) * D, lane);
  }
}
LILY_KERNEL(attention_prefill_bf16_bf16_d64_lanes, 128, attention_prefill_lanes<64>)
LILY_KERNEL(attention_prefill_bf16_bf16_d128_lanes, 128, attention_prefill_lanes<128>)
LILY_KERNEL(attention_prefill_bf16_bf16_d256_lanes, 128, attention_prefill_lanes<256>)

}  // namespace lily
