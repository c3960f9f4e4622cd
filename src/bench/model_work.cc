#include "bench/model_work.h"

#include <algorithm>

namespace polysil {
namespace {

double SecondsOf(double operations, const RateSamples& rate) {
  return rate.best() > 0.0 ? operations / rate.best() : 0.0;
}

}  // namespace

WorkBound BoundOf(const Work& work, const CpuBounds& bounds) {
  const double memory = work.bytes / bounds.read_all.best();
  const double arithmetic = SecondsOf(work.int8_operations, bounds.int8_operations) +
                            SecondsOf(work.float_operations, bounds.float_operations);
  return {.seconds = std::max(memory, arithmetic), .by_memory = memory >= arithmetic};
}

ModelWork::ModelWork(const ModelSpec& spec, const ModelWeights& weights, bool float_activations,
                     const KvLayout& kv)
    : float_activations_(float_activations), integer_attention_(kv.dtype == DType::kI8) {
  kv_layer_token_bytes_ = 2.0 * spec.kv_heads * static_cast<double>(kv.token_bytes());
  attention_operations_ = 4.0 * spec.q_heads * spec.head_size;
  for (const LayerSpec& layer : spec.layers) windows_.push_back(layer.window);
  for (const LayerWeights& layer : weights.layers) {
    for (const HostTensor* tensor : {&layer.q, &layer.k, &layer.v, &layer.attention_output,
                                     &layer.gate, &layer.up, &layer.down}) {
      Add(*tensor, layers_);
    }
  }
  Add(weights.output, head_);
}

void ModelWork::Add(const HostTensor& tensor, Products& to) const {
  const DTypeInfo& info = Info(tensor.dtype);
  const double values = static_cast<double>(tensor.rows) * static_cast<double>(tensor.cols);
  to.bytes += values / info.values_per_block * info.bytes_per_block;
  const bool floats = float_activations_ || info.values_per_block == 1;
  (floats ? to.float_operations : to.int8_operations) += 2.0 * values;
}

double ModelWork::kv_token_bytes() const {
  return kv_layer_token_bytes_ * static_cast<double>(windows_.size());
}

double ModelWork::Seen(double context) const {
  double seen = 0.0;
  for (const double window : windows_) seen += window > 0.0 ? std::min(window, context) : context;
  return seen;
}

double ModelWork::SeenByPrompt(double tokens, double depth) const {
  // A token at position p sees min(window, p + 1).
  double seen = 0.0;
  for (const double window : windows_) {
    const double growing =
        window > 0.0 ? std::clamp(window - depth, 0.0, tokens) : tokens;  // tokens that see all
    seen += growing * (depth + 0.5 * (growing + 1.0)) + (tokens - growing) * window;
  }
  return seen;
}

void ModelWork::AddAttention(double tokens_seen, Work& to) const {
  (integer_attention_ ? to.int8_operations : to.float_operations) +=
      tokens_seen * attention_operations_;
}

Work ModelWork::Prefill(double tokens, double depth) const {
  Work work = {.bytes = step_bytes() + Seen(depth + tokens) * kv_layer_token_bytes_,
               .int8_operations = tokens * layers_.int8_operations + head_.int8_operations,
               .float_operations = tokens * layers_.float_operations + head_.float_operations};
  AddAttention(SeenByPrompt(tokens, depth), work);
  return work;
}

Work ModelWork::Decode(double streams, double context) const {
  Work work = {.bytes = step_bytes() + streams * Seen(context) * kv_layer_token_bytes_,
               .int8_operations = streams * (layers_.int8_operations + head_.int8_operations),
               .float_operations = streams * (layers_.float_operations + head_.float_operations)};
  AddAttention(streams * Seen(context), work);
  return work;
}

}  // namespace polysil
