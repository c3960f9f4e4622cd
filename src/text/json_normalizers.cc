#include <array>

#include "text/json_components.h"

namespace polysil {
namespace {

constexpr int kDepthMax = 8;
constexpr size_t kPartsMax = 64;

StatusOr<std::string> FromBase64(std::string_view text) {
  std::array<int8_t, 256> digits;
  digits.fill(-1);
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) {
    digits[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const int8_t digit = digits[static_cast<uint8_t>(c)];
    if (digit < 0) return InvalidArgument("the compiled character map is not base64");
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>((bits >> count) & 0xFF));
  }
  return bytes;
}

class Builder {
 public:
  Status Add(const boost::json::value& value, int depth) {
    ASSIGN_OR_RETURN(const TokenizerFields fields, TokenizerFields::Of(value, "normalizer"));
    ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    if (type == "Sequence") return AddSequence(fields, depth);
    if (result_.parts.size() >= kPartsMax) {
      return InvalidArgument("there are over {} normalizers", kPartsMax);
    }
    if (type == "Replace") return AddReplace(fields);
    if (type == "ByteLevel") {
      if (result_.byte_level) return InvalidArgument("there are two ByteLevel normalizers");
      result_.byte_level = true;
      result_.parts.push_back(BytesAsCharacters());
      return OkStatus();
    }
    ASSIGN_OR_RETURN(auto part, Simple(type, fields));
    if (part == nullptr) return Unimplemented("normalizer '{}' is not supported", type);
    result_.parts.push_back(std::move(part));
    return OkStatus();
  }

  JsonNormalizers Take() { return std::move(result_); }

 private:
  Status AddSequence(const TokenizerFields& fields, int depth) {
    if (depth >= kDepthMax) return InvalidArgument("normalizers are nested over {} deep", depth);
    ASSIGN_OR_RETURN(const boost::json::array* parts, fields.Array("normalizers"));
    for (const auto& part : *parts) RETURN_IF_ERROR(Add(part, depth + 1));
    return OkStatus();
  }

  Status AddReplace(const TokenizerFields& fields) {
    ASSIGN_OR_RETURN(const boost::json::value* value, fields.Required("pattern"));
    ASSIGN_OR_RETURN(const TokenizerFields pattern,
                     TokenizerFields::Of(*value, "normalizer.pattern"));
    ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    if (pattern.Find("Regex") != nullptr) {
      ASSIGN_OR_RETURN(const std::string text, pattern.String("Regex"));
      ASSIGN_OR_RETURN(Regex regex, Regex::Compile(text));
      result_.parts.push_back(ReplaceRegex(std::move(regex), std::move(content)));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(std::string text, pattern.String("String"));
    if (text.empty()) return InvalidArgument("normalizer.pattern is empty");
    result_.parts.push_back(ReplaceText(std::move(text), std::move(content)));
    return OkStatus();
  }

  // nullptr: not known.
  StatusOr<std::unique_ptr<Normalizer>> Simple(const std::string& type,
                                               const TokenizerFields& fields) {
    if (type == "NFC") return NormalizeUnicode(UnicodeForm::kNfc);
    if (type == "NFD") return NormalizeUnicode(UnicodeForm::kNfd);
    if (type == "NFKC") return NormalizeUnicode(UnicodeForm::kNfkc);
    if (type == "NFKD") return NormalizeUnicode(UnicodeForm::kNfkd);
    if (type == "Lowercase") return LowerCase();
    if (type == "StripAccents") return StripMarks();
    if (type == "Nmt") return CleanNmt();
    if (type == "Prepend") {
      ASSIGN_OR_RETURN(std::string prefix, fields.String("prepend"));
      return Prepend(std::move(prefix));
    }
    if (type == "Strip") {
      ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left", true));
      ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right", true));
      return StripWhiteSpace(left, right);
    }
    if (type == "Precompiled") {
      ASSIGN_OR_RETURN(const std::string text, fields.String("precompiled_charsmap"));
      ASSIGN_OR_RETURN(const std::string bytes, FromBase64(text));
      return PrecompiledMap(bytes);
    }
    if (type == "BertNormalizer") {
      BertOptions options;
      ASSIGN_OR_RETURN(options.clean_text, fields.Bool("clean_text", true));
      ASSIGN_OR_RETURN(options.chinese_characters, fields.Bool("handle_chinese_chars", true));
      ASSIGN_OR_RETURN(options.lower_case, fields.Bool("lowercase", true));
      ASSIGN_OR_RETURN(options.strip_accents, fields.Bool("strip_accents", options.lower_case));
      return NormalizeBert(options);
    }
    return std::unique_ptr<Normalizer>();
  }

  JsonNormalizers result_;
};

}  // namespace

StatusOr<JsonNormalizers> BuildNormalizers(const boost::json::value* value) {
  Builder builder;
  if (value != nullptr) RETURN_IF_ERROR(builder.Add(*value, 0));
  return builder.Take();
}

}  // namespace polysil
