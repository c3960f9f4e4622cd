#include "text/json_components.h"

namespace polysil {
namespace {

constexpr int kDepthMax = 8;
constexpr size_t kStepsMax = 64;

constexpr std::string_view kPunctuation = R"([\p{P}!-/:-@\[-`{-~])";
constexpr std::string_view kNumber = R"(\p{N})";
constexpr std::string_view kWhiteSpace = R"(\s)";
// The reference library's word characters are those of another engine here: with the joiners.
constexpr std::string_view kWordsAndOthers = R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";

StatusOr<SplitBehavior> ParseBehavior(const TokenizerFields& fields, std::string_view if_absent) {
  ASSIGN_OR_RETURN(const std::optional<std::string> given, fields.OptionalString("behavior"));
  const std::string behavior = given.value_or(std::string(if_absent));
  if (behavior == "Removed") return SplitBehavior::kRemoved;
  if (behavior == "Isolated") return SplitBehavior::kIsolated;
  if (behavior == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (behavior == "Contiguous") return SplitBehavior::kContiguous;
  return InvalidArgument("pre_tokenizer.behavior is '{}'", behavior);
}

class Builder {
 public:
  explicit Builder(bool spelled) : spelled_(spelled), byte_level_(spelled) {}

  Status Add(const boost::json::value& value, int depth) {
    ASSIGN_OR_RETURN(const TokenizerFields fields, TokenizerFields::Of(value, "pre_tokenizer"));
    ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    if (steps_.size() >= kStepsMax) {
      return InvalidArgument("there are over {} pre-tokenizers", kStepsMax);
    }
    if (type == "Sequence") return AddSequence(fields, depth);
    if (type == "ByteLevel") return AddByteLevel(fields);
    SpellIfPending();
    if (type == "Split") return AddSplit(fields);
    if (type == "Metaspace") return AddMetaspace(fields);
    if (type == "Whitespace") return AddRegex(kWordsAndOthers, SplitBehavior::kRemoved, true);
    if (type == "WhitespaceSplit") return AddRegex(kWhiteSpace, SplitBehavior::kRemoved);
    if (type == "BertPreTokenizer") {
      RETURN_IF_ERROR(AddRegex(kWhiteSpace, SplitBehavior::kRemoved));
      return AddRegex(kPunctuation, SplitBehavior::kIsolated);
    }
    if (type == "Punctuation") {
      ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(fields, "Isolated"));
      return AddRegex(kPunctuation, behavior);
    }
    if (type == "Digits") {
      ASSIGN_OR_RETURN(const bool each, fields.Bool("individual_digits", false));
      return AddRegex(kNumber, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
    }
    if (type == "CharDelimiterSplit") {
      ASSIGN_OR_RETURN(std::string delimiter, fields.String("delimiter"));
      return AddText(std::move(delimiter), SplitBehavior::kRemoved, false);
    }
    return Unimplemented("pre-tokenizer '{}' is not supported", type);
  }

  JsonPreTokenizer Take() {
    // Bytes that a step needed in their spelled form go back for the model.
    if (spelled_) steps_.push_back(CharactersToBytes());
    return {.pre_tokenizer = PreTokenizer(std::move(steps_)), .byte_level = byte_level_};
  }

 private:
  Status AddSequence(const TokenizerFields& fields, int depth) {
    if (depth >= kDepthMax) return InvalidArgument("pre-tokenizers are nested over {} deep", depth);
    ASSIGN_OR_RETURN(const boost::json::array* parts, fields.Array("pretokenizers"));
    for (const auto& part : *parts) RETURN_IF_ERROR(Add(part, depth + 1));
    return OkStatus();
  }

  // The byte alphabet only shows to steps that come after it.
  Status AddByteLevel(const TokenizerFields& fields) {
    if (byte_level_) return InvalidArgument("there is more than one ByteLevel step");
    byte_level_ = true;
    pending_ = true;
    ASSIGN_OR_RETURN(const bool prefix_space, fields.Bool("add_prefix_space", true));
    ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
    if (prefix_space) steps_.push_back(PrefixSpace());
    if (!use_regex) return OkStatus();
    ASSIGN_OR_RETURN(Regex regex, Gpt2Regex());
    steps_.push_back(SplitByRegex(std::move(regex), SplitBehavior::kIsolated, false));
    return OkStatus();
  }

  void SpellIfPending() {
    if (!pending_) return;
    pending_ = false;
    spelled_ = true;
    steps_.push_back(BytesToCharacters());
  }

  Status AddSplit(const TokenizerFields& fields) {
    ASSIGN_OR_RETURN(const boost::json::value* value, fields.Required("pattern"));
    ASSIGN_OR_RETURN(const TokenizerFields pattern,
                     TokenizerFields::Of(*value, "pre_tokenizer.pattern"));
    ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(fields, ""));
    ASSIGN_OR_RETURN(const bool invert, fields.Bool("invert", false));
    if (pattern.Find("Regex") != nullptr) {
      ASSIGN_OR_RETURN(const std::string regex, pattern.String("Regex"));
      return AddRegex(regex, behavior, invert);
    }
    ASSIGN_OR_RETURN(std::string text, pattern.String("String"));
    return AddText(std::move(text), behavior, invert);
  }

  Status AddRegex(std::string_view pattern, SplitBehavior behavior, bool invert = false) {
    ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
    steps_.push_back(SplitByRegex(std::move(regex), behavior, invert));
    return OkStatus();
  }

  Status AddText(std::string text, SplitBehavior behavior, bool invert) {
    if (text.empty()) return InvalidArgument("pre_tokenizer.pattern is empty");
    steps_.push_back(SplitByText(std::move(text), behavior, invert));
    return OkStatus();
  }

  Status AddMetaspace(const TokenizerFields& fields) {
    ASSIGN_OR_RETURN(std::string mark, fields.String("replacement"));
    if (mark.empty()) return InvalidArgument("pre_tokenizer.replacement is empty");
    ASSIGN_OR_RETURN(const bool split, fields.Bool("split", true));
    // Older files have a flag where newer ones have a scheme.
    ASSIGN_OR_RETURN(const bool prefix, fields.Bool("add_prefix_space", true));
    ASSIGN_OR_RETURN(const std::optional<std::string> scheme,
                     fields.OptionalString("prepend_scheme"));
    MarkInFront in_front = prefix ? MarkInFront::kAlways : MarkInFront::kNever;
    if (scheme == "always") {
      in_front = MarkInFront::kAlways;
    } else if (scheme == "first") {
      in_front = MarkInFront::kFirst;
    } else if (scheme == "never") {
      in_front = MarkInFront::kNever;
    } else if (scheme) {
      return InvalidArgument("pre_tokenizer.prepend_scheme is '{}'", *scheme);
    }
    steps_.push_back(Metaspace(std::move(mark), in_front, split));
    return OkStatus();
  }

  std::vector<std::unique_ptr<SplitStep>> steps_;
  bool spelled_;     // pieces are spelled in the byte alphabet
  bool byte_level_;  // a ByteLevel step has been seen
  bool pending_ = false;
};

}  // namespace

StatusOr<JsonPreTokenizer> BuildPreTokenizer(const boost::json::value* value, bool spelled) {
  Builder builder(spelled);
  if (value != nullptr) RETURN_IF_ERROR(builder.Add(*value, 0));
  return builder.Take();
}

}  // namespace polysil
