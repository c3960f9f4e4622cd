// Tokenizer: bytes to token ids and back. Immutable, thread-safe, shared by every request.
// Bytes that a byte-level vocabulary has no token for are dropped before anything merges, so that
// their neighbours close up: what the reference library of tokenizer.json does and thus what models
// were trained with. (llama.cpp drops them after merging.) Such text does not survive a round trip.
// Made from a GGUF vocabulary (TokenizerSpec) or a Hugging Face tokenizer.json. Time is linear in
// the text. Text from a user never becomes a control token unless the caller asks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"

namespace polysil {

// GGUF's tokenizer.ggml.token_type.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// A vocabulary as GGUF metadata holds it (keys tokenizer.ggml.*).
struct TokenizerSpec {
  std::string model;                // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre;                  // pre-tokenizer name; empty where the file has none
  std::vector<std::string> tokens;  // by id
  std::vector<float> scores;        // "llama": one per token
  std::vector<TokenType> types;     // one per token; empty: all normal
  std::vector<std::string> merges;  // "gpt2": "left right" in rank order
  std::optional<TokenId> bos_id;
  std::optional<TokenId> eos_id;
  std::optional<TokenId> eot_id;
  std::optional<TokenId> unknown_id;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
};

struct EncodeOptions {
  bool parse_control_tokens = false;  // "<|im_end|>" in the text becomes that token
  bool add_bos = true;                // where the model wants one (see Tokenizer::adds_bos)
};

// Half-open range of bytes.
struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  static StatusOr<std::shared_ptr<const Tokenizer>> Create(TokenizerSpec spec);
  // tokenizer_config may be empty; it names BOS and EOS and whether BOS is added.
  static StatusOr<std::shared_ptr<const Tokenizer>> FromJson(std::string_view tokenizer_json,
                                                             std::string_view tokenizer_config);

  // The text need not be valid UTF-8.
  virtual std::vector<TokenId> Encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  // A rendered chat: control tokens are parsed outside of `untrusted` (rising, disjoint) only. Each
  // stretch between two control tokens is encoded as a whole.
  virtual std::vector<TokenId> EncodeRendered(std::string_view text,
                                              std::span<const ByteSpan> untrusted,
                                              bool add_bos) const = 0;
  // The bytes of all ids together, as the tokenizer's decoder gives them (leading-space rules
  // included). Ids outside the vocabulary give nothing.
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_control) const = 0;
  // The bytes that `id` adds in the middle of a text. Control tokens give their text.
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  // Whether the first token of a text loses its leading space when decoded.
  virtual bool strips_leading_space() const = 0;

  virtual int32_t vocab_size() const = 0;
  virtual bool IsControl(TokenId id) const = 0;
  // The id of a token by its exact text, control tokens included.
  virtual std::optional<TokenId> Find(std::string_view token) const = 0;
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
  // Every id that ends a generation by default: eos, eot, and end-of-turn tokens by name. Sorted.
  virtual std::span<const TokenId> end_ids() const = 0;
  virtual bool adds_bos() const = 0;
};

}  // namespace polysil
