// The gate's encoder: from windows of token ids to logits of tokens and of the text, through the
// same operations on every device. Owns weights, the rows of a batch of windows and their order of
// computation; knows no text, no label and no threshold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/encoder_weights.h"

namespace lily {

// Any thread may call run(); callers take turns.
class Encoder {
 public:
  struct Logits {
    std::vector<float> tokens;     // [rows, token_outputs]
    std::vector<float> documents;  // [windows, document_outputs]
  };

  // threads 0: all processors of the CPU device. Throws ModelError, InvalidInput (no such device
  // name), DeviceError.
  static std::shared_ptr<Encoder> load(const std::filesystem::path& folder,
                                       const std::string& device, uint32_t threads);

  const EncoderConfig& config() const { return config_; }
  const Device& device() const { return *device_; }

  // Windows stand one behind the other, lengths[w] rows each; the rows of one see that one alone.
  // Throws InvalidInput for an id, form or length that is out of range.
  Logits run(std::span<const uint32_t> ids, std::span<const uint32_t> forms,
             std::span<const uint32_t> lengths);

 private:
  // The rows of a batch on their way through the layers; "act" is the device's activation type.
  struct Rows {
    Rows(Device& device, const EncoderConfig& config);
    Rows first(uint32_t tokens, uint32_t windows) const;

    Tensor ids, word_forms, positions;  // u32 [T]
    Tensor offsets;                     // u32 [W + 1]
    Tensor hidden;                      // f32 [T, H], the residual stream
    Tensor normed;                      // act [T, H], its copy for products
    Tensor qkv;                         // f32 [T, 3*H]
    Tensor mixed;                       // act [T, H]
    Tensor up;                          // f32 [T, I]
    Tensor act;                         // act [T, I]
    Tensor token_logits;                // f32 [T, token_outputs]
    Tensor pooled;                      // act [W, 2*H]
    Tensor dense;                       // f32 [W, H]
    Tensor dense_act;                   // act [W, H]
    Tensor document_logits;             // f32 [W, document_outputs]
  };

  Encoder(std::shared_ptr<Device> device, const EncoderConfig& config, EncoderWeights weights);
  void check(std::span<const uint32_t> ids, std::span<const uint32_t> forms,
             std::span<const uint32_t> lengths) const;
  void record(Step& step, uint32_t tokens, uint32_t windows) const;
  void record_layer(Step& step, const Rows& rows, const EncoderLayer& layer) const;
  void run_batch(std::span<const uint32_t> ids, std::span<const uint32_t> forms,
                 std::span<const uint32_t> lengths, float* tokens, float* documents);

  std::shared_ptr<Device> device_;
  EncoderConfig config_;
  EncoderWeights weights_;
  std::mutex turn_;
  Rows rows_;
};

}  // namespace lily
