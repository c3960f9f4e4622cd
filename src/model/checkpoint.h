// Checkpoint: a model on disk, opened: what it computes (ModelSpec), its weights by role, and what
// the text layer needs to build a tokenizer and a chat template. The same for a GGUF file and for a
// folder of config.json and *.safetensors. Not a parser (gguf.h, safetensors.h) and not a device's
// copy of the weights (decoder.h). Immutable; keeps the files mapped as long as it lives;
// thread-safe to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "polysil/base/status.h"
#include "polysil/core/model_spec.h"
#include "polysil/device/backend.h"

namespace polysil {

class MappedFile;

// Weights of one layer. A vector that the model does not have is empty. Norm weights are as stored:
// ModelSpec::norm_weight_offset is still to be added.
struct LayerWeights {
  HostTensor q;                 // [q_heads * head_size, hidden_size]
  HostTensor k;                 // [kv_heads * head_size, hidden_size]
  HostTensor v;                 // [kv_heads * head_size, hidden_size]
  HostTensor attention_output;  // [hidden_size, q_heads * head_size]
  HostTensor gate;              // [ffn_size, hidden_size]
  HostTensor up;                // [ffn_size, hidden_size]
  HostTensor down;              // [hidden_size, ffn_size]
  std::vector<float> q_bias;
  std::vector<float> k_bias;
  std::vector<float> v_bias;
  std::vector<float> attention_output_bias;
  std::vector<float> gate_bias;
  std::vector<float> up_bias;
  std::vector<float> down_bias;
  std::vector<float> attention_norm;       // [hidden_size], before attention
  std::vector<float> q_norm;               // [head_size]
  std::vector<float> k_norm;               // [head_size]
  std::vector<float> post_attention_norm;  // [hidden_size], on attention's output
  std::vector<float> ffn_norm;             // [hidden_size], before the feed-forward
  std::vector<float> post_ffn_norm;        // [hidden_size], on the feed-forward's output
};

// Every shape agrees with the ModelSpec beside it. Data is aligned to its element: 4 bytes for F32,
// 2 for everything else.
struct ModelWeights {
  HostTensor embedding;  // [vocab_size, hidden_size]
  HostTensor output;     // [vocab_size, hidden_size]; the embedding where tied
  std::vector<float> output_norm;
  std::vector<LayerWeights> layers;
};

// A tensor as the file lists it; for people.
struct TensorListing {
  std::string name;
  std::string type;            // "Q4_1", "BF16"
  std::vector<int64_t> shape;  // rows first
  int64_t bytes = 0;
};

// GGUF's tokenizer.ggml.*, copied and checked: scores and types are empty or one per token, ids are
// below the number of tokens.
struct GgufVocabulary {
  std::string model;  // "gpt2", "llama"
  std::string pre;    // empty where the file has none
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> eot_id;
  std::optional<int32_t> unknown_id;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
};

// Raw texts of a Hugging Face folder; empty where the file is not there.
struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string generation_config_json;
  std::string config_json;
};

// Exactly one is set.
struct TokenizerSource {
  std::optional<GgufVocabulary> gguf;
  std::optional<TokenizerFiles> files;
  // "gguf gpt2, pre-tokenizer smollm, 49152 tokens"; for people.
  std::string description;
};

struct ChatTemplateSource {
  std::string name;  // "default", "tool_use"
  std::string source;
};

// What a checkpoint says of itself, whether or not we can run it.
struct CheckpointSummary {
  std::string format;                                         // "GGUF v3", "safetensors"
  std::string architecture;                                   // as the file spells it
  std::string model_name;                                     // may be empty
  std::vector<std::pair<std::string, std::string>> metadata;  // key, value shortened for reading
  std::vector<TensorListing> tensors;
  std::string tokenizer;                           // TokenizerSource::description, or why it is bad
  std::vector<ChatTemplateSource> chat_templates;  // the default first; may be empty
  int64_t bytes_total = 0;                         // of the weight files
  std::string digest;                              // as Checkpoint::Digest
  Status runnable;                                 // what OpenCheckpoint would say
};

struct CheckpointOptions {
  // The longest context that will be served; 0: as trained. Chooses between the short and the long
  // frequencies of a longrope model, once and for every sequence.
  int32_t context_tokens = 0;
};

class Checkpoint final {
 public:
  // Filled by the readers of one format.
  struct Contents {
    std::string format;
    std::string model_name;
    ModelSpec spec;
    ModelWeights weights;
    std::vector<TensorListing> tensors;
    TokenizerSource tokenizer;
    std::vector<ChatTemplateSource> chat_templates;
    std::vector<std::shared_ptr<const MappedFile>> files;  // digested in this order
    std::vector<std::vector<std::byte>> copies;            // data that lay unaligned in a file
  };

  explicit Checkpoint(Contents contents);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::string& format() const { return contents_.format; }
  // general.name, or the folder's name; may be empty.
  const std::string& model_name() const { return contents_.model_name; }
  const ModelSpec& spec() const { return contents_.spec; }
  const ModelWeights& weights() const { return contents_.weights; }
  std::span<const TensorListing> tensors() const { return contents_.tensors; }
  const TokenizerSource& tokenizer() const { return contents_.tokenizer; }
  // The default first. Empty where the model ships none.
  std::span<const ChatTemplateSource> chat_templates() const { return contents_.chat_templates; }
  // "Q4_1+Q8_0": the types of the matrices, sorted; part of the numeric class.
  std::string WeightTypes() const;
  // SHA-256 in hex: of the file's bytes for one file; for several, of their names and digests.
  // Reads every byte, so it takes a while (about 0.1 s for 100 MB).
  std::string Digest() const;
  // To be called when a device has its copy of the weights: what was read of the files leaves the
  // process' memory.
  void DropPages() const;

 private:
  Contents contents_;
};

// A .gguf file, or a folder with config.json, *.safetensors and tokenizer.json (or the path of that
// config.json). INVALID_ARGUMENT names the key, tensor or byte that is wrong; UNIMPLEMENTED the
// architecture or feature that we cannot run; NOT_FOUND the missing file.
StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path,
                                                     const CheckpointOptions& options = {});

// As Checkpoint::Digest.
std::string DigestOf(std::span<const std::shared_ptr<const MappedFile>> files);

// For `polysil inspect`: also answers for well-formed files whose architecture we cannot run.
StatusOr<CheckpointSummary> InspectCheckpoint(const std::string& path);

}  // namespace polysil
