// moe, one row, 4-bit experts, by integer matrix units (digits.h): what moe.metal does, where a GPU
// has such units. The router has 8 bits, as MLX stores it. Knows no layer.
#include "activation.h"
#include "choose.h"
#include "digits.h"

namespace lily {

enum : uint { kDigitThreads = 256, kDigitSimdgroups = kDigitThreads / kLanes };
typedef Q4<4> Codes4;

// A stack from the rows of an expert on, of which there are `stride_rows`: all but one product of
// an address is known before the expert is.
template <class S>
inline Stored of_expert(Stored stack, uint expert, uint stride_rows) {
  const ulong codes = ulong(expert) * (stride_rows * (stack.cols * S::kBits / 8));
  const ulong groups = ulong(expert) * (stride_rows * (stack.cols / kDigitGroup));
  return {stack.weight + codes, stack.scales + groups, stack.biases + groups, stack.cols,
          stack.group_size};
}

// Rows of one matrix from `first` on; past the end, the last.
template <class S>
struct MatrixRows {
  Stored matrix;
  uint first, last;
  Row row(uint n) const thread { return code_row<S>(matrix, min(first + n, last)); }
};
// The router's rows, and after them the shared expert's own.
struct RouterRows {
  Stored experts, shared;
  uint first, count;
  Row row(uint n) const thread {
    return first + n < count ? code_row<Q8>(experts, first + n) : code_row<Q8>(shared, 0);
  }
};
// A tile of gates, then one of the ups of the same outputs.
struct PairRows {
  Stored gates, ups;
  uint first, last;
  Row row(uint n) const thread {
    return code_row<Codes4>(n < kTileCodes ? gates : ups, min(first + n % kTileCodes, last));
  }
};

typedef DigitGemv<Codes4, 2, 2, kDigitSimdgroups> PairsGemv;
typedef DigitGemv<Q8, 1, 2, kDigitSimdgroups> RouterGemv;

// act[first + i] = silu(gate_i . x) * (up_i . x): thread i has the gate, thread 16 + i the up.
inline void store_pairs(float total, device float* act, uint first, uint end, uint thread_index) {
  if (thread_index >= kLanes) return;
  const float up = simd_shuffle_xor(total, kTileCodes);
  if (thread_index < kTileCodes && first + thread_index < end) {
    act[first + thread_index] = silu(total) * up;
  }
}

// Threadgroups [0, router_groups) take 16 router rows each; the rest 16 outputs of the shared
// expert. Shapes as in moe.metal.
[[kernel]] void moe_router_digits(
    device const float* x [[buffer(0)]], device const float* gain [[buffer(1)]],
    device const uchar* router [[buffer(2)]], device const bfloat* router_scales [[buffer(3)]],
    device const bfloat* router_biases [[buffer(4)]], device const uchar* own [[buffer(5)]],
    device const bfloat* own_scales [[buffer(6)]], device const bfloat* own_biases [[buffer(7)]],
    device const uchar* gate [[buffer(8)]], device const bfloat* gate_scales [[buffer(9)]],
    device const bfloat* gate_biases [[buffer(10)]], device const uchar* up [[buffer(11)]],
    device const bfloat* up_scales [[buffer(12)]], device const bfloat* up_biases [[buffer(13)]],
    device float* logits [[buffer(14)]], device float* act [[buffer(15)]],
    constant MoeParams& p [[buffer(16)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, PairsGemv::kMemory);
  LILY_THREADGROUP(float, partial, PairsGemv::kPartial);
  const uint router_groups = (p.experts + kTileCodes) / kTileCodes;
  RowOfX<float, true> source{x, gain, {}};
  if (group.x < router_groups) {
    const uint first = group.x * kTileCodes;
    const RouterRows rows{{router, router_scales, router_biases, p.hidden, p.group_size},
                          {own, own_scales, own_biases, p.hidden, p.group_size},
                          first,
                          p.experts};
    RouterGemv gemv;
    gemv.begin(memory, partial, p.hidden, lane, simdgroup);
    gemv.load_codes(rows);
    gemv.load_gain(source);
    LILY_WAIT_FOR_STEP();
    gemv.stage(source);
    const float total = gemv.multiply(thread_index);
    if (thread_index < kTileCodes && first + thread_index <= p.experts) {
      logits[first + thread_index] = total * gemv.rms_factor(p.hidden, p.eps);
    }
    return;
  }
  const uint first = (group.x - router_groups) * kTileCodes;
  const PairRows rows{{gate, gate_scales, gate_biases, p.hidden, p.shared_group_size},
                      {up, up_scales, up_biases, p.hidden, p.shared_group_size},
                      first,
                      p.shared_width - 1};
  PairsGemv gemv;
  gemv.begin(memory, partial, p.hidden, lane, simdgroup);
  gemv.load_codes(rows);
  gemv.load_gain(source);
  LILY_WAIT_FOR_STEP();
  gemv.stage(source);
  const float total = gemv.multiply(thread_index);
  store_pairs(total * gemv.rms_factor(p.hidden, p.eps), act, first, p.shared_width, thread_index);
}
LILY_EARLY_KERNEL(moe_router_q8_q4_i256, 256, 2, moe_router_digits)

// group.y is the slot. One simdgroup more than there are slices of columns: it chooses the experts
// while the others make digits, as far as the group's slot, so that the first slots' codes are
// under way while the last slots are chosen. Shapes as in moe.metal.
enum : uint { kGateUpThreads = kDigitThreads + kLanes };
typedef DigitGemv<Codes4, 2, 2, kGateUpThreads / kLanes> GateUpGemv;

[[kernel]] void moe_gate_up_digits(
    device const float* x [[buffer(0)]], device const float* gain [[buffer(1)]],
    device const float* logits [[buffer(2)]], device const uchar* gate [[buffer(3)]],
    device const bfloat* gate_scales [[buffer(4)]], device const bfloat* gate_biases [[buffer(5)]],
    device const uchar* up [[buffer(6)]], device const bfloat* up_scales [[buffer(7)]],
    device const bfloat* up_biases [[buffer(8)]], device float* act [[buffer(9)]],
    device uint* ids [[buffer(10)]], device float* weights [[buffer(11)]],
    constant MoeParams& p [[buffer(12)]], LILY_PLACE) {
  LILY_THREADGROUP(uint, expert, 1);
  LILY_THREADGROUP(Sixteen, memory, GateUpGemv::kMemory);
  LILY_THREADGROUP(float, partial, GateUpGemv::kPartial);
  RowOfX<float, true> source{x, gain, {}};
  GateUpGemv gemv;
  gemv.begin(memory, partial, p.hidden, lane, simdgroup);
  gemv.load_gain(source);
  LILY_WAIT_FOR_STEP();
  const uint slot = group.y;
  if (simdgroup == kDigitSimdgroups) {
    const Ranked ranked = rank_experts(logits, p.experts, slot + 1, lane);
    if (lane == slot) expert[0] = ranked.id;
    if (group.x == 0 && slot + 1 == p.slots) {
      store_chosen(weigh_experts(ranked, logits, p.experts, p.slots, lane), p.slots, ids, weights,
                   lane);
    }
  }
  gemv.stage(source);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint first = group.x * kTileCodes, id = expert[0], stride = p.expert_stride_rows;
  const Stored gates{gate, gate_scales, gate_biases, p.hidden, p.group_size};
  const Stored ups{up, up_scales, up_biases, p.hidden, p.group_size};
  gemv.load_codes(PairRows{of_expert<Codes4>(gates, id, stride), of_expert<Codes4>(ups, id, stride),
                           first, p.width - 1});
  const float total = gemv.multiply(thread_index);
  store_pairs(total * gemv.rms_factor(p.hidden, p.eps), act + ulong(slot) * p.width, first, p.width,
              thread_index);
}
LILY_BRIDGE_KERNEL(moe_gate_up_q4_i256, 288, 2, moe_gate_up_digits)

// A simdgroup takes a slot, the last of them the shared expert, for 16 rows of the residual stream.
enum : uint { kDownThreads = 288, kDownSimdgroups = kDownThreads / kLanes, kDownSteps = 4 };
enum : uint { kDownSlice = kDownSteps * kStepColumns };

// A lane's share of a slice of activations, loaded as a whole.
struct SliceOfX {
  enum : uint { kLoads = kDownSlice / (8 * kLanes) };
  float4 fours[2 * kLoads];

  void begin(device const float* x) thread {
    LILY_UNROLL
    for (uint n = 0; n < 2 * kLoads; ++n) {
      fours[n] = load_four_of(x + n / 2 * (8 * kLanes) + n % 2 * 4);
    }
  }
  void load_ahead(uint) thread {}
  float load(uint k, thread float (&to)[8]) thread {
    LILY_UNROLL
    for (uint i = 0; i < 8; ++i) to[i] = fours[k / (8 * kLanes) * 2 + i / 4][i % 4];
    return 0.0f;
  }
};

// What a simdgroup multiplies, piece by piece: its slots, each over slices of the columns.
struct DownPieces {
  Stored down, shared;
  uint hidden, slots;
  uint first, last;   // rows
  uint slot, column;  // of the next piece

  bool there() const thread { return slot <= slots; }
  void load(thread Codes<Codes4, 1, kDownSteps>& codes, uint ids, uint lane) const thread {
    const bool routed = slot < slots;
    const uint id = simd_broadcast(ids, ushort(routed ? slot : 0));
    if (!there()) return;
    const Stored matrix{routed ? down.weight : shared.weight, routed ? down.scales : shared.scales,
                        routed ? down.biases : shared.biases, routed ? down.cols : shared.cols,
                        down.group_size};
    const Stored rows = of_expert<Codes4>(matrix, routed ? id : 0, hidden);
    codes.load(MatrixRows<Codes4>{rows, first, last}, column, lane);
  }
  device const float* x(device const float* act, device const float* shared_act, uint width,
                        uint lane) const thread {
    return (slot < slots ? act + slot * width : shared_act) + column + lane * 8;
  }
  void next() thread {
    column += kDownSlice;
    if (column < (slot < slots ? down.cols : shared.cols)) return;
    slot += kDownSimdgroups, column = 0;
  }
};

// Shapes as in moe.metal. Both widths are multiples of a simdgroup's slice. Every simdgroup chooses
// its own experts from what the kernel before the last one wrote, so that their codes are under way
// while the last one ends.
[[kernel]] void moe_down_digits(
    device const float* act [[buffer(0)]], device const float* shared_act [[buffer(1)]],
    device const uint* ids [[buffer(2)]], device const float* weights [[buffer(3)]],
    device const uchar* down [[buffer(4)]], device const bfloat* down_scales [[buffer(5)]],
    device const bfloat* down_biases [[buffer(6)]], device const uchar* shared [[buffer(7)]],
    device const bfloat* shared_scales [[buffer(8)]],
    device const bfloat* shared_biases [[buffer(9)]], device float* residual [[buffer(10)]],
    device const float* logits [[buffer(11)]], constant MoeParams& p [[buffer(12)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, digit_memory(kDownSteps, kDownSimdgroups));
  LILY_THREADGROUP(float, partial, kDownSimdgroups* kTileCodes);
  const Digits digits = digits_in(memory, kDownSteps, kDownSimdgroups, simdgroup);
  const uint first = group.x * kTileCodes;
  DownPieces pieces{{down, down_scales, down_biases, p.width, p.group_size},
                    {shared, shared_scales, shared_biases, p.shared_width, p.group_size},
                    p.hidden,
                    p.slots,
                    first,
                    p.hidden - 1,
                    simdgroup,
                    0};
  // As far as the last of this simdgroup's slots.
  const uint ranks =
      simdgroup < p.slots ? p.slots - (p.slots - 1 - simdgroup) % kDownSimdgroups : 0;
  const uint chosen = rank_experts(logits, p.experts, ranks, lane).id;
  Codes<Codes4, 1, kDownSteps> codes;
  pieces.load(codes, chosen, lane);
  const bool writes = thread_index < kTileCodes && first + thread_index < p.hidden;
  LILY_WAIT_FOR_STEP();
  SliceOfX source;
  source.begin(pieces.x(act, shared_act, p.width, lane));
  float weight = weights[min(simdgroup, p.slots)];
  const float before = writes ? residual[first + thread_index] : 0.0f;
  float sums[2] = {0.0f, 0.0f};
  while (pieces.there()) {
    stage_slice<Codes4, kDownSteps>(source, 0, digits, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    float part[2] = {0.0f, 0.0f};
    multiply_digits<Codes4, 1, kDownSteps>(codes, digits, lane, part);
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) sums[r] = fma(weight, part[r], sums[r]);
    pieces.next();
    pieces.load(codes, chosen, lane);
    if (pieces.there()) {
      source.begin(pieces.x(act, shared_act, p.width, lane));
      weight = weights[pieces.slot];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  leave_sums<1>(sums, partial + simdgroup * kTileCodes, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (!writes) return;
  float total = 0.0f;
  LILY_UNROLL
  for (uint s = 0; s < kDownSimdgroups; ++s) total += partial[s * kTileCodes + thread_index];
  residual[first + thread_index] = before + total;
}
LILY_EARLY_KERNEL(moe_down_q4_q4_i512, 288, 1, moe_down_digits)

}  // namespace lily
