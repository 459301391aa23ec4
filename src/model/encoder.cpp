// See encoder.h.
#include "model/encoder.h"

#include <utility>

#include "core/error.h"
#include "model/arena.h"

namespace lily {
namespace {

// Rows of a batch: enough to pay for decoding the weights, few enough that the rows stay in the
// caches. A batch holds whole windows, of which none is longer.
constexpr uint32_t kBatchRows = 1024;
// Up to here the caller's thread computes alone: the dispatches are some tens of microseconds long,
// and on a busy machine each wait for another thread may cost a time slice.
constexpr uint32_t kRowsAlone = 48;

void add_bias(float* rows, uint64_t count, const std::vector<float>& bias) {
  for (uint64_t row = 0; row < count; ++row, rows += bias.size()) {
    for (size_t column = 0; column < bias.size(); ++column) rows[column] += bias[column];
  }
}

[[noreturn]] void refuse(const char* what, uint64_t index, uint64_t given, uint64_t limit) {
  throw InvalidInput("encoder: " + std::string(what) + " " + std::to_string(index) + " is " +
                     std::to_string(given) + ", expected at most " + std::to_string(limit));
}

}  // namespace

Encoder::Rows::Rows(Device& device, const EncoderConfig& c) {
  Arena arena(&device);
  const DType kind = device.activation_dtype();
  const uint64_t tokens = kBatchRows, windows = kBatchRows, hidden = c.hidden;
  ids = arena.tensor(DType::u32, {tokens});
  word_forms = arena.tensor(DType::u32, {tokens});
  positions = arena.tensor(DType::u32, {tokens});
  offsets = arena.tensor(DType::u32, {windows + 1});
  this->hidden = arena.tensor(DType::f32, {tokens, hidden});
  normed = arena.tensor(kind, {tokens, hidden});
  qkv = arena.tensor(DType::f32, {tokens, 3 * hidden});
  mixed = arena.tensor(kind, {tokens, hidden});
  up = arena.tensor(DType::f32, {tokens, c.intermediate});
  act = arena.tensor(kind, {tokens, c.intermediate});
  token_logits = arena.tensor(DType::f32, {tokens, c.token_outputs});
  pooled = arena.tensor(kind, {windows, 2 * hidden});
  dense = arena.tensor(DType::f32, {windows, hidden});
  dense_act = arena.tensor(kind, {windows, hidden});
  document_logits = arena.tensor(DType::f32, {windows, c.document_outputs});
}

Encoder::Rows Encoder::Rows::first(uint32_t tokens, uint32_t windows) const {
  Rows cut = *this;
  for (Tensor Rows::* part :
       {&Rows::ids, &Rows::word_forms, &Rows::positions, &Rows::hidden, &Rows::normed, &Rows::qkv,
        &Rows::mixed, &Rows::up, &Rows::act, &Rows::token_logits}) {
    cut.*part = (cut.*part).rows(0, tokens);
  }
  for (Tensor Rows::* part :
       {&Rows::pooled, &Rows::dense, &Rows::dense_act, &Rows::document_logits}) {
    cut.*part = (cut.*part).rows(0, windows);
  }
  cut.offsets = cut.offsets.rows(0, windows + uint64_t{1});
  return cut;
}

Encoder::Encoder(std::shared_ptr<Device> device, const EncoderConfig& config,
                 EncoderWeights weights)
    : device_(std::move(device)),
      config_(config),
      weights_(std::move(weights)),
      rows_(*device_, config) {}

std::shared_ptr<Encoder> Encoder::load(const std::filesystem::path& folder,
                                       const std::string& device, uint32_t threads) {
  const EncoderConfig config = EncoderConfig::read(folder);
  DeviceOptions options;
  options.threads = threads;
  std::shared_ptr<Device> opened = open_device(device, options);
  EncoderWeights weights = EncoderWeights::load(folder, config, *opened);
  return std::shared_ptr<Encoder>(new Encoder(std::move(opened), config, std::move(weights)));
}

void Encoder::record_layer(Step& step, const Rows& rows, const EncoderLayer& layer) const {
  const auto norm = [&](const EncoderNorm& w) {
    ops::encoder_norm(step, rows.normed, rows.hidden, w.bias, w.gain, w.shift, config_.eps);
  };
  ops::linear(step, rows.qkv, rows.normed, {layer.query, layer.key, layer.value});
  ops::encoder_attention(step, rows.mixed, rows.qkv, layer.qkv_bias, rows.offsets, config_.heads,
                         config_.window_tokens);
  ops::linear_add(step, rows.hidden, rows.mixed, layer.output);
  norm(layer.attention_norm);
  ops::linear(step, rows.up, rows.normed, {layer.up});
  ops::encoder_gelu(step, rows.act, rows.up, layer.up_bias);
  ops::linear_add(step, rows.hidden, rows.act, layer.down);
  norm(layer.mlp_norm);
}

void Encoder::record(Step& step, uint32_t tokens, uint32_t windows) const {
  const Rows rows = rows_.first(tokens, windows);
  const EncoderWeights& w = weights_;
  ops::embed_rows(step, rows.hidden, rows.ids, w.words);
  ops::encoder_embed(step, rows.normed, rows.hidden, rows.positions, rows.word_forms, w.positions,
                     w.forms, w.embedding_norm.gain, w.embedding_norm.shift, config_.eps);
  for (const EncoderLayer& layer : w.layers) record_layer(step, rows, layer);
  ops::linear(step, rows.token_logits, rows.normed, {w.token});
  ops::encoder_pool(step, rows.pooled, rows.hidden, rows.offsets);
  ops::linear(step, rows.dense, rows.pooled, {w.dense});
  ops::encoder_gelu(step, rows.dense_act, rows.dense, w.dense_bias);
  ops::linear(step, rows.document_logits, rows.dense_act, {w.document});
}

void Encoder::check(std::span<const uint32_t> ids, std::span<const uint32_t> forms,
                    std::span<const uint32_t> lengths) const {
  uint64_t rows = 0;
  for (size_t w = 0; w < lengths.size(); ++w) {
    if (lengths[w] == 0) throw InvalidInput("encoder: window " + std::to_string(w) + " is empty");
    if (lengths[w] > config_.window_tokens) {
      refuse("the length of window", w, lengths[w], config_.window_tokens);
    }
    rows += lengths[w];
  }
  if (ids.size() != rows || forms.size() != rows) {
    throw InvalidInput("encoder: " + grouped(ids.size()) + " ids and " + grouped(forms.size()) +
                       " forms given, expected " + grouped(rows) + ", the sum of all lengths");
  }
  for (size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] >= config_.vocab) refuse("id", t, ids[t], config_.vocab - 1);
    if (forms[t] >= config_.forms) refuse("form", t, forms[t], config_.forms - 1);
  }
}

