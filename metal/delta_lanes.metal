// The recurrence of delta_chunk by matrix units whose lanes are known (lane_tile.h), 16 tokens at a
// time. Knows no layer.
//
// Over a block whose old state is S, with decays a and their products G[t] = a[0] .. a[t] and
// D[t, s] = a[s + 1] .. a[t], the corrections d[t] of the delta rule solve a triangular system
// (the WY form of Gated DeltaNet, arXiv 2412.06464, section 3.3):
//   d = T (v - G S k),  T = (1 + B)^-1 beta,  B[t, s] = beta[t] D[t, s] (k[t] . k[s]) for s < t
//   o[t] = G[t] S q[t] + sum over s <= t of P[t, s] d[s],  P[t, s] = D[t, s] (q[t] . k[s])
//   S <- G[15] S + sum over s of D[15, s] d[s] k[s]^T
// Two simdgroups hold the state, 16 values' rows each, as the sums of matrices, and never give it
// out; two others prepare the next block's keys, queries, T and P meanwhile. A factor is the sum of
// two bfloats and a product three of theirs, which keeps 16 bits of each factor; sums are fp32.
#include "lane_memory.h"

namespace lily {

struct TwoParts {
  uint high, low;  // pairs of bfloats
};
inline TwoParts two_parts(float a, float b) {
  const uint high = bfloat_pair(a, b);
  return {high,
          bfloat_pair(a - as_type<float>(high << 16), b - as_type<float>(high & 0xFFFF0000u))};
}

// A left factor of 16 x 16.
struct LeftParts {
  uint high[4], low[4];
  void set(uint i, float a, float b) thread {
    const TwoParts parts = two_parts(a, b);
    high[i] = parts.high, low[i] = parts.low;
  }
  // Sums of 16 x 16 lie as the factor does that they become.
  void take(thread const float (&sums)[2][4]) thread {
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) set(i, sums[i / 2][i % 2 * 2], sums[i / 2][i % 2 * 2 + 1]);
  }
};

// Two neighbouring matrices of 8 columns. Each product of parts has sums of its own: one that waits
// for the one before it would take longer than the others together.
struct PartSums {
  float sums[3][2][4];
  void clear() thread {
    LILY_UNROLL
    for (uint i = 0; i < 24; ++i) sums[i / 8][i / 4 % 2][i % 4] = 0.0f;
  }
  // += left right; high and low as load_matrices gives them.
  void multiply(thread const LeftParts& left, thread const uint (&high)[4],
                thread const uint (&low)[4]) thread {
    LILY_UNROLL
    for (uint n = 0; n < 2; ++n) {
      multiply_halves(sums[0][n], left.low, high[2 * n], high[2 * n + 1]);
      multiply_halves(sums[1][n], left.high, low[2 * n], low[2 * n + 1]);
      multiply_halves(sums[2][n], left.high, high[2 * n], high[2 * n + 1]);
    }
  }
  void take(thread float (&total)[2][4]) const thread {
    LILY_UNROLL
    for (uint i = 0; i < 8; ++i) {
      total[i / 4][i % 4] = sums[0][i / 4][i % 4] + sums[1][i / 4][i % 4] + sums[2][i / 4][i % 4];
    }
  }
};

template <uint KEYS>
struct BlockShape {
  enum : uint {
    kTokens = 16,
    kHolders = 2,  // simdgroups that hold state
    kThreads = (kHolders + 2) * kLanes,
    kValues = kHolders * 16,
    kPitch = KEYS + 8,                // elements between tokens: ldmatrix then meets no conflict
    kMatrixPitch = kTokens + 8,       // of T and P
    kTile = kTokens * kPitch,         // of keys or queries, one part
    kMatrix = kTokens * kMatrixPitch  // of T or P, one part
  };
};

// What the holders need of a block.
template <uint KEYS>
struct Block {
  typedef BlockShape<KEYS> Shape;
  enum : uint { kElements = 4 * Shape::kTile + 4 * Shape::kMatrix, kFloats = 2 * Shape::kTokens };
  threadgroup bfloat* elements;
  threadgroup float* floats;

