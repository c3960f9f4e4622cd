// From a list of named tensors to ModelWeights: finds every role of the spec under the name one
// format gives it, checks type and shape, splits fused matrices, widens vectors to float, and
// refuses tensors that no role takes (a model with parts we would not compute must not run). Knows
// no file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "polysil/base/status.h"
#include "polysil/core/dtype.h"
#include "polysil/core/model_spec.h"

namespace polysil {

struct FileTensor {
  std::string_view name;
  std::string_view type_name;
  std::optional<DType> dtype;       // none: not one we compute with
  std::vector<int64_t> shape;       // rows first
  std::span<const std::byte> data;  // all of it: shape and dtype have been checked against its size
};

TensorListing ToListing(const FileTensor& tensor);

// How a format spells the roles; ".weight" and ".bias" are appended. Per-layer names follow
// layer_prefix and the layer's number. An empty fused name means that the parts lie apart.
struct TensorNames {
  std::string_view embedding;
  std::string_view output;
  std::string_view output_norm;
  std::string_view layer_prefix;
  std::string_view q;
  std::string_view k;
  std::string_view v;
  std::string_view qkv;  // fused: rows of q, then k, then v
  std::string_view attention_output;
  std::string_view gate;
  std::string_view up;
  std::string_view gate_up;  // fused: rows of gate, then up
  std::string_view down;
  std::string_view attention_norm;
  std::string_view q_norm;
  std::string_view k_norm;
  std::string_view post_attention_norm;
  std::string_view ffn_norm;
  std::string_view post_ffn_norm;
};

struct BuiltWeights {
  ModelWeights weights;
  std::vector<std::vector<std::byte>> copies;  // what lay unaligned; the weights point into them
};

// `ignorable` says which tensors beyond the roles may stay unused. The result borrows tensors'
// data.
StatusOr<BuiltWeights> BuildWeights(const ModelSpec& spec, const TensorNames& names,
                                    std::span<const FileTensor> tensors,
                                    const std::function<bool(std::string_view)>& ignorable);

// A vector of `size` floats stored as F32, F16 or BF16.
StatusOr<std::vector<float>> ToFloats(const FileTensor& tensor, int64_t size);

// Sizes within what we can count, heads that divide, finite numbers, ropes that exist.
Status CheckSpec(const ModelSpec& spec);

}  // namespace polysil
