// What a session's timeline leaves on the device: KV caches, the recurrent state of the delta
// layers, and the few rows that a decode step works on. Can be cut into pieces and put together
// again, so that a prefix cache may keep it. Knows neither tokens nor sessions.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "model/arena.h"
#include "model/config.h"
#include "ops/ops.h"

namespace lily {

uint64_t kv_bytes_per_token(const Config& config, DType kv_dtype);

// Columns of the projections that a layer of each kind reads from one normed row.
uint64_t attention_columns(const Config& config);  // Q*2*D + 2*G*D
uint64_t delta_columns(const Config& config);      // C + Hv*Dv + 2*Hv

struct KvCache {
  Tensor k, v;  // f32 or bf16 [G, P, D]
};

// What the next token stands on and what a caller may ask of the last one. A step reads one side
// and writes the next, so that where there are two, a step that nobody asked for yet leaves the
// timeline as it was.
struct Side {
  std::vector<Tensor> states;  // of the delta layers, f32 [Hv, Dv, Dk]
  Tensor logits;               // f32 [1, V]
  Tensor blocks;               // SampleBlock [ceil(V / kSampleBlockRows)]
  Tensor sampled;              // Sampled, in memory that the host reads
};

// One row of everything that a decode step computes on its way; each session has its own, because
// the recorded step points to them.
struct DecodeRow {
  Tensor hidden;           // f32 [1, H], the residual stream
  Tensor attention_proj;   // f32 [1, Q*2*D + 2*G*D]
  Tensor delta_proj;       // f32 [1, C + Hv*Dv + 2*Hv]
  Tensor partial;          // f32 [Q, kAttentionMaxSplits, D + 2]
  Tensor attention_mixed;  // f32 [1, Q*D]
  Tensor delta_mixed;      // f32 [1, Hv*Dv]
  Tensor router_logits;    // f32 [1, E + 1]
  Tensor shared_act;       // f32 [1, Is]
  Tensor expert_act;       // f32 [S, I]
  Tensor expert_ids;       // u32 [1, S]
  Tensor expert_weights;   // f32 [1, S + 1]
};

class SessionState {
 public:
  // capacity: P, in tokens. sides: 1 or 2.
  SessionState(Arena& arena, const Config& config, DType kv_dtype, uint32_t capacity,
               uint32_t sides);

  uint32_t capacity() const { return capacity_; }
  // In the order of the layers of each kind.
  const std::vector<KvCache>& kv() const { return kv_; }
  // f32 [kConvWidth, C]. One serves both sides: what a step puts into it belongs to a place that no
  // step looks back to before it was put there again.
  const std::vector<Tensor>& conv_rings() const { return conv_rings_; }
  const Side& side(uint32_t index) const { return sides_[index]; }
  uint32_t next_side(uint32_t index) const { return (index + 1) % num_sides(); }
  uint32_t num_sides() const { return static_cast<uint32_t>(sides_.size()); }
  const DecodeRow& row() const { return row_; }

  const Tensor& cursor() const { return cursor_; }    // Cursor
  Tensor cursor_token() const;                        // its token, as ids u32 [1]
  const Tensor& sampler() const { return sampler_; }  // Sampler

  // A copy of the KV rows of tokens [begin, end), all layers in one buffer.
  uint64_t kv_bytes(uint32_t begin, uint32_t end) const;
  Buffer save_kv(Device& device, uint32_t begin, uint32_t end) const;
  // Puts rows [from, end) of a copy of [begin, end) back into their places.
  void load_kv(Device& device, const Buffer& saved, uint32_t begin, uint32_t end, uint32_t from);

  // The rings and one side's states.
  uint64_t recurrent_bytes() const { return ring_memory_.size_bytes + state_memory_[0].size_bytes; }
  Buffer save_recurrent(Device& device, uint32_t side) const;
  void load_recurrent(Device& device, uint32_t side, const Buffer& saved);
  void clear_recurrent(Device& device, uint32_t side);  // as before the first token

 private:
  std::vector<View> kv_heads() const;

  uint32_t capacity_;
  uint64_t kv_row_bytes_;  // of one head
  std::vector<KvCache> kv_;
  // Of all delta layers: a snapshot is two copies.
  View ring_memory_;
  std::vector<View> state_memory_;  // of each side
  std::vector<Tensor> conv_rings_;
  std::vector<Side> sides_;
  DecodeRow row_;
  Tensor cursor_, sampler_;
};

}  // namespace lily