  threadgroup bfloat* keys(uint part) const thread { return elements + part * Shape::kTile; }
  threadgroup bfloat* queries(uint part) const thread { return keys(2 + part); }
  threadgroup bfloat* solve(uint part) const thread {
    return elements + 4 * Shape::kTile + part * Shape::kMatrix;
  }
  threadgroup bfloat* weights(uint part) const thread { return solve(2 + part); }
  threadgroup float* decays() const thread { return floats; }                 // G
  threadgroup float* rest() const thread { return floats + Shape::kTokens; }  // D[15, s]
};

// What a lane holds of 16 rows of keys: four floats of every 16 columns of two rows. Of a block's q
// or k, rows lane / 4 and lane / 4 + 8 are tokens. Of the state, which another simdgroup holds in
// the same registers, see HeldRows.
template <uint KEYS>
struct LaneRows {
  float row[KEYS / 16][2][4];

  void load(device const float* from, ulong stride, uint count, uint lane) thread {
    LILY_UNROLL
    for (uint k = 0; k < KEYS / 16; ++k) {
      LILY_UNROLL
      for (uint r = 0; r < 2; ++r) {
        const uint t = lane / 4 + 8 * r;
        const float4 four = t < count
                                ? *(device const float4*)(from + t * stride + k * 16 + lane % 4 * 4)
                                : float4(0.0f);
        row[k][r][0] = four.x, row[k][r][1] = four.y, row[k][r][2] = four.z, row[k][r][3] = four.w;
      }
    }
  }
  LeftParts left(uint k) const thread {
    LeftParts parts;
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) {
      parts.set(r, row[k][r][0], row[k][r][1]);
      parts.set(2 + r, row[k][r][2], row[k][r][3]);
    }
    return parts;
  }
};

// The two parts of rows into threadgroup memory.
template <uint KEYS>
inline void put_rows(thread const LaneRows<KEYS>& rows, threadgroup bfloat* high,
                     threadgroup bfloat* low, uint lane) {
  LILY_UNROLL
  for (uint k = 0; k < KEYS / 16; ++k) {
    const LeftParts parts = rows.left(k);
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) {
      const uint at = (lane / 4 + 8 * r) * BlockShape<KEYS>::kPitch + k * 16 + lane % 4 * 4;
      *(threadgroup uint2*)(high + at) = uint2(parts.high[r], parts.high[2 + r]);
      *(threadgroup uint2*)(low + at) = uint2(parts.low[r], parts.low[2 + r]);
    }
  }
}

// products = left rows times right rows: of each pair of tokens. A right factor's parts are those
// of the left factor, for its rows are the columns.
template <uint KEYS>
inline void multiply_tokens(thread float (&products)[2][4], thread const LaneRows<KEYS>& left,
                            thread const LaneRows<KEYS>& right) {
  PartSums sums;
  sums.clear();
  LILY_UNROLL
  for (uint k = 0; k < KEYS / 16; ++k) {
    const LeftParts a = left.left(k), b = right.left(k);
    const uint high[4] = {b.high[0], b.high[2], b.high[1], b.high[3]};
    const uint low[4] = {b.low[0], b.low[2], b.low[1], b.low[3]};
    sums.multiply(a, high, low);
  }
  sums.take(products);
}

// A simdgroup that stages keys and prepares T, or stages queries and prepares P.
template <uint KEYS>
struct Preparer {
  typedef BlockShape<KEYS> Shape;
  threadgroup float* scratch;  // [16, 17], of this simdgroup
  bool solves;
  uint lane;
  LaneRows<KEYS> queries;  // of the next block, where it does not solve
  float gate;              // decay of token `lane`, beta of token lane - 16

