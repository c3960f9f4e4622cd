// The parts of a tokenizer.json that do not know the vocabulary: normalizers, pre-tokenizers and
// the decoder, built from their JSON. Pure functions.
#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/status.h"
#include "text/normalizer.h"
#include "text/pipeline_tokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_fields.h"

namespace polysil {

struct JsonNormalizers {
  std::vector<std::unique_ptr<Normalizer>> parts;
  bool byte_level = false;  // the text is spelled in the byte alphabet from here on
};
// `value` may be nullptr: none.
StatusOr<JsonNormalizers> BuildNormalizers(const boost::json::value* value);

struct JsonPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;  // pieces are bytes of a byte-level vocabulary
};
// spelled: the normalizers have put the text in the byte alphabet already.
StatusOr<JsonPreTokenizer> BuildPreTokenizer(const boost::json::value* value, bool spelled);

// The tokens that go around a text.
struct JsonPostProcessor {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};
StatusOr<JsonPostProcessor> BuildPostProcessor(const boost::json::value* value, int32_t vocab_size);

// What a decoder makes of one token in the middle of a text.
class TokenDecoder final {
 public:
  static StatusOr<TokenDecoder> Build(const boost::json::value* value);
  std::string Decode(std::string_view spelling) const;
  LeadingStrip leading_strip() const { return leading_strip_; }

 private:
  struct Step {
    enum class Kind {
      kByteLevel,
      kReplaceText,
      kReplaceRegex,
      kByteFallback,
      kStrip,
      kSpaceBefore
    };
    Kind kind = Kind::kByteLevel;
    std::string pattern;  // kReplaceText; kStrip: the character
    std::string content;
    std::unique_ptr<Normalizer> regex;  // kReplaceRegex
    int64_t left = 0;                   // kStrip: at most so many of them
    int64_t right = 0;
  };

  Status Add(const boost::json::value& value, int depth);
  Status AddReplace(const TokenizerFields& fields);
  Status AddStrip(const TokenizerFields& fields);

  std::vector<Step> steps_;
  LeadingStrip leading_strip_ = LeadingStrip::kNone;
  bool fused_ = false;  // later steps see the whole text
};

}  // namespace polysil