Encoder::Logits Encoder::run(std::span<const uint32_t> ids, std::span<const uint32_t> forms,
                             std::span<const uint32_t> lengths) {
  check(ids, forms, lengths);
  Logits logits;
  logits.tokens.resize(ids.size() * config_.token_outputs);
  logits.documents.resize(lengths.size() * config_.document_outputs);
  uint64_t row = 0;
  for (size_t window = 0; window < lengths.size();) {
    size_t last = window;
    uint32_t rows = 0;
    while (last < lengths.size() && rows + lengths[last] <= kBatchRows) rows += lengths[last++];
    run_batch(ids.subspan(row, rows), forms.subspan(row, rows),
              lengths.subspan(window, last - window),
              logits.tokens.data() + row * config_.token_outputs,
              logits.documents.data() + window * config_.document_outputs);
    row += rows;
    window = last;
  }
  return logits;
}

void Encoder::run_batch(std::span<const uint32_t> ids, std::span<const uint32_t> forms,
                        std::span<const uint32_t> lengths, float* tokens, float* documents) {
  std::vector<uint32_t> positions, offsets{0};
  for (const uint32_t length : lengths) {
    for (uint32_t position = 0; position < length; ++position) positions.push_back(position);
    offsets.push_back(offsets.back() + length);
  }
  const std::lock_guard turn(turn_);
  const auto write = [&](const Tensor& to, std::span<const uint32_t> values) {
    device_->write(to.view, values.data(), values.size_bytes());
  };
  write(rows_.ids, ids);
  write(rows_.word_forms, forms);
  write(rows_.positions, positions);
  write(rows_.offsets, offsets);
  Step step(device_->tiles());
  record(step, static_cast<uint32_t>(ids.size()), static_cast<uint32_t>(lengths.size()));
  ids.size() <= kRowsAlone ? device_->submit_beside(step) : device_->submit(step);
  device_->wait();
  device_->read(rows_.token_logits.view, tokens, ids.size() * config_.token_outputs * 4);
  device_->read(rows_.document_logits.view, documents,
                lengths.size() * config_.document_outputs * 4);
  add_bias(tokens, ids.size(), weights_.token_bias);
  add_bias(documents, lengths.size(), weights_.document_bias);
}

}  // namespace lily