  void load(thread LaneRows<KEYS>& keys, device const float* qkv, device const float* gates,
            constant DeltaParams& p, uint head, uint from) thread {
    const uint key_width = p.key_heads * KEYS, count = min(p.tokens - from, uint(Shape::kTokens));
    const ulong channels = 2 * key_width + p.value_heads * p.value_dim;
    device const float* rows = qkv + from * channels + head / (p.value_heads / p.key_heads) * KEYS;
    keys.load(rows + key_width, channels, count, lane);
    if (!solves) queries.load(rows, channels, count, lane);
    const uint row = 2 * (from + min(lane % 16, count - 1)) + lane / 16;
    gate = lane % 16 < count ? gates[ulong(row) * p.value_heads + head] : lane < 16 ? 1.0f : 0.0f;
  }
  void begin(Block<KEYS> block, thread const LaneRows<KEYS>& keys,
             thread float (&products)[2][4]) thread {
    if (solves) {
      put_rows<KEYS>(keys, block.keys(0), block.keys(1), lane);
      multiply_tokens<KEYS>(products, keys, keys);
    } else {
      put_rows<KEYS>(queries, block.queries(0), block.queries(1), lane);
      multiply_tokens<KEYS>(products, queries, keys);
    }
  }

  // This lane's column of the products of tokens.
  void turn(thread const float (&products)[2][4], thread float (&column)[16]) thread {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    LILY_UNROLL
    for (uint n = 0; n < 2; ++n) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) {
        scratch[(lane / 4 + e / 2 * 8) * 17 + n * 8 + lane % 4 * 2 + e % 2] = products[n][e];
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) column[t] = scratch[t * 17 + lane % 16];
  }
  // Lanes past 15 write the low part.
  void put_column(thread const float (&column)[16], threadgroup bfloat* high,
                  threadgroup bfloat* low) thread {
    threadgroup bfloat* to = (lane < 16 ? high : low) + lane % 16;
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) {
      const bfloat rounded = bfloat(column[t]);
      to[t * Shape::kMatrixPitch] = lane < 16 ? rounded : bfloat(column[t] - float(rounded));
    }
  }

  void finish_weights(Block<KEYS> block, thread float (&column)[16],
                      thread const float (&decay)[16]) thread {
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) column[t] *= decay[t];
    put_column(column, block.weights(0), block.weights(1));
  }
  void finish_solve(Block<KEYS> block, thread float (&column)[16], thread const float (&decay)[16],
                    float gates) thread {
    float reach = 1.0f;
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) {
      reach *= simd_shuffle(gates, ushort(t));
      if (lane == t) block.decays()[t] = reach;
      // B, by columns, then read by rows: all lanes need all of it.
      column[t] *= simd_shuffle(gates, ushort(16 + t)) * decay[t];
    }
    if (lane < 16) block.rest()[lane] = decay[15];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) {
      if (lane < 16) scratch[t * 17 + lane] = column[t];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    // Forward substitution for this lane's column of (1 + B)^-1.
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) {
      float value = lane % 16 == t ? 1.0f : 0.0f;
      LILY_UNROLL
      for (uint s = 0; s < t; ++s) value = fma(-scratch[t * 17 + s], column[s], value);
      column[t] = value;
    }
    const float beta = simd_shuffle(gates, ushort(16 + lane % 16));
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) column[t] *= beta;
    put_column(column, block.solve(0), block.solve(1));
  }
  void finish(Block<KEYS> block, thread const float (&products)[2][4], float gates) thread {
    float column[16], decay[16];
    turn(products, column);
    LILY_UNROLL
    for (uint t = 0; t < 16; ++t) {
      const float before = t == 0 ? 0.0f : decay[t - 1], own = simd_shuffle(gates, ushort(t));
      decay[t] = t == lane % 16 ? 1.0f : before * own;
    }
    if (solves) {
      finish_solve(block, column, decay, gates);
    } else {
      finish_weights(block, column, decay);
    }
  }
};

// A simdgroup's 16 rows of the state, as sums of 16 x 16 matrices of 16 keys each: rows are values
// lane / 4 (and 8 further on), columns keys 2 (lane % 4) and the next (and 8 further on).
template <uint KEYS>
struct HeldRows {
  typedef BlockShape<KEYS> Shape;
  float values[2][4];  // of the next block: columns are tokens

