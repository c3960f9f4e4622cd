#include "text/byte_alphabet.h"
#include "text/json_components.h"
#include "text/space_mark.h"
#include "text/utf8.h"

namespace polysil {
namespace {

constexpr int kDepthMax = 8;
constexpr size_t kStepsMax = 64;

bool IsOneCharacter(std::string_view text) {
  return !text.empty() && DecodeUtf8(text).bytes == text.size();
}

}  // namespace

StatusOr<TokenDecoder> TokenDecoder::Build(const boost::json::value* value) {
  TokenDecoder decoder;
  if (value == nullptr) {  // tokens are words with a space between
    decoder.steps_.push_back({.kind = Step::Kind::kSpaceBefore});
    decoder.leading_strip_ = LeadingStrip::kSpace;
    return decoder;
  }
  RETURN_IF_ERROR(decoder.Add(*value, 0));
  return decoder;
}

Status TokenDecoder::Add(const boost::json::value& value, int depth) {
  ASSIGN_OR_RETURN(const TokenizerFields fields, TokenizerFields::Of(value, "decoder"));
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (steps_.size() >= kStepsMax) return InvalidArgument("there are over {} decoders", kStepsMax);
  if (type == "Sequence") {
    if (depth >= kDepthMax) return InvalidArgument("decoders are nested over {} deep", depth);
    ASSIGN_OR_RETURN(const boost::json::array* parts, fields.Array("decoders"));
    for (const auto& part : *parts) RETURN_IF_ERROR(Add(part, depth + 1));
    return OkStatus();
  }
  if (type == "Fuse") {
    fused_ = true;
    return OkStatus();
  }
  if (type == "Strip") return AddStrip(fields);
  if (type == "Replace") return AddReplace(fields);
  if (fused_) return Unimplemented("decoder '{}' after Fuse is not supported", type);
  if (type == "ByteLevel") {
    steps_.push_back({.kind = Step::Kind::kByteLevel});
  } else if (type == "ByteFallback") {
    steps_.push_back({.kind = Step::Kind::kByteFallback});
  } else if (type == "Metaspace") {
    ASSIGN_OR_RETURN(std::string mark, fields.String("replacement"));
    if (mark.empty()) return InvalidArgument("decoder.replacement is empty");
    ASSIGN_OR_RETURN(const bool prefix, fields.Bool("add_prefix_space", true));
    ASSIGN_OR_RETURN(const auto scheme, fields.OptionalString("prepend_scheme"));
    if (scheme ? *scheme != "never" : prefix) leading_strip_ = LeadingStrip::kSpaceMark;
    steps_.push_back(
        {.kind = Step::Kind::kReplaceText, .pattern = std::move(mark), .content = " "});
  } else {
    return Unimplemented("decoder '{}' is not supported", type);
  }
  return OkStatus();
}

Status TokenDecoder::AddReplace(const TokenizerFields& fields) {
  ASSIGN_OR_RETURN(const boost::json::value* value, fields.Required("pattern"));
  ASSIGN_OR_RETURN(const TokenizerFields pattern, TokenizerFields::Of(*value, "decoder.pattern"));
  ASSIGN_OR_RETURN(std::string content, fields.String("content"));
  if (pattern.Find("Regex") != nullptr) {
    if (fused_) return Unimplemented("a decoder's expression after Fuse is not supported");
    ASSIGN_OR_RETURN(const std::string text, pattern.String("Regex"));
    ASSIGN_OR_RETURN(Regex regex, Regex::Compile(text));
    steps_.push_back({.kind = Step::Kind::kReplaceRegex,
                      .regex = ReplaceRegex(std::move(regex), std::move(content))});
    return OkStatus();
  }
  ASSIGN_OR_RETURN(std::string text, pattern.String("String"));
  if (text.empty()) return InvalidArgument("decoder.pattern is empty");
  // In a fused text a longer pattern could lie across two tokens.
  if (fused_ && !IsOneCharacter(text)) {
    return Unimplemented("a decoder's text pattern after Fuse is not supported");
  }
  steps_.push_back({.kind = Step::Kind::kReplaceText,
                    .pattern = std::move(text),
                    .content = std::move(content)});
  return OkStatus();
}

Status TokenDecoder::AddStrip(const TokenizerFields& fields) {
  ASSIGN_OR_RETURN(std::string content, fields.String("content"));
  constexpr int64_t kCountMax = 1 << 20;
  ASSIGN_OR_RETURN(const int64_t left, fields.Int("start", 0, kCountMax));
  ASSIGN_OR_RETURN(const int64_t right, fields.Int("stop", 0, kCountMax));
  if (!IsOneCharacter(content)) return InvalidArgument("decoder.content is not one character");
  if (left == 0 && right == 0) return OkStatus();
  if (fused_) {
    // Only the start of a text is known while it is streamed.
    if (content != " " || left != 1 || right != 0) {
      return Unimplemented("a decoder that strips other than one space in front is not supported");
    }
    leading_strip_ = LeadingStrip::kSpace;
    return OkStatus();
  }
  steps_.push_back(
      {.kind = Step::Kind::kStrip, .pattern = std::move(content), .left = left, .right = right});
  return OkStatus();
}

std::string TokenDecoder::Decode(std::string_view spelling) const {
  std::string text(spelling);
  bool is_byte = false;  // the rest is for text
  for (const Step& step : steps_) {
    if (is_byte) break;
    switch (step.kind) {
      case Step::Kind::kByteLevel:
        if (auto bytes = BytesOfSpelling(text)) text = *std::move(bytes);
        break;
      case Step::Kind::kReplaceText:
        text = ReplaceAll(text, step.pattern, step.content);
        break;
      case Step::Kind::kReplaceRegex:
        text = step.regex->Normalize(std::move(text));
        break;
      case Step::Kind::kByteFallback:
        if (const auto byte = ParseByteToken(text)) {
          text.assign(1, static_cast<char>(*byte));
          is_byte = true;
        }
        break;
      case Step::Kind::kStrip: {
        std::string_view rest = text;
        for (int64_t i = 0; i < step.left && rest.starts_with(step.pattern); ++i) {
          rest.remove_prefix(step.pattern.size());
        }
        for (int64_t i = 0; i < step.right && rest.ends_with(step.pattern); ++i) {
          rest.remove_suffix(step.pattern.size());
        }
        text = std::string(rest);
        break;
      }
      case Step::Kind::kSpaceBefore:
        text.insert(0, 1, ' ');
        break;
    }
  }
  return text;
}

}  // namespace polysil
