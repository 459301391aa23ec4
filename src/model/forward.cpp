// See forward.h. The order of operations here is the model; DESIGN.md section 4 states it in words.
#include "model/forward.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lily {
namespace {

// The first `rows` rows of a chunk's tensors: what one chunk of that many tokens works on.
Tensor first(const Tensor& tensor, uint64_t rows) { return tensor.rows(0, rows); }

Tensor first_rows(const View& memory, uint64_t rows, uint64_t columns) {
  return {memory.slice(0, rows * columns * sizeof(float)), DType::f32, {rows, columns}};
}

ChunkActivations cut(const ChunkActivations& chunk, uint32_t tokens, uint64_t slots) {
  ChunkActivations rows = chunk;
  rows.capacity = tokens;
  for (Tensor ChunkActivations::* part :
       {&ChunkActivations::ids, &ChunkActivations::hidden, &ChunkActivations::normed,
        &ChunkActivations::query, &ChunkActivations::attention_mixed, &ChunkActivations::delta_qkv,
        &ChunkActivations::delta_gates, &ChunkActivations::delta_mixed,
        &ChunkActivations::router_logits, &ChunkActivations::expert_ids,
        &ChunkActivations::expert_weights, &ChunkActivations::shared_order,
        &ChunkActivations::shared_act, &ChunkActivations::shared_out}) {
    if ((rows.*part).view) rows.*part = first(rows.*part, tokens);
  }
  for (Tensor ChunkActivations::* part :
       {&ChunkActivations::order, &ChunkActivations::expert_act, &ChunkActivations::expert_out}) {
    rows.*part = first(rows.*part, tokens * slots);
  }
  return rows;
}

}  // namespace

ChunkActivations::ChunkActivations(Arena& arena, const Config& c, DType act, uint32_t tokens)
    : capacity(tokens) {
  const uint64_t slot_rows = uint64_t{tokens} * c.experts_per_token;
  ids = arena.tensor(DType::u32, {tokens});
  hidden = arena.tensor(DType::f32, {tokens, c.hidden});
  normed = arena.tensor(act, {tokens, c.hidden});
  uint64_t proj_columns = 0;
  if (c.attention_layers() > 0) {
    proj_columns = attention_columns(c);
    query = arena.tensor(act, {tokens, c.q_heads, c.head_dim});
    attention_mixed = arena.tensor(act, {tokens, c.q_width()});
  }
  if (c.delta_layers() > 0) {
    proj_columns = std::max(proj_columns, delta_columns(c));
    delta_qkv = arena.tensor(DType::f32, {tokens, c.conv_channels()});
    delta_gates = arena.tensor(DType::f32, {tokens, 2, c.delta_value_heads});
    delta_mixed = arena.tensor(act, {tokens, c.delta_value_width()});
  }
  proj = arena.view(tokens * proj_columns * sizeof(float));
  router_logits = arena.tensor(DType::f32, {tokens, c.experts + 1ull});
  expert_ids = arena.tensor(DType::u32, {tokens, c.experts_per_token});
  expert_weights = arena.tensor(DType::f32, {tokens, c.experts_per_token + 1ull});
  order = arena.tensor(DType::u32, {slot_rows});
  offsets = arena.tensor(DType::u32, {c.experts + 1ull});
  expert_act = arena.tensor(act, {slot_rows, c.expert_width});
  expert_out = arena.tensor(DType::f32, {slot_rows, c.hidden});
  std::vector<uint32_t> as_they_stand(tokens);
  std::iota(as_they_stand.begin(), as_they_stand.end(), 0);
  shared_order = {arena.filled<uint32_t>(as_they_stand), DType::u32, {tokens}};
  shared_offsets = arena.tensor(DType::u32, {2});
  shared_act = arena.tensor(act, {tokens, c.shared_width});
  shared_out = arena.tensor(DType::f32, {tokens, c.hidden});
}

ScoreRows::ScoreRows(Arena& arena, const Config& c, uint32_t block_rows)
    : capacity(block_rows),
      logits(arena.tensor(DType::f32, {block_rows, c.vocab})),
      targets(arena.tensor(DType::u32, {block_rows})),
      logprobs(arena.tensor(DType::f32, {block_rows})),
      best(arena.tensor(DType::u32, {block_rows})) {}