  static uint place(uint k, uint i, uint lane) {
    return (lane / 4 + i % 2 * 8) * KEYS + k * 16 + i / 2 * 8 + lane % 4 * 2;
  }
  void load(thread LaneRows<KEYS>& s, device const float* state, uint lane) thread {
    LILY_UNROLL
    for (uint k = 0; k < KEYS / 16; ++k) {
      LILY_UNROLL
      for (uint i = 0; i < 4; ++i) {
        const float2 pair = *(device const float2*)(state + place(k, i, lane));
        s.row[k][i / 2][i % 2 * 2] = pair.x, s.row[k][i / 2][i % 2 * 2 + 1] = pair.y;
      }
    }
  }
  void store(thread const LaneRows<KEYS>& s, device float* state, uint lane) const thread {
    LILY_UNROLL
    for (uint k = 0; k < KEYS / 16; ++k) {
      LILY_UNROLL
      for (uint i = 0; i < 4; ++i) {
        *(device float2*)(state + place(k, i, lane)) =
            float2(s.row[k][i / 2][i % 2 * 2], s.row[k][i / 2][i % 2 * 2 + 1]);
      }
    }
  }
  void load_values(device const float* from, ulong stride, uint count, uint lane) thread {
    LILY_UNROLL
    for (uint n = 0; n < 2; ++n) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) {
        const uint t = n * 8 + lane % 4 * 2 + e % 2;
        values[n][e] = t < count ? from[t * stride + lane / 4 + e / 2 * 8] : 0.0f;
      }
    }
  }

  // One block: the outputs replace the values that are held.
  void advance(thread LaneRows<KEYS>& s, Block<KEYS> block, thread float (&outputs)[2][4],
               uint lane) thread {
    const uint row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
    const uint turned_row = lane / 8 % 2 * 8 + lane % 8, turned_column = lane / 16 * 8;
    PartSums key_sums, sums;
    key_sums.clear(), sums.clear();
    uint high[4], low[4];
    LILY_UNROLL
    for (uint k = 0; k < KEYS / 16; ++k) {
      LeftParts left;
      left.take(s.row[k]);
      const uint at = row * Shape::kPitch + k * 16 + column;
      load_matrices(high, block.keys(0), at);
      load_matrices(low, block.keys(1), at);
      key_sums.multiply(left, high, low);
      load_matrices(high, block.queries(0), at);
      load_matrices(low, block.queries(1), at);
      sums.multiply(left, high, low);
    }
    float with_keys[2][4], corrections[2][4];
    key_sums.take(with_keys);
    sums.take(outputs);
    LILY_UNROLL
    for (uint n = 0; n < 2; ++n) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) {
        const float reach = block.decays()[n * 8 + lane % 4 * 2 + e % 2];
        with_keys[n][e] = values[n][e] - reach * with_keys[n][e];
        outputs[n][e] *= reach;
      }
    }
    LeftParts left;
    left.take(with_keys);
    const uint at = row * Shape::kMatrixPitch + column;
    load_matrices(high, block.solve(0), at);
    load_matrices(low, block.solve(1), at);
    sums.clear();
    sums.multiply(left, high, low);
    sums.take(corrections);
    left.take(corrections);
    load_matrices(high, block.weights(0), at);
    load_matrices(low, block.weights(1), at);
    sums.clear();
    sums.multiply(left, high, low);
    float added[2][4];
    sums.take(added);
    LILY_UNROLL
    for (uint n = 0; n < 2; ++n) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) {
        outputs[n][e] += added[n][e];
        corrections[n][e] *= block.rest()[n * 8 + lane % 4 * 2 + e % 2];
      }
    }
    left.take(corrections);
    const float decay = block.decays()[15];
    LILY_UNROLL
    for (uint k = 0; k < KEYS / 16; ++k) {
      const uint place = turned_row * Shape::kPitch + k * 16 + turned_column;
      load_turned_matrices(high, block.keys(0), place);
      load_turned_matrices(low, block.keys(1), place);
      LILY_UNROLL
      for (uint n = 0; n < 2; ++n) {
        LILY_UNROLL
        for (uint e = 0; e < 4; ++e) s.row[k][n][e] *= decay;
        multiply_halves(s.row[k][n], left.low, high[2 * n], high[2 * n + 1]);
        multiply_halves(s.row[k][n], left.high, low[2 * n], low[2 * n + 1]);
        multiply_halves(s.row[k][n], left.high, high[2 * n], high[2 * n + 1]);
      }
    }
  }
};

