// ModelSpec: a decoder-only transformer as data. One Decoder runs them all; there is no class per
// model. Made by model/ from GGUF metadata or config.json, checked once, then immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace polysil {

enum class Activation { kSilu, kGeluTanh };
// Which elements rope turns together: (i, i + dims/2), or (2i, 2i + 1) as GGUF's llama stores them.
enum class RopePairing { kHalves, kAdjacent };

// Frequencies of one rope: inverse frequency per pair, with scaling already worked in.
struct RopeSpec {
  RopePairing pairing = RopePairing::kHalves;
  int32_t dims = 0;              // the first `dims` of each head turn; the rest pass through
  std::vector<float> inv_freqs;  // [dims / 2], radians per position
  float magnitude = 1.0F;        // multiplies cos and sin (yarn, longrope)
};

struct LayerSpec {
  int32_t window = 0;      // a token sees itself and the window - 1 before it; 0: all before it
  int32_t rope_index = 0;  // into ModelSpec::ropes
};

struct ModelSpec {
  std::string architecture;  // "llama", "qwen2", ...
  int32_t hidden_size = 0;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_size = 0;
  int32_t ffn_size = 0;
  int32_t vocab_size = 0;          // rows of the output matrix; may exceed the tokenizer's
  int32_t context_tokens_max = 0;  // as trained
  float norm_eps = 1e-5F;
  float norm_weight_offset = 0.0F;  // 1 for checkpoints that store w - 1 (gemma in safetensors)
  Activation activation = Activation::kSilu;
  float attention_scale = 0.0F;    // multiplies q . k
  float attention_softcap = 0.0F;  // 0: none; else cap * tanh(x / cap) on the scores
  float logit_softcap = 0.0F;      // likewise on the logits
  float embedding_scale = 1.0F;
  bool tied_embedding = false;  // the output matrix is the embedding
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool ffn_bias = false;
  bool qk_norm = false;         // RMS norm of each q and k head before rope
  bool post_norms = false;      // RMS norm of each block's output before it is added
  std::vector<RopeSpec> ropes;  // at least one
  std::vector<LayerSpec> layers;

  int32_t layer_count() const { return static_cast<int32_t>(layers.size()); }
};

}  // namespace polysil
