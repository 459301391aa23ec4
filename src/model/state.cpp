// See state.h.
#include "model/state.h"

#include <algorithm>
#include <cstddef>

namespace lily {
namespace {

// One f32 tensor a layer, all in one memory.
View cut(Arena& arena, uint32_t layers, const std::vector<uint64_t>& shape,
         std::vector<Tensor>& tensors) {
  if (layers == 0) return {};
  const Tensor one{{}, DType::f32, shape};
  const uint64_t bytes = one.elements() * sizeof(float);
  const uint64_t stride = (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  const View memory = arena.view(layers * stride);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    tensors.push_back({View(memory.buffer, layer * stride, bytes), DType::f32, shape});
  }
  return memory;
}

DecodeRow make_row(Arena& arena, const Config& c) {
  const auto f32 = [&](std::vector<uint64_t> shape) { return arena.tensor(DType::f32, shape); };
  DecodeRow row;
  row.hidden = f32({1, c.hidden});
  if (c.attention_layers() > 0) {
    row.attention_proj = f32({1, attention_columns(c)});
    row.partial = f32({c.q_heads, kAttentionMaxSplits, c.head_dim + 2ull});
    row.attention_mixed = f32({1, c.q_width()});
  }
  if (c.delta_layers() > 0) {
    row.delta_proj = f32({1, delta_columns(c)});
    row.delta_mixed = f32({1, c.delta_value_width()});
  }
  row.router_logits = f32({1, c.experts + 1ull});
  row.shared_act = f32({1, c.shared_width});
  row.expert_act = f32({c.experts_per_token, c.expert_width});
  row.expert_ids = arena.tensor(DType::u32, {1, c.experts_per_token});
  row.expert_weights = f32({1, c.experts_per_token + 1ull});
  return row;
}

}  // namespace

uint64_t kv_bytes_per_token(const Config& config, DType kv_dtype) {
  return 2ull * config.attention_layers() * config.kv_width() * dtype_bytes(kv_dtype);
}

uint64_t attention_columns(const Config& c) {
  return 2ull * (uint64_t{c.q_width()} + c.kv_width());
}

uint64_t delta_columns(const Config& c) {
  return uint64_t{c.conv_channels()} + c.delta_value_width() + 2ull * c.delta_value_heads;
}

SessionState::SessionState(Arena& arena, const Config& c, DType kv_dtype, uint32_t capacity,
                           uint32_t sides)
    : capacity_(capacity), kv_row_bytes_(c.head_dim * dtype_bytes(kv_dtype)) {
  for (uint32_t layer = 0; layer < c.attention_layers(); ++layer) {
    const std::vector<uint64_t> shape{c.kv_heads, capacity, c.head_dim};
    kv_.push_back({arena.tensor(kv_dtype, shape), arena.tensor(kv_dtype, shape)});
  }
  ring_memory_ = cut(arena, c.delta_layers(), {kConvWidth, c.conv_channels()}, conv_rings_);
  for (uint32_t index = 0; index < sides; ++index) {
    Side side;
    const std::vector<uint64_t> shape{c.delta_value_heads, c.delta_value_dim, c.delta_key_dim};
    state_memory_.push_back(cut(arena, c.delta_layers(), shape, side.states));
    side.logits = arena.tensor(DType::f32, {1, c.vocab});
    side.blocks = arena.record<SampleBlock>((c.vocab + kSampleBlockRows - 1) / kSampleBlockRows);
    side.sampled = arena.shared_record<Sampled>();
    sides_.push_back(std::move(side));
  }
  row_ = make_row(arena, c);
  cursor_ = arena.record<Cursor>();
  sampler_ = arena.record<Sampler>();
}

Tensor SessionState::cursor_token() const {
  return {cursor_.view.slice(offsetof(Cursor, token_id), sizeof(uint32_t)), DType::u32, {1}};
}

// The rows of each kv head of each cache, in the order in which copies hold them.
std::vector<View> SessionState::kv_heads() const {
  std::vector<View> heads;
  const uint64_t head_bytes = capacity_ * kv_row_bytes_;
  for (const KvCache& cache : kv_) {
    for (const Tensor* tensor : {&cache.k, &cache.v}) {
      for (uint64_t head = 0; head < tensor->dim(0); ++head) {
        heads.push_back(tensor->view.slice(head * head_bytes, head_bytes));
      }
    }
  }
  return heads;
}

uint64_t SessionState::kv_bytes(uint32_t begin, uint32_t end) const {
  const uint64_t heads = kv_.empty() ? 0 : kv_.size() * 2 * kv_.front().k.dim(0);
  return heads * (end - begin) * kv_row_bytes_;
}

Buffer SessionState::save_kv(Device& device, uint32_t begin, uint32_t end) const {
  const uint64_t bytes = kv_bytes(begin, end);
  if (bytes == 0) return nullptr;
  const View saved = device.allocate(bytes);
  const uint64_t part = (end - begin) * kv_row_bytes_;
  uint64_t offset = 0;
  for (const View& head : kv_heads()) {
    device.copy(saved.slice(offset, part), head.slice(begin * kv_row_bytes_, part), part);
    offset += part;
  }
  return saved.buffer;
}

void SessionState::load_kv(Device& device, const Buffer& saved, uint32_t begin, uint32_t end,
                           uint32_t from) {
  from = std::max(from, begin);
  if (saved == nullptr || from >= end) return;
  const View view = saved;
  const uint64_t part = (end - begin) * kv_row_bytes_;
  const uint64_t skipped = (from - begin) * kv_row_bytes_;
  uint64_t offset = 0;
  for (const View& head : kv_heads()) {
    device.copy(head.slice(from * kv_row_bytes_, part - skipped),
                view.slice(offset + skipped, part - skipped), part - skipped);
    offset += part;
  }
}

Buffer SessionState::save_recurrent(Device& device, uint32_t side) const {
  if (recurrent_bytes() == 0) return nullptr;
  const View& states = state_memory_[side];
  const View saved = device.allocate(recurrent_bytes());
  const uint64_t rings = ring_memory_.size_bytes;
  device.copy(saved.slice(0, rings), ring_memory_, rings);
  device.copy(saved.slice(rings, states.size_bytes), states, states.size_bytes);
  return saved.buffer;
}

void SessionState::load_recurrent(Device& device, uint32_t side, const Buffer& saved) {
  if (recurrent_bytes() == 0) return;
  const View& states = state_memory_[side];
  const uint64_t rings = ring_memory_.size_bytes;
  const View from = saved;
  device.copy(ring_memory_, from.slice(0, rings), rings);
  device.copy(states, from.slice(rings, states.size_bytes), states.size_bytes);
}

// Not the rings: nothing looks back past the first token.
void SessionState::clear_recurrent(Device& device, uint32_t side) {
  if (recurrent_bytes() > 0) device.clear(state_memory_[side]);
}

}  // namespace lily
