#include "model/decoder.h"

#include <array>
#include <cstring>
#include <utility>

#include "polysil/base/check.h"

namespace polysil {
namespace {

// Floats between the beginnings of two arrays in one buffer: whole cache lines.
int64_t RoundedFloats(int64_t floats) {
  return (floats + 15) / 16 * 16;
}

}  // namespace

StatusOr<std::unique_ptr<Decoder>> Decoder::Load(Device& device, const ModelSpec& spec,
                                                 const ModelWeights& weights,
                                                 const DecoderOptions& options) {
  CHECK(weights.layers.size() == spec.layers.size(), "weights of {} layers for a spec of {}",
        weights.layers.size(), spec.layers.size());
  if (options.tokens_max < 1 || options.logit_rows_max < 1) {
    return InvalidArgument("a decoder needs room for a token and a row of logits, not {} and {}",
                           options.tokens_max, options.logit_rows_max);
  }
  std::unique_ptr<Decoder> decoder(new Decoder(device, spec, options));
  RETURN_IF_ERROR(decoder->LoadMatrices(device, weights));
  RETURN_IF_ERROR(decoder->LoadVectors(device, weights));
  RETURN_IF_ERROR(decoder->AllocateActivations(device));
  return decoder;
}

Decoder::Decoder(Device& device, const ModelSpec& spec, const DecoderOptions& options)
    : ops_(device.ops()), spec_(spec), options_(options) {}
Decoder::~Decoder() = default;

Status Decoder::LoadMatrices(Device& device, const ModelWeights& weights) {
  ASSIGN_OR_RETURN(embedding_, device.LoadTable(weights.embedding));
  ASSIGN_OR_RETURN(output_,
                   device.LoadMatrix(spec_.tied_embedding ? weights.embedding : weights.output));
  layers_.resize(spec_.layers.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerWeights& from = weights.layers[i];
    Layer& to = layers_[i];
    ASSIGN_OR_RETURN(to.q, device.LoadMatrix(from.q));
    ASSIGN_OR_RETURN(to.k, device.LoadMatrix(from.k));
    ASSIGN_OR_RETURN(to.v, device.LoadMatrix(from.v));
    ASSIGN_OR_RETURN(to.attention_output, device.LoadMatrix(from.attention_output));
    ASSIGN_OR_RETURN(to.gate, device.LoadMatrix(from.gate));
    ASSIGN_OR_RETURN(to.up, device.LoadMatrix(from.up));
    ASSIGN_OR_RETURN(to.down, device.LoadMatrix(from.down));
  }
  return OkStatus();
}

Status Decoder::LoadVectors(Device& device, const ModelWeights& weights) {
  std::vector<std::pair<const std::vector<float>*, const float**>> vectors;
  vectors.emplace_back(&weights.output_norm, &output_norm_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerWeights& from = weights.layers[i];
    Layer& to = layers_[i];
    vectors.emplace_back(&from.q_bias, &to.q_bias);
    vectors.emplace_back(&from.k_bias, &to.k_bias);
    vectors.emplace_back(&from.v_bias, &to.v_bias);
    vectors.emplace_back(&from.attention_output_bias, &to.attention_output_bias);
    vectors.emplace_back(&from.gate_bias, &to.gate_bias);
    vectors.emplace_back(&from.up_bias, &to.up_bias);
    vectors.emplace_back(&from.down_bias, &to.down_bias);
    vectors.emplace_back(&from.attention_norm, &to.attention_norm);
    vectors.emplace_back(&from.q_norm, &to.q_norm);
    vectors.emplace_back(&from.k_norm, &to.k_norm);
    vectors.emplace_back(&from.post_attention_norm, &to.post_attention_norm);
    vectors.emplace_back(&from.ffn_norm, &to.ffn_norm);
    vectors.emplace_back(&from.post_ffn_norm, &to.post_ffn_norm);
  }
  int64_t floats = 0;
  for (const auto& [from, to] : vectors)
    floats += RoundedFloats(static_cast<int64_t>(from->size()));
  ASSIGN_OR_RETURN(vectors_, device.Allocate(floats * static_cast<int64_t>(sizeof(float))));
  auto* next = reinterpret_cast<float*>(vectors_->data());
  for (const auto& [from, to] : vectors) {
    if (from->empty()) continue;
    std::memcpy(next, from->data(), from->size() * sizeof(float));
    *to = next;
    next += RoundedFloats(static_cast<int64_t>(from->size()));
  }
  return OkStatus();
}

Status Decoder::AllocateActivations(Device& device) {
  const int64_t tokens = options_.tokens_max;
  const int64_t logit_rows = options_.logit_rows_max;
  const int64_t q_size = int64_t{spec_.q_heads} * spec_.head_size;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_size;
  const std::array<std::pair<float**, int64_t>, 11> arrays = {{
      {&hidden_, tokens * spec_.hidden_size},
      {&normed_, tokens * spec_.hidden_size},
      {&product_, spec_.post_norms ? tokens * spec_.hidden_size : 0},
      {&q_, tokens * q_size},
      {&k_, tokens * kv_size},
      {&v_, tokens * kv_size},
      {&attended_, tokens * q_size},
      {&gate_, tokens * spec_.ffn_size},
      {&up_, tokens * spec_.ffn_size},
      {&logit_inputs_, logit_rows * spec_.hidden_size},
      {&logits_, logit_rows * spec_.vocab_size},
  }};
  int64_t floats = 0;
  for (const auto& [array, size] : arrays) floats += RoundedFloats(size);
  ASSIGN_OR_RETURN(activations_, device.Allocate(floats * static_cast<int64_t>(sizeof(float))));
  auto* next = reinterpret_cast<float*>(activations_->data());
  for (const auto& [array, size] : arrays) {
    *array = next;
    next += RoundedFloats(size);
  }
  return OkStatus();
}

void Decoder::Forward(const DecoderBatch& batch) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  CHECK(rows >= 1 && rows <= options_.tokens_max, "{} rows, at most {}", rows, options_.tokens_max);
  CHECK(batch.positions.size() == batch.tokens.size(), "{} positions for {} tokens",
        batch.positions.size(), batch.tokens.size());
  ops_.Embed(*embedding_, batch.tokens, spec_.embedding_scale, hidden_);
  for (int32_t layer = 0; layer < spec_.layer_count(); ++layer) {
    Attention(batch, layer);
    Ffn(rows, layer);
  }
  hidden_size_used_ = static_cast<size_t>(rows * spec_.hidden_size);
}

