// The forward pass as dispatches: which operation reads and writes what, in which order, for one
// token (decode) and for a chunk of a prompt (prefill). Owns the weights and the rows of a chunk,
// allocates and waits for nothing itself, and names no device.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "model/arena.h"
#include "model/config.h"
#include "model/state.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace lily {

// The rows of a prefill chunk on their way through the layers. One set serves all sessions, which
// take turns. "act" is the device's activation type.
struct ChunkActivations {
  ChunkActivations(Arena& arena, const Config& config, DType act, uint32_t chunk_tokens);

  uint32_t capacity;       // T at most
  Tensor ids;              // u32 [T]
  Tensor hidden;           // f32 [T, H], the residual stream
  Tensor normed;           // act [T, H]
  View proj;               // f32 [T, attention or delta projections side by side]
  Tensor query;            // act [T, Q, D]
  Tensor attention_mixed;  // act [T, Q*D]
  Tensor delta_qkv;        // f32 [T, C]
  Tensor delta_gates;      // f32 [T, 2, Hv]
  Tensor delta_mixed;      // act [T, Hv*Dv]
  Tensor router_logits;    // f32 [T, E + 1]
  Tensor expert_ids;       // u32 [T, S]
  Tensor expert_weights;   // f32 [T, S + 1]
  Tensor order;            // u32 [T*S]
  Tensor offsets;          // u32 [E + 1]
  Tensor expert_act;       // act [T*S, I]
  Tensor expert_out;       // f32 [T*S, H]
  Tensor shared_order;     // u32 [T]: 0, 1, ...; the shared expert is a stack of one
  Tensor shared_offsets;   // u32 [2]: 0, T
  Tensor shared_act;       // act [T, Is]
  Tensor shared_out;       // f32 [T, H]
};

// Logits of a block of rows of a chunk, for scoring.
struct ScoreRows {
  ScoreRows(Arena& arena, const Config& config, uint32_t block_rows);

  uint32_t capacity;
  Tensor logits;    // f32 [rows, V]
  Tensor targets;   // u32 [rows]
  Tensor logprobs;  // f32 [rows]
  Tensor best;      // u32 [rows]
};

// Immutable, so any thread may record.
class Forward {
 public:
  Forward(const Config& config, Weights weights);
  const Config& config() const { return config_; }

  // The token at the cursor through all layers, its logits, and a draw that moves the cursor on.
  // Reads a side of the state and writes the next.
  void record_decode(Step& step, const SessionState& state, uint32_t side) const;
  // Only the draw, from a side's logits.
  void record_draw(Step& step, const SessionState& state, uint32_t side) const;

  // `tokens` rows that stand in chunk.ids, at `position`, through all layers; they end in
  // chunk.hidden. chunk.shared_offsets must hold {0, tokens}. Works on one side of the state.
  void record_prefill(Step& step, const ChunkActivations& chunk, const SessionState& state,
                      uint32_t side, uint32_t tokens, uint32_t position) const;
  // Logits of one row of chunk.hidden, and a draw; the cursor must stand at that row's token.
  void record_logits(Step& step, const ChunkActivations& chunk, const SessionState& state,
                     uint32_t side, uint32_t row) const;
  // Logits of rows [begin, end) of chunk.hidden into the first rows of `score`.
  void record_rows(Step& step, const ChunkActivations& chunk, const ScoreRows& score,
                   uint32_t begin, uint32_t end) const;
  // ... and what they say of score.targets.
  void record_score(Step& step, const ScoreRows& score, uint32_t rows) const;

 private:
  ops::AttentionTensors attention(const LayerWeights& layer, const KvCache& cache,
                                  Tensor proj) const;
  ops::DeltaTensors delta(size_t index, const SessionState& state, uint32_t side,
                          Tensor proj) const;
  void decode_mixer(Step& step, const SessionState& state, uint32_t side, size_t index) const;
  void decode_moe(Step& step, const SessionState& state, const LayerWeights& layer) const;
  void prefill_mixer(Step& step, const ChunkActivations& rows, const SessionState& state,
                     uint32_t side, size_t index, uint32_t position) const;
  void prefill_moe(Step& step, const ChunkActivations& rows, const LayerWeights& layer) const;

  Config config_;
  float eps_;
  Weights weights_;
  std::vector<size_t> index_in_kind_;  // of each layer: its place among layers of its kind
};

}  // namespace lily