template <uint KEYS>
[[kernel]] void delta_chunk_lanes(device float* qkv [[buffer(0)]],
                                  device const float* gates [[buffer(1)]],
                                  device float* state [[buffer(2)]],
                                  constant DeltaParams& p [[buffer(3)]], LILY_PLACE) {
  typedef BlockShape<KEYS> Shape;
  LILY_THREADGROUP(Sixteen, element_memory, (2 * Block<KEYS>::kElements / 8));
  LILY_THREADGROUP(float, float_memory, 2 * Block<KEYS>::kFloats);
  LILY_THREADGROUP(float, scratch, 2 * 16 * 17);
  const uint key_width = p.key_heads * p.key_dim;
  const uint head = group.y, channels = 2 * key_width + p.value_heads * p.value_dim;
  const uint value = group.x * Shape::kValues + simdgroup * 16;  // a holder's first
  const bool holds = simdgroup < Shape::kHolders && value < p.value_dim;
  device float* mine = state + (ulong(head) * p.value_dim + (holds ? value : 0)) * KEYS;
  device float* of_values = qkv + 2 * key_width + head * p.value_dim + (holds ? value : 0);
  const bool prepares = simdgroup >= Shape::kHolders, solves = simdgroup == Shape::kHolders;
  Preparer<KEYS> preparer;
  preparer.scratch = scratch + (solves ? 0 : 16 * 17);
  preparer.solves = solves, preparer.lane = lane;
  HeldRows<KEYS> held;
  LaneRows<KEYS> rows;  // keys of the next block, or state
  if (prepares) preparer.load(rows, qkv, gates, p, head, 0);
  if (holds) {
    held.load(rows, mine, lane);
    held.load_values(of_values, channels, p.tokens, lane);
  }
  // In round n, block n is prepared and block n - 1 is taken.
  const uint blocks = (p.tokens + Shape::kTokens - 1) / Shape::kTokens;
  for (uint n = 0; n <= blocks; ++n) {
    const Block<KEYS> next{(threadgroup bfloat*)element_memory + n % 2 * Block<KEYS>::kElements,
                           float_memory + n % 2 * Block<KEYS>::kFloats};
    const uint from = n * Shape::kTokens;
    if (prepares && n < blocks) {
      float products[2][4];
      preparer.begin(next, rows, products);
      const float block_gates = preparer.gate;
      if (n + 1 < blocks) preparer.load(rows, qkv, gates, p, head, from + Shape::kTokens);
      preparer.finish(next, products, block_gates);
    }
    if (holds && n > 0) {
      const Block<KEYS> block{
          (threadgroup bfloat*)element_memory + (n - 1) % 2 * Block<KEYS>::kElements,
          float_memory + (n - 1) % 2 * Block<KEYS>::kFloats};
      float outputs[2][4];
      held.advance(rows, block, outputs, lane);
      const uint begin = from - Shape::kTokens;
      device float* to = of_values + ulong(begin) * channels;
      if (n < blocks) {
        held.load_values(of_values + ulong(from) * channels, channels, p.tokens - from, lane);
      }
      LILY_UNROLL
      for (uint m = 0; m < 2; ++m) {
        LILY_UNROLL
        for (uint e = 0; e < 4; ++e) {
          const uint t = m * 8 + lane % 4 * 2 + e % 2;
          if (begin + t < p.tokens) to[t * ulong(channels) + lane / 4 + e / 2 * 8] = outputs[m][e];
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (holds) held.store(rows, mine, lane);
}
LILY_KERNEL(delta_chunk_f32_k128_lanes, 128, delta_chunk_lanes<128>)

}  // namespace lily
