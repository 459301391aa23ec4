// The weights of the model on a device, by the part they play. Knows the names and shapes that
// checkpoints use for them, and lists everything that is wrong with one. Knows no forward pass.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/checkpoint.h"
#include "model/tensor_reader.h"
#include "ops/ops.h"

namespace lily {

struct AttentionWeights {
  Matrix q, k, v, o;      // q: per head [query | gate]
  Tensor q_gain, k_gain;  // f32 [D]
};

struct DeltaWeights {
  Matrix qkv, z, b, a, out;
  Tensor conv_weight;          // f32 [C, kConvWidth]
  Tensor decay_rate, dt_bias;  // f32 [Hv]
  Tensor gain;                 // f32 [Dv]
};

struct LayerWeights {
  LayerKind kind = LayerKind::delta;
  Tensor mixer_gain, moe_gain;  // f32 [H]
  AttentionWeights attention;   // where kind is attention
  DeltaWeights delta;           // where kind is delta
  ops::MoeWeights moe;
};

struct Weights {
  Matrix embedding, lm_head;  // the same memory where the checkpoint ties them
  Tensor final_gain;          // f32 [H]
  Tensor inv_freq;            // f32 [rotary_dims / 2]
  std::vector<LayerWeights> layers;
};

// hf: norms are zero-centred and the convolution is [C, 1, 4]. mlx: norms hold the gain itself and
// the convolution is [C, 4, 1].
enum class Layout : uint8_t { hf, mlx };
const char* layout_name(Layout layout);

struct WeightsReport {
  Layout layout = Layout::hf;
  std::vector<std::string> problems;  // one line each; layers with the same problem share a line
  std::vector<std::string> unused;    // known and not needed: "mtp.* (15 tensors)"
  std::map<std::string, uint64_t> format_bytes;  // "q4" -> bytes, scales and biases included
  uint64_t parameters = 0;
  uint64_t active_parameters = 0;  // that one token reads, the embedding not counted
  uint64_t in_place_bytes = 0;     // read where the files are mapped
  uint64_t copied_bytes = 0;       // small vectors as f32, and what had to be rewritten
};
// Allocates nothing, and reads no weight unless the depth says so.
WeightsReport inspect_weights(const Checkpoint& checkpoint, CheckDepth depth,
                              size_t alignment_bytes);
// Throws ModelError with all the problems of the report, one a line, if there are any.
void check_report(const Checkpoint& checkpoint, const WeightsReport& report);

// Wraps every shard once. Throws ModelError with all the problems, NaN and Inf in small vectors
// among them.
Weights load_weights(const Checkpoint& checkpoint, Device& device);

}  // namespace lily
