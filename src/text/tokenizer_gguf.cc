// Tokenizer::Create: from a vocabulary as GGUF metadata holds it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/pipeline_tokenizer.h"
#include "text/space_mark.h"
#include "text/utf8.h"

namespace polysil {
namespace {

constexpr size_t kTokensMax = size_t{1} << 22;
constexpr size_t kMergesMax = size_t{1} << 22;
constexpr size_t kTokenBytesMax = 65536;
// Every cut of a token is looked at when merges are made from scores.
constexpr size_t kScoredTokenBytesMax = 1024;

Status CheckId(const std::optional<TokenId>& id, std::string_view name, size_t tokens) {
  if (!id || (*id >= 0 && static_cast<size_t>(*id) < tokens)) return OkStatus();
  return InvalidArgument("tokenizer.ggml.{} is {}, the vocabulary has {} tokens", name, *id,
                         tokens);
}

Status CheckSizes(const TokenizerSpec& spec) {
  const size_t tokens = spec.tokens.size();
  if (tokens == 0) return InvalidArgument("the tokenizer has no tokens");
  if (tokens > kTokensMax) {
    return InvalidArgument("the tokenizer has {} tokens, at most {} are accepted", tokens,
                           kTokensMax);
  }
  if (spec.merges.size() > kMergesMax) {
    return InvalidArgument("the tokenizer has {} merges, at most {} are accepted",
                           spec.merges.size(), kMergesMax);
  }
  if (!spec.types.empty() && spec.types.size() != tokens) {
    return InvalidArgument("tokenizer.ggml.token_type has {} entries, the vocabulary {} tokens",
                           spec.types.size(), tokens);
  }
  for (size_t i = 0; i < tokens; ++i) {
    if (spec.tokens[i].size() > kTokenBytesMax) {
      return InvalidArgument("token {} has {} bytes, at most {} are accepted", i,
                             spec.tokens[i].size(), kTokenBytesMax);
    }
  }
  RETURN_IF_ERROR(CheckId(spec.bos_id, "bos_token_id", tokens));
  RETURN_IF_ERROR(CheckId(spec.eos_id, "eos_token_id", tokens));
  RETURN_IF_ERROR(CheckId(spec.eot_id, "eot_token_id", tokens));
  return CheckId(spec.unknown_id, "unknown_token_id", tokens);
}

TokenType TypeOf(const TokenizerSpec& spec, size_t id) {
  const TokenType type = spec.types.empty() ? TokenType::kNormal : spec.types[id];
  if (type == TokenType::kUnknown) return TokenType::kControl;
  return IsMarkedEndToken(spec.tokens[id]) ? TokenType::kControl : type;
}

// What does not depend on the model: added tokens, ids, spellings.
Status AddCommonParts(const TokenizerSpec& spec, PipelineParts& parts) {
  parts.tokens.resize(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& text = spec.tokens[i];
    const TokenType type = TypeOf(spec, i);
    const bool control = type == TokenType::kControl;
    parts.spellings.Insert(text, id);
    parts.tokens[i].control = control;
    if ((!control && type != TokenType::kUserDefined) || text.empty()) continue;
    if (text.size() > AddedTokens::kTextBytesMax) {
      return InvalidArgument("added token {} has {} bytes, at most {} are accepted", i, text.size(),
                             AddedTokens::kTextBytesMax);
    }
    parts.added.Add({.text = text, .id = id, .control = control});
  }
  parts.bos_id = spec.bos_id;
  parts.eos_id = spec.eos_id;
  parts.eot_id = spec.eot_id;
  return OkStatus();
}

Status AddPrefixAndSuffix(const TokenizerSpec& spec, bool add_bos_default, PipelineParts& parts) {
  if (spec.add_bos.value_or(add_bos_default && spec.bos_id)) {
    if (!spec.bos_id) return InvalidArgument("add_bos_token is set, but there is no bos_token_id");
    parts.prefix.push_back(*spec.bos_id);
  }
  if (spec.add_eos.value_or(false)) {
    if (!spec.eos_id) return InvalidArgument("add_eos_token is set, but there is no eos_token_id");
    parts.suffix.push_back(*spec.eos_id);
  }
  return OkStatus();
}

StatusOr<std::vector<BpeMerge>> ParseMerges(const TokenizerSpec& spec, const PipelineParts& parts) {
  std::vector<BpeMerge> merges;
  merges.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view text = spec.merges[rank];
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size()) {
      return InvalidArgument("merge {} is not two tokens with a space between", rank);
    }
    const std::string_view left = text.substr(0, space);
    const std::string_view right = text.substr(space + 1);
    const BpeMerge merge{.left = parts.spellings.Find(left),
                         .right = parts.spellings.Find(right),
                         .result = parts.spellings.Find(std::string(left).append(right)),
                         .rank = static_cast<uint32_t>(rank)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      return InvalidArgument("merge {} joins or makes a token that the vocabulary lacks", rank);
    }
    // Text never becomes a control token, not by merging either.
    if (parts.tokens[static_cast<size_t>(merge.result)].control) continue;
    merges.push_back(merge);
  }
  return merges;
}