Forward::Forward(const Config& config, Weights weights)
    : config_(config), eps_(static_cast<float>(config.rms_eps)), weights_(std::move(weights)) {
  size_t attention_layers = 0, delta_layers = 0;
  for (const LayerWeights& layer : weights_.layers) {
    size_t& count = layer.kind == LayerKind::attention ? attention_layers : delta_layers;
    index_in_kind_.push_back(count++);
  }
}

ops::AttentionTensors Forward::attention(const LayerWeights& layer, const KvCache& cache,
                                         Tensor proj) const {
  return {.proj = std::move(proj),
          .q_gain = layer.attention.q_gain,
          .k_gain = layer.attention.k_gain,
          .inv_freq = weights_.inv_freq,
          .k_cache = cache.k,
          .v_cache = cache.v,
          .q_heads = config_.q_heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim,
          .rotary_dims = config_.rotary_dims,
          .eps = eps_};
}

ops::DeltaTensors Forward::delta(size_t index, const SessionState& state, uint32_t side,
                                 Tensor proj) const {
  const LayerWeights& layer = weights_.layers[index];
  const size_t place = index_in_kind_[index];
  return {.proj = std::move(proj),
          .conv_weight = layer.delta.conv_weight,
          .conv_ring = state.conv_rings()[place],
          .decay_rate = layer.delta.decay_rate,
          .dt_bias = layer.delta.dt_bias,
          .gain = layer.delta.gain,
          .state = state.side(side).states[place],
          .key_heads = config_.delta_key_heads,
          .value_heads = config_.delta_value_heads,
          .key_dim = config_.delta_key_dim,
          .value_dim = config_.delta_value_dim,
          .eps = eps_};
}

void Forward::record_decode(Step& step, const SessionState& state, uint32_t side) const {
  const DecodeRow& row = state.row();
  const uint32_t next = state.next_side(side);
  ops::embed_rows(step, row.hidden, state.cursor_token(), weights_.embedding);
  for (size_t index = 0; index < weights_.layers.size(); ++index) {
    decode_mixer(step, state, side, index);
    decode_moe(step, state, weights_.layers[index]);
  }
  ops::sample_logits(step, state.side(next).logits, state.side(next).blocks, row.hidden,
                     weights_.final_gain, eps_, weights_.lm_head);
  record_draw(step, state, next);
}

void Forward::record_draw(Step& step, const SessionState& state, uint32_t side) const {
  ops::sample_draw(step, state.side(side).sampled, state.side(side).blocks, state.sampler(),
                   state.cursor(), config_.vocab);
}

void Forward::decode_mixer(Step& step, const SessionState& state, uint32_t side,
                           size_t index) const {
  const LayerWeights& layer = weights_.layers[index];
  const DecodeRow& row = state.row();
  if (layer.kind == LayerKind::attention) {
    const AttentionWeights& w = layer.attention;
    const ops::AttentionTensors tensors =
        attention(layer, state.kv()[index_in_kind_[index]], row.attention_proj);
    ops::linear_norm(step, row.attention_proj, row.hidden, layer.mixer_gain, eps_, {w.q, w.k, w.v});
    ops::attention_decode(step, row.partial, tensors, state.cursor());
    ops::attention_merge(step, row.attention_mixed, row.partial, tensors, state.cursor());
    ops::linear_add(step, row.hidden, row.attention_mixed, w.o);
  } else {
    const DeltaWeights& w = layer.delta;
    const ops::DeltaTensors tensors = delta(index, state, side, row.delta_proj);
    const Side& next = state.side(state.next_side(side));
    ops::linear_norm(step, row.delta_proj, row.hidden, layer.mixer_gain, eps_,
                     {w.qkv, w.z, w.b, w.a});
    ops::delta_step(step, row.delta_mixed, next.states[index_in_kind_[index]], tensors,
                    state.cursor());
    ops::linear_add(step, row.hidden, row.delta_mixed, w.out);
  }
}

void Forward::decode_moe(Step& step, const SessionState& state, const LayerWeights& layer) const {
  const DecodeRow& row = state.row();
  ops::moe_router(step, row.router_logits, row.shared_act, row.hidden, layer.moe_gain, eps_,
                  layer.moe);
  ops::moe_gate_up(step, row.expert_act, row.expert_ids, row.expert_weights, row.router_logits,
                   row.hidden, layer.moe_gain, eps_, layer.moe);
  ops::moe_down(step, row.hidden, row.expert_act, row.shared_act, row.router_logits, row.expert_ids,
                row.expert_weights, layer.moe);
}

