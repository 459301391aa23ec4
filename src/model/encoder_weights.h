// The folder of the gate's encoder: config.json as numbers that may be trusted, and the weights on
// a device, by the part they play. Refuses a file that is damaged, incomplete or not of this
// network. Knows no forward pass, and neither tokens nor what a label means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "device/device.h"
#include "ops/ops.h"

namespace lily {

struct EncoderConfig {
  uint32_t layers = 0;
  uint32_t hidden = 0;  // heads * kEncoderHeadDim
  uint32_t heads = 0;
  uint32_t intermediate = 0;
  uint32_t vocab = 0;
  uint32_t window_tokens = 0;  // rows of a window at most, also of the position table
  uint32_t forms = 0;          // rows of the table of word forms
  uint32_t token_outputs = 0;  // O, and four tags a label
  uint32_t document_outputs = 0;
  uint32_t group_size = 0;  // of the q8 matrices
  float eps = 0;

  // Reads config.json. Throws ModelError.
  static EncoderConfig read(const std::filesystem::path& folder);
};

struct EncoderNorm {
  Tensor bias;         // f32 [H] of the product in front; empty for the embeddings
  Tensor gain, shift;  // f32 [H]
};

struct EncoderLayer {
  Matrix query, key, value, output, up, down;
  Tensor qkv_bias;  // f32 [3*H]
  Tensor up_bias;   // f32 [I]
  EncoderNorm attention_norm, mlp_norm;
};

struct EncoderWeights {
  Matrix words;             // [V, H]
  Tensor positions, forms;  // f32 [window_tokens, H], [forms, H]
  EncoderNorm embedding_norm;
  std::vector<EncoderLayer> layers;
  Matrix token;  // [token_outputs, H]
  Matrix dense;  // [H, 2*H]
  Tensor dense_bias;
  Matrix document;                               // [document_outputs, H]
  std::vector<float> token_bias, document_bias;  // added where the host reads the logits

  // Maps model.safetensors; q8 matrices are read in place where the device can. Throws ModelError
  // for a tensor that is missing, unexpected, of another type or shape, or not finite.
  static EncoderWeights load(const std::filesystem::path& folder, const EncoderConfig& config,
                             Device& device);
};

}  // namespace lily