// "gpt2": byte-level, or (gemma4) merges over characters with spaces marked.
Status BuildMergeModel(const TokenizerSpec& spec, const NamedPreTokenizer& named,
                       PipelineParts& parts) {
  BpeVocabulary vocabulary;
  vocabulary.byte_ids.fill(TokenIndex::kNone);
  vocabulary.symbols_begin = static_cast<int32_t>(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = TypeOf(spec, i);
    VocabularyToken& token = parts.tokens[i];
    token.bytes = spec.tokens[i];
    if (type == TokenType::kByte) {
      if (const auto byte = ParseByteToken(spec.tokens[i])) {
        token.bytes = std::string(1, static_cast<char>(*byte));
        if (!named.byte_level) vocabulary.byte_ids[*byte] = id;
      }
      continue;
    }
    if (type == TokenType::kControl || type == TokenType::kUserDefined) continue;
    if (named.byte_level) {
      auto bytes = BytesOfSpelling(spec.tokens[i]);
      if (!bytes) continue;  // no text leads to it
      token.bytes = *std::move(bytes);
    } else {
      token.bytes = SpaceMarksToSpaces(spec.tokens[i]);
    }
    if (type != TokenType::kNormal) continue;
    const std::string_view key = named.byte_level ? token.bytes : spec.tokens[i];
    if (!key.empty() && vocabulary.tokens.Insert(key, id) && named.byte_level && key.size() == 1) {
      vocabulary.byte_ids[static_cast<uint8_t>(key[0])] = id;
    }
  }
  ASSIGN_OR_RETURN(vocabulary.merges, ParseMerges(spec, parts));
  BpeOptions options{.byte_level = named.byte_level, .ignore_merges = named.ignore_merges};
  if (!named.byte_level) options.unknown_id = spec.unknown_id;
  parts.model = BpeModel::Build(std::move(vocabulary), std::move(options));
  return OkStatus();
}

// Ranks for SentencePiece's rule (the best score first): every way to cut a token in two symbols is
// a merge, of the rank of its score. Symbols are tokens and single characters.
class ScoredMerges {
 public:
  ScoredMerges(const TokenizerSpec& spec, BpeVocabulary& vocabulary)
      : spec_(spec), vocabulary_(vocabulary) {}

  Status Build() {
    std::vector<float> scores;
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      scores.push_back(ScoreOf(vocabulary_.tokens.id(i)));
      if (std::isnan(scores.back())) {
        return InvalidArgument("the score of token {} is not a number", vocabulary_.tokens.id(i));
      }
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const TokenId id = vocabulary_.tokens.id(i);
      const auto rank =
          std::lower_bound(scores.begin(), scores.end(), ScoreOf(id), std::greater<>()) -
          scores.begin();
      RETURN_IF_ERROR(AddCuts(vocabulary_.tokens.key(i), id, static_cast<uint32_t>(rank)));
    }
    return OkStatus();
  }

 private:
  float ScoreOf(TokenId id) const { return spec_.scores[static_cast<size_t>(id)]; }

  Status AddCuts(std::string_view text, TokenId id, uint32_t rank) {
    if (text.size() > kScoredTokenBytesMax) {
      return InvalidArgument("token {} has {} bytes, at most {} are accepted", id, text.size(),
                             kScoredTokenBytesMax);
    }
    for (size_t cut = DecodeUtf8(text).bytes; cut < text.size();
         cut += DecodeUtf8(text.substr(cut)).bytes) {
      const int32_t left = SymbolOf(text.substr(0, cut));
      const int32_t right = SymbolOf(text.substr(cut));
      if (left < 0 || right < 0) continue;
      vocabulary_.merges.push_back({.left = left, .right = right, .result = id, .rank = rank});
    }
    return OkStatus();
  }

  int32_t SymbolOf(std::string_view text) {
    const TokenId id = vocabulary_.tokens.Find(text);
    if (id != TokenIndex::kNone) return id;
    if (DecodeUtf8(text).bytes != text.size()) return -1;
    const auto next = static_cast<int32_t>(vocabulary_.symbols.size());
    const auto [entry, is_new] = symbols_.try_emplace(std::string(text), next);
    if (is_new) vocabulary_.symbols.emplace_back(text);
    return vocabulary_.symbols_begin + entry->second;
  }

  const TokenizerSpec& spec_;
  BpeVocabulary& vocabulary_;
  std::unordered_map<std::string, int32_t> symbols_;
};