std::span<const float> Decoder::Logits(std::span<const int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  CHECK(count >= 1 && count <= options_.logit_rows_max, "{} rows of logits, at most {}", count,
        options_.logit_rows_max);
  ops_.GatherRows(hidden_, rows, spec_.hidden_size, logit_inputs_);
  Norm(logit_inputs_, output_norm_, count, spec_.hidden_size, logit_inputs_);
  const LinearTarget target{
      .weight = output_.get(), .out = logits_, .out_stride = spec_.vocab_size};
  ops_.Linear(logit_inputs_, count, spec_.hidden_size, {&target, 1});
  Beat();
  if (spec_.logit_softcap > 0.0F) {
    ops_.SoftCap(logits_, spec_.logit_softcap, count * spec_.vocab_size);
  }
  return {logits_, static_cast<size_t>(count * spec_.vocab_size)};
}

void Decoder::Norm(const float* x, const float* weight, int64_t rows, int64_t cols, float* out) {
  ops_.RmsNorm(x, weight, spec_.norm_weight_offset, spec_.norm_eps, rows, cols, out);
}

void Decoder::Attention(const DecoderBatch& batch, int32_t layer_index) {
  const Layer& layer = layers_[layer_index];
  const LayerSpec& spec = spec_.layers[layer_index];
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  const int64_t q_size = int64_t{spec_.q_heads} * spec_.head_size;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_size;
  Norm(hidden_, layer.attention_norm, rows, spec_.hidden_size, normed_);
  const std::array<LinearTarget, 3> targets = {{
      {.weight = layer.q.get(), .bias = layer.q_bias, .out = q_, .out_stride = q_size},
      {.weight = layer.k.get(), .bias = layer.k_bias, .out = k_, .out_stride = kv_size},
      {.weight = layer.v.get(), .bias = layer.v_bias, .out = v_, .out_stride = kv_size},
  }};
  ops_.Linear(normed_, rows, spec_.hidden_size, targets);
  Beat();
  if (spec_.qk_norm) {
    Norm(q_, layer.q_norm, rows * spec_.q_heads, spec_.head_size, q_);
    Norm(k_, layer.k_norm, rows * spec_.kv_heads, spec_.head_size, k_);
  }
  const RopeSpec& rope = spec_.ropes[spec.rope_index];
  ops_.Rope(q_, batch.positions, spec_.q_heads, spec_.head_size, rope);
  ops_.Rope(k_, batch.positions, spec_.kv_heads, spec_.head_size, rope);
  ops_.StoreKv(
      {.pool = batch.pool, .layer = layer_index, .k = k_, .v = v_, .sequences = batch.sequences});
  ops_.Attention({.pool = batch.pool,
                  .layer = layer_index,
                  .q_heads = spec_.q_heads,
                  .q = q_,
                  .out = attended_,
                  .sequences = batch.sequences,
                  .scale = spec_.attention_scale,
                  .softcap = spec_.attention_softcap,
                  .window = spec.window});
  Beat();
  AddProduct(attended_, rows, *layer.attention_output, layer.attention_output_bias,
             layer.post_attention_norm);
}

void Decoder::Ffn(int64_t rows, int32_t layer_index) {
  const Layer& layer = layers_[layer_index];
  const int64_t ffn = spec_.ffn_size;
  Norm(hidden_, layer.ffn_norm, rows, spec_.hidden_size, normed_);
  const std::array<LinearTarget, 2> targets = {{
      {.weight = layer.gate.get(), .bias = layer.gate_bias, .out = gate_, .out_stride = ffn},
      {.weight = layer.up.get(), .bias = layer.up_bias, .out = up_, .out_stride = ffn},
  }};
  ops_.Linear(normed_, rows, spec_.hidden_size, targets);
  Beat();
  ops_.GatedActivation(spec_.activation, gate_, up_, rows, ffn, gate_);
  AddProduct(gate_, rows, *layer.down, layer.down_bias, layer.post_ffn_norm);
}

void Decoder::AddProduct(const float* x, int64_t rows, const WeightMatrix& weight,
                         const float* bias, const float* post_norm) {
  LinearTarget target{.weight = &weight, .bias = bias, .out_stride = spec_.hidden_size};
  if (post_norm == nullptr) {
    target.out = hidden_;
    target.accumulate = true;
    ops_.Linear(x, rows, weight.cols(), {&target, 1});
    Beat();
    return;
  }
  target.out = product_;
  ops_.Linear(x, rows, weight.cols(), {&target, 1});
  Beat();
  Norm(product_, post_norm, rows, spec_.hidden_size, product_);
  ops_.Add(hidden_, product_, rows * spec_.hidden_size);
}

}  // namespace polysil
