// ModelWork: the bytes that a model's steps must read and the operations that they must do, from
// its shapes and weight types alone, whatever the device. What a speed is held against.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cpu/cpu_bounds.h"
#include "model/checkpoint.h"
#include "polysil/core/kv_layout.h"

namespace polysil {

// Of one step or of one whole prompt.
struct Work {
  double bytes = 0.0;             // read from memory at least once
  double int8_operations = 0.0;   // products with quantised weights, attention to 8-bit KV
  double float_operations = 0.0;  // products with floating-point weights, other attention

  double operations() const { return int8_operations + float_operations; }
};

// The least time that the machine needs for it, and what takes it.
struct WorkBound {
  double seconds = 0.0;
  bool by_memory = true;  // else by arithmetic
};
WorkBound BoundOf(const Work& work, const CpuBounds& bounds);

class ModelWork final {
 public:
  // float_activations: every product with weights is one of floats. Attention's are of integers
  // where `kv` keeps integers.
  ModelWork(const ModelSpec& spec, const ModelWeights& weights, bool float_activations,
            const KvLayout& kv);

  // Weights that every step reads, in bytes as the file has them; the output matrix is one of them.
  double step_bytes() const { return layers_.bytes + head_.bytes; }
  // Keys and values of one token, in bytes.
  double kv_token_bytes() const;

  // A prompt of so many tokens behind `depth` others whose KV is there, and the choice of one
  // token. Its weights are counted once.
  Work Prefill(double tokens, double depth) const;
  // One token more for each of `streams`, each of which sees `context` tokens, its own included.
  Work Decode(double streams, double context) const;

 private:
  // Of some matrices, for one row.
  struct Products {
    double bytes = 0.0;
    double int8_operations = 0.0;
    double float_operations = 0.0;
  };
  void Add(const HostTensor& tensor, Products& to) const;
  // Sums over the layers of what a token sees of `context` tokens.
  double Seen(double context) const;
  double SeenByPrompt(double tokens, double depth) const;
  void AddAttention(double tokens_seen, Work& to) const;

  const bool float_activations_;
  const bool integer_attention_;
  double kv_layer_token_bytes_ = 0.0;
  double attention_operations_ = 0.0;  // for each token that one layer of a token sees
  std::vector<double> windows_;        // of each layer; 0: none
  Products layers_;
  Products head_;
};

}  // namespace polysil
