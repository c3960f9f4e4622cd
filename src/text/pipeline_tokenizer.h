// PipelineTokenizer: the one implementation of Tokenizer: added tokens, normalizer, pre-tokenizer,
// model and decoder, put together by tokenizer_gguf.cc and tokenizer_json.cc.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/subword_model.h"
#include "text/token_index.h"
#include "text/tokenizer.h"

namespace polysil {

// What a token's bytes lose when nothing was decoded before it.
enum class LeadingStrip {
  kNone,
  kSpace,      // one space, whichever token gives it
  kSpaceMark,  // one space, if the token's spelling began with the space mark
};

struct VocabularyToken {
  std::string bytes;  // that it adds in the middle of a text
  bool control = false;
  bool begins_with_mark = false;  // for LeadingStrip::kSpaceMark
};

struct PipelineParts {
  std::vector<VocabularyToken> tokens;  // by id
  TokenIndex spellings;                 // of every token, as the file writes it
  AddedTokens added;                    // matched in the text as it is
  AddedTokens added_normalized;         // matched after the normalizer
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const SubwordModel> model;
  std::vector<TokenId> prefix;  // of a text: BOS
  std::vector<TokenId> suffix;
  LeadingStrip leading_strip = LeadingStrip::kNone;
  std::optional<TokenId> bos_id;
  std::optional<TokenId> eos_id;
  std::optional<TokenId> eot_id;
};

// Whether `text` is the name of a token that ends a turn or a text in some family, in the form that
// text does not have by chance ("<|im_end|>"). Some files do not mark these as control tokens; as
// text they would close a turn from inside a message.
bool IsMarkedEndToken(std::string_view text);

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> EncodeRendered(std::string_view text, std::span<const ByteSpan> untrusted,
                                      bool add_bos) const override;
  std::string Decode(std::span<const TokenId> ids, bool skip_control) const override;
  std::string_view TokenBytes(TokenId id) const override;
  bool strips_leading_space() const override;
  int32_t vocab_size() const override;
  bool IsControl(TokenId id) const override;
  std::optional<TokenId> Find(std::string_view token) const override;
  std::optional<TokenId> bos_id() const override { return parts_.bos_id; }
  std::optional<TokenId> eos_id() const override { return parts_.eos_id; }
  std::span<const TokenId> end_ids() const override { return end_ids_; }
  bool adds_bos() const override;

 private:
  bool Has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < parts_.tokens.size(); }
  void FindEndIds();
  void EncodeSegments(std::string_view text, const ControlRule& rule,
                      std::vector<TokenId>& ids) const;
  void EncodeText(std::string_view text, bool at_start, const ControlRule& rule,
                  std::vector<TokenId>& ids) const;

  const PipelineParts parts_;
  std::vector<TokenId> end_ids_;
};

}  // namespace polysil