void Forward::record_prefill(Step& step, const ChunkActivations& chunk, const SessionState& state,
                             uint32_t side, uint32_t tokens, uint32_t position) const {
  const ChunkActivations rows = cut(chunk, tokens, config_.experts_per_token);
  ops::embed_rows(step, rows.hidden, rows.ids, weights_.embedding);
  for (size_t index = 0; index < weights_.layers.size(); ++index) {
    prefill_mixer(step, rows, state, side, index, position);
    prefill_moe(step, rows, weights_.layers[index]);
  }
}

void Forward::prefill_mixer(Step& step, const ChunkActivations& rows, const SessionState& state,
                            uint32_t side, size_t index, uint32_t position) const {
  const LayerWeights& layer = weights_.layers[index];
  ops::norm_rms(step, rows.normed, rows.hidden, layer.mixer_gain, eps_);
  if (layer.kind == LayerKind::attention) {
    const AttentionWeights& w = layer.attention;
    const Tensor proj = first_rows(rows.proj, rows.capacity, attention_columns(config_));
    const ops::AttentionTensors tensors = attention(layer, state.kv()[index_in_kind_[index]], proj);
    ops::linear(step, proj, rows.normed, {w.q, w.k, w.v});
    ops::rope_append(step, rows.query, tensors, position);
    ops::attention_prefill(step, rows.attention_mixed, rows.query, tensors, position);
    ops::linear_add(step, rows.hidden, rows.attention_mixed, w.o);
  } else {
    const DeltaWeights& w = layer.delta;
    const Tensor proj = first_rows(rows.proj, rows.capacity, delta_columns(config_));
    const ops::DeltaTensors tensors = delta(index, state, side, proj);
    ops::linear(step, proj, rows.normed, {w.qkv, w.z, w.b, w.a});
    ops::delta_conv(step, rows.delta_qkv, rows.delta_gates, tensors, position);
    ops::delta_chunk(step, rows.delta_mixed, rows.delta_qkv, rows.delta_gates, tensors);
    ops::linear_add(step, rows.hidden, rows.delta_mixed, w.out);
  }
}

void Forward::prefill_moe(Step& step, const ChunkActivations& rows,
                          const LayerWeights& layer) const {
  const ops::MoeWeights& moe = layer.moe;
  ops::norm_rms(step, rows.normed, rows.hidden, layer.moe_gain, eps_);
  ops::linear(step, rows.router_logits, rows.normed, {moe.router, moe.shared_router});
  ops::moe_route(step, rows.expert_ids, rows.expert_weights, rows.router_logits);
  ops::moe_sort(step, rows.order, rows.offsets, rows.expert_ids);
  ops::moe_grouped_gate_up(step, rows.expert_act, rows.normed, rows.order, rows.offsets, moe.gate,
                           moe.up, moe.slots);
  ops::moe_grouped_down(step, rows.expert_out, rows.expert_act, rows.order, rows.offsets, moe.down);
  ops::moe_grouped_gate_up(step, rows.shared_act, rows.normed, rows.shared_order,
                           rows.shared_offsets, moe.shared_gate, moe.shared_up, 1);
  ops::moe_grouped_down(step, rows.shared_out, rows.shared_act, rows.shared_order,
                        rows.shared_offsets, moe.shared_down);
  ops::moe_combine(step, rows.hidden, rows.expert_out, rows.shared_out, rows.expert_weights);
}

void Forward::record_logits(Step& step, const ChunkActivations& chunk, const SessionState& state,
                            uint32_t side, uint32_t row) const {
  ops::sample_logits(step, state.side(side).logits, state.side(side).blocks,
                     chunk.hidden.rows(row, row + 1), weights_.final_gain, eps_, weights_.lm_head);
  record_draw(step, state, side);
}

void Forward::record_rows(Step& step, const ChunkActivations& chunk, const ScoreRows& score,
                          uint32_t begin, uint32_t end) const {
  const Tensor normed = first(chunk.normed, end - begin);
  ops::norm_rms(step, normed, chunk.hidden.rows(begin, end), weights_.final_gain, eps_);
  ops::linear(step, first(score.logits, end - begin), normed, {weights_.lm_head});
}

void Forward::record_score(Step& step, const ScoreRows& score, uint32_t rows) const {
  ops::sample_score(step, first(score.logprobs, rows), first(score.best, rows),
                    first(score.logits, rows), first(score.targets, rows));
}

}  // namespace lily