Status BuildScoreModel(const TokenizerSpec& spec, PipelineParts& parts) {
  if (spec.scores.size() != spec.tokens.size()) {
    return InvalidArgument("tokenizer.ggml.scores has {} entries, the vocabulary {} tokens",
                           spec.scores.size(), spec.tokens.size());
  }
  BpeVocabulary vocabulary;
  vocabulary.byte_ids.fill(TokenIndex::kNone);
  vocabulary.symbols_begin = static_cast<int32_t>(spec.tokens.size());
  std::optional<TokenId> unknown_id = spec.unknown_id;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& text = spec.tokens[i];
    VocabularyToken& token = parts.tokens[i];
    token.bytes = text;
    const TokenType type = TypeOf(spec, i);
    if (type == TokenType::kByte) {
      const auto byte = ParseByteToken(text);
      if (!byte) return InvalidArgument("byte token {} is not of the form <0xNN>", i);
      token.bytes = std::string(1, static_cast<char>(*byte));
      vocabulary.byte_ids[*byte] = id;
      continue;
    }
    if (type == TokenType::kControl) continue;
    token.bytes = SpaceMarksToSpaces(text);
    token.begins_with_mark = text.starts_with(kSpaceMark);
    const bool from_text = type == TokenType::kNormal || type == TokenType::kUserDefined;
    if (from_text && !text.empty()) vocabulary.tokens.Insert(text, id);
  }
  if (!unknown_id && !spec.types.empty()) {
    const auto found = std::find(spec.types.begin(), spec.types.end(), TokenType::kUnknown);
    if (found != spec.types.end()) {
      unknown_id = static_cast<TokenId>(found - spec.types.begin());
    }
  }
  RETURN_IF_ERROR(ScoredMerges(spec, vocabulary).Build());
  parts.model = BpeModel::Build(std::move(vocabulary), {.unknown_id = unknown_id});
  return OkStatus();
}

void AddSpaceMarks(bool in_front, PipelineParts& parts) {
  if (in_front) {
    parts.normalizers.push_back(Prepend(std::string(kSpaceMark)));
    parts.leading_strip = LeadingStrip::kSpace;
  }
  parts.normalizers.push_back(ReplaceText(" ", std::string(kSpaceMark)));
}

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  RETURN_IF_ERROR(CheckSizes(spec));
  PipelineParts parts;
  RETURN_IF_ERROR(AddCommonParts(spec, parts));
  if (spec.model == "llama") {
    AddSpaceMarks(spec.add_space_prefix.value_or(true), parts);
    RETURN_IF_ERROR(BuildScoreModel(spec, parts));
    RETURN_IF_ERROR(AddPrefixAndSuffix(spec, true, parts));
  } else if (spec.model == "gpt2" || spec.model == "gemma4") {
    const bool gemma = spec.model == "gemma4";
    ASSIGN_OR_RETURN(NamedPreTokenizer named,
                     MakeNamedPreTokenizer(gemma && spec.pre.empty() ? "gemma4" : spec.pre));
    if (!named.byte_level) AddSpaceMarks(spec.add_space_prefix.value_or(false), parts);
    RETURN_IF_ERROR(BuildMergeModel(spec, named, parts));
    RETURN_IF_ERROR(AddPrefixAndSuffix(spec, named.add_bos || gemma, parts));
    parts.pre_tokenizer = std::move(named.pre_tokenizer);
  } else {
    return Unimplemented("tokenizer.ggml.model is '{}'; 'gpt2', 'llama' and 'gemma4' are supported",
                         spec.model);
  }
  return std::shared_ptr<const Tokenizer>(std::make_shared<PipelineTokenizer>(std::move(parts)));
}

}  // namespace polysil
