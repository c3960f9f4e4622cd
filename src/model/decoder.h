// Decoder: the layers of any ModelSpec, written once against Ops. From token ids and positions of a
// batch to hidden states and logits; the KV of each row is stored on the way. It chooses no tokens
// and knows no requests, blocks are only numbers to it. Owned by ModelRunner, used by the worker
// thread alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/model_spec.h"
#include "polysil/device/backend.h"
#include "polysil/device/ops.h"

namespace polysil {

struct DecoderOptions {
  int32_t tokens_max = 512;     // rows of one Forward
  int32_t logit_rows_max = 32;  // rows of one Logits
};

// Rows of one or more sequences, those of one sequence together. Ids and positions are checked by
// the caller: 0 <= id < vocab_size, block tables cover the positions.
struct DecoderBatch {
  std::span<const TokenId> tokens;
  std::span<const int32_t> positions;  // one per token
  std::span<const AttentionSequence> sequences;
  const KvPool* pool = nullptr;
};

class Decoder final {
 public:
  // `device` must outlive the decoder, and copies what `weights` points to.
  static StatusOr<std::unique_ptr<Decoder>> Load(Device& device, const ModelSpec& spec,
                                                 const ModelWeights& weights,
                                                 const DecoderOptions& options);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelSpec& spec() const { return spec_; }
  const DecoderOptions& options() const { return options_; }

  // Called after each operation that may take long.
  void SetHeartbeat(std::function<void()> beat) { beat_ = std::move(beat); }

  // At most options().tokens_max rows. No allocation.
  void Forward(const DecoderBatch& batch);
  // The residual stream after the last layer of the last Forward: [rows, hidden_size].
  std::span<const float> hidden() const { return {hidden_, hidden_size_used_}; }
  // Logits of chosen rows of the last Forward: [rows, vocab_size], until the next call. At most
  // options().logit_rows_max rows.
  std::span<const float> Logits(std::span<const int32_t> rows);

 private:
  // The device's copy of a LayerWeights. Null where the model has none.
  struct Layer {
    std::unique_ptr<WeightMatrix> q, k, v, attention_output, gate, up, down;
    const float* q_bias = nullptr;
    const float* k_bias = nullptr;
    const float* v_bias = nullptr;
    const float* attention_output_bias = nullptr;
    const float* gate_bias = nullptr;
    const float* up_bias = nullptr;
    const float* down_bias = nullptr;
    const float* attention_norm = nullptr;
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
    const float* post_attention_norm = nullptr;
    const float* ffn_norm = nullptr;
    const float* post_ffn_norm = nullptr;
  };

  Decoder(Device& device, const ModelSpec& spec, const DecoderOptions& options);
  Status LoadMatrices(Device& device, const ModelWeights& weights);
  Status LoadVectors(Device& device, const ModelWeights& weights);
  Status AllocateActivations(Device& device);

  // An operation is done.
  void Beat() const {
    if (beat_) beat_();
  }
  void Norm(const float* x, const float* weight, int64_t rows, int64_t cols, float* out);
  void Attention(const DecoderBatch& batch, int32_t layer_index);
  void Ffn(int64_t rows, int32_t layer_index);
  // hidden += W x, with the norm in between where the model has one after its blocks.
  void AddProduct(const float* x, int64_t rows, const WeightMatrix& weight, const float* bias,
                  const float* post_norm);

  Ops& ops_;
  const ModelSpec spec_;
  const DecoderOptions options_;
  std::function<void()> beat_;
  std::unique_ptr<EmbeddingTable> embedding_;
  std::unique_ptr<WeightMatrix> output_;
  const float* output_norm_ = nullptr;
  std::vector<Layer> layers_;
  std::unique_ptr<DeviceBuffer> vectors_;      // norms and biases
  std::unique_ptr<DeviceBuffer> activations_;  // all of these:
  float* hidden_ = nullptr;                    // [tokens, hidden_size], the residual stream
  float* normed_ = nullptr;                    // [tokens, hidden_size]
  float* product_ = nullptr;                   // [tokens, hidden_size], before a post-norm
  float* q_ = nullptr;                         // [tokens, q_heads, head_size]
  float* k_ = nullptr;                         // [tokens, kv_heads, head_size]
  float* v_ = nullptr;                         // [tokens, kv_heads, head_size]
  float* attended_ = nullptr;                  // [tokens, q_heads, head_size]
  float* gate_ = nullptr;                      // [tokens, ffn_size]
  float* up_ = nullptr;                        // [tokens, ffn_size]
  float* logit_inputs_ = nullptr;              // [logit_rows, hidden_size]
  float* logits_ = nullptr;                    // [logit_rows, vocab_size]
  size_t hidden_size_used_ = 0;                // floats of hidden_ that the last Forward wrote
};

}  // namespace polysil
