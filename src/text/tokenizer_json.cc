// Tokenizer::FromJson: from a Hugging Face tokenizer.json and tokenizer_config.json.
// Over 500 lines: every field of the format in one place, in the order of the pipeline.
#include <algorithm>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse.hpp>
#include <cmath>
#include <map>

#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/json_components.h"
#include "text/pipeline_tokenizer.h"
#include "text/space_mark.h"
#include "text/tokenizer_fields.h"
#include "text/unigram.h"

namespace polysil {
namespace {

using boost::json::value;

constexpr size_t kFileBytesMax = size_t{256} << 20;
constexpr TokenId kIdMax = (1 << 22) - 1;
constexpr size_t kTokenBytesMax = 65536;
constexpr size_t kHolesMax = 65536;
constexpr TokenId kNone = TokenIndex::kNone;

struct AddedEntry {
  AddedToken token;
  bool normalized = false;
};

class Loader {
 public:
  Status Load(const value& root, const value& config) {
    ASSIGN_OR_RETURN(const TokenizerFields fields, TokenizerFields::Of(root, "tokenizer.json"));
    ASSIGN_OR_RETURN(const value* model, fields.Required("model"));
    ASSIGN_OR_RETURN(const TokenizerFields model_fields, TokenizerFields::Of(*model, "model"));
    ASSIGN_OR_RETURN(const std::string type, ModelType(model_fields));
    RETURN_IF_ERROR(type == "BPE" ? ReadBpeVocabulary(model_fields)
                                  : ReadUnigramVocabulary(model_fields));
    in_model_ = known_;
    RETURN_IF_ERROR(ReadAddedTokens(fields));
    RETURN_IF_ERROR(AddPipeline(fields));
    RETURN_IF_ERROR(type == "BPE" ? BuildBpe(model_fields) : BuildUnigram(model_fields));
    RETURN_IF_ERROR(DecodeTokens(fields));
    const auto vocab_size = static_cast<int32_t>(spelled_.size());
    ASSIGN_OR_RETURN(JsonPostProcessor post,
                     BuildPostProcessor(fields.Find("post_processor"), vocab_size));
    parts_.prefix = std::move(post.prefix);
    parts_.suffix = std::move(post.suffix);
    return ApplyConfig(config);
  }
  PipelineParts Take() { return std::move(parts_); }

 private:
  // Vocabulary.
  static StatusOr<std::string> ModelType(const TokenizerFields& model);
  Status ReadBpeVocabulary(const TokenizerFields& model);
  Status ReadUnigramVocabulary(const TokenizerFields& model);
  Status AddSpelling(std::string_view spelling, int64_t id);
  Status ReadAddedTokens(const TokenizerFields& fields);
  Status ReadAddedToken(const value& entry);
  // Everything around the model.
  Status AddPipeline(const TokenizerFields& fields);
  Status DecodeTokens(const TokenizerFields& fields);
  Status ApplyConfig(const value& config);
  StatusOr<std::optional<TokenId>> ConfigToken(const TokenizerFields& config,
                                               std::string_view name) const;
  // The model.
  Status BuildBpe(const TokenizerFields& model);
  StatusOr<std::vector<BpeMerge>> ReadMerges(const TokenizerFields& model,
                                             size_t prefix_bytes) const;
  StatusOr<std::optional<TokenId>> UnknownId(const TokenizerFields& model) const;
  Status BuildUnigram(const TokenizerFields& model);
  std::array<TokenId, 256> ByteTokens() const;

  bool IsControl(TokenId id) const { return parts_.tokens[static_cast<size_t>(id)].control; }

  PipelineParts parts_;
  std::vector<std::string> spelled_;           // by id
  std::vector<bool> known_;                    // by id: false for a hole
  std::vector<bool> in_model_;                 // by id, of the tokens that the model itself has
  std::vector<bool> added_;                    // by id
  std::map<TokenId, std::string> decoded_as_;  // where not as spelled
  std::vector<AddedEntry> added_entries_;
  std::vector<double> scores_;  // by id, Unigram
  bool byte_level_ = false;
};

StatusOr<std::string> Loader::ModelType(const TokenizerFields& model) {
  ASSIGN_OR_RETURN(const std::optional<std::string> given, model.OptionalString("type"));
  // Old files do not say it.
  const value* const vocab = model.Find("vocab");
  const bool is_list = vocab != nullptr && vocab->is_array();
  const std::string type = given.value_or(is_list ? "Unigram" : "BPE");
  if (type == "BPE" || type == "Unigram") return type;
  return Unimplemented("model '{}' is not supported; BPE and Unigram are", type);
}

Status Loader::AddSpelling(std::string_view spelling, int64_t id) {
  if (id < 0 || id > kIdMax) {
    return InvalidArgument("a token has the id {}, ids from 0 to {} are accepted", id, kIdMax);
  }
  if (spelling.size() > kTokenBytesMax) {
    return InvalidArgument("token {} has {} bytes, at most {} are accepted", id, spelling.size(),
                           kTokenBytesMax);
  }
  const auto index = static_cast<size_t>(id);
  if (index >= spelled_.size() + kHolesMax) {
    return InvalidArgument("a token has the id {}, {} above the ids before it", id,
                           index - spelled_.size());
  }
  if (index >= spelled_.size()) {
    spelled_.resize(index + 1);
    known_.resize(index + 1);
    added_.resize(index + 1);
  }
  if (known_[index]) return InvalidArgument("id {} is given to two tokens", id);
  known_[index] = true;
  spelled_[index] = spelling;
  if (!parts_.spellings.Insert(spelling, static_cast<TokenId>(id))) {
    return InvalidArgument("token {} has the text of token {}", id,
                           parts_.spellings.Find(spelling));
  }
  return OkStatus();
}

Status Loader::ReadBpeVocabulary(const TokenizerFields& model) {
  ASSIGN_OR_RETURN(const value* vocab, model.Required("vocab"));
  if (!vocab->is_object()) return InvalidArgument("model.vocab is not an object");
  std::vector<std::pair<int64_t, std::string_view>> entries;  // the file may have any order
  for (const auto& entry : vocab->get_object()) {
    if (!entry.value().is_int64()) {
      return InvalidArgument("the id of a token in model.vocab is not an integer");
    }
    entries.emplace_back(entry.value().get_int64(),
                         std::string_view(entry.key().data(), entry.key().size()));
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& [id, spelling] : entries) RETURN_IF_ERROR(AddSpelling(spelling, id));
  return OkStatus();
}

Status Loader::ReadUnigramVocabulary(const TokenizerFields& model) {
  ASSIGN_OR_RETURN(const boost::json::array* vocab, model.Array("vocab"));
  for (size_t i = 0; i < vocab->size(); ++i) {
    const value& entry = (*vocab)[i];
    const bool is_pair = entry.is_array() && entry.get_array().size() == 2;
    if (!is_pair || !entry.get_array()[0].is_string() || !entry.get_array()[1].is_number()) {
      return InvalidArgument("entry {} of model.vocab is not a token and its score", i);
    }
    const double score = entry.get_array()[1].to_number<double>();
    if (!std::isfinite(score)) return InvalidArgument("the score of token {} is not finite", i);
    scores_.push_back(score);
    RETURN_IF_ERROR(
        AddSpelling(StringView(entry.get_array()[0].get_string()), static_cast<int64_t>(i)));
  }
  return OkStatus();
}

Status Loader::ReadAddedTokens(const TokenizerFields& fields) {
  if (fields.Find("added_tokens") != nullptr) {
    ASSIGN_OR_RETURN(const boost::json::array* entries, fields.Array("added_tokens"));
    for (const value& entry : *entries) RETURN_IF_ERROR(ReadAddedToken(entry));
  }
  parts_.tokens.resize(spelled_.size());
  for (const AddedEntry& entry : added_entries_) {
    const auto index = static_cast<size_t>(entry.token.id);
    parts_.tokens[index].control = entry.token.control;
    added_[index] = true;
  }
  if (spelled_.empty()) return InvalidArgument("the tokenizer has no tokens");
  return OkStatus();
}

Status Loader::ReadAddedToken(const value& entry) {
  ASSIGN_OR_RETURN(const TokenizerFields fields, TokenizerFields::Of(entry, "added_tokens"));
  AddedEntry added;
  ASSIGN_OR_RETURN(added.token.text, fields.String("content"));
  ASSIGN_OR_RETURN(const int64_t id, fields.Int("id", 0, kIdMax));
  ASSIGN_OR_RETURN(const bool special, fields.Bool("special", false));
  ASSIGN_OR_RETURN(added.token.single_word, fields.Bool("single_word", false));
  ASSIGN_OR_RETURN(added.token.strip_left, fields.Bool("lstrip", false));
  ASSIGN_OR_RETURN(added.token.strip_right, fields.Bool("rstrip", false));
  ASSIGN_OR_RETURN(added.normalized, fields.Bool("normalized", !special));
  const std::string& text = added.token.text;
  if (text.empty()) return OkStatus();
  if (text.size() > AddedTokens::kTextBytesMax) {
    return InvalidArgument("added token {} has {} bytes, at most {} are accepted", id, text.size(),
                           AddedTokens::kTextBytesMax);
  }
  const TokenId in_vocabulary = parts_.spellings.Find(text);
  if (in_vocabulary == kNone) {
    RETURN_IF_ERROR(AddSpelling(text, id));
  } else if (in_vocabulary != id) {
    return InvalidArgument("added token {} is token {} of the vocabulary", id, in_vocabulary);
  }
  added.token.id = static_cast<TokenId>(id);
  added.token.control = special || IsMarkedEndToken(text);
  added_entries_.push_back(std::move(added));
  return OkStatus();
}

Status Loader::AddPipeline(const TokenizerFields& fields) {
  ASSIGN_OR_RETURN(JsonNormalizers normalizers, BuildNormalizers(fields.Find("normalizer")));
  ASSIGN_OR_RETURN(JsonPreTokenizer pre_tokenizer,
                   BuildPreTokenizer(fields.Find("pre_tokenizer"), normalizers.byte_level));
  byte_level_ = pre_tokenizer.byte_level;
  parts_.normalizers = std::move(normalizers.parts);
  parts_.pre_tokenizer = std::move(pre_tokenizer.pre_tokenizer);
  for (AddedEntry& entry : added_entries_) {
    std::string normalized = entry.token.text;
    if (entry.normalized) {
      for (const auto& normalizer : parts_.normalizers) {
        normalized = normalizer->Normalize(std::move(normalized));
      }
    }
    if (!entry.normalized || normalized.empty() || normalized.size() > AddedTokens::kTextBytesMax) {
      parts_.added.Add(entry.token);
      continue;
    }
    if (entry.token.control && !parts_.normalizers.empty()) {
      // Behind the normalizer it is no longer known what of a rendered chat the template wrote.
      AddedToken token = entry.token;
      token.by_place = true;
      parts_.added.Add(std::move(token));
    }
    // The reference library decodes it to its normalized text, too.
    if (!entry.token.control) decoded_as_[entry.token.id] = normalized;
    AddedToken token = entry.token;
    token.text = std::move(normalized);
    parts_.added_normalized.Add(std::move(token));
  }
  return OkStatus();
}

Status Loader::DecodeTokens(const TokenizerFields& fields) {
  const value* const given = fields.Find("decoder");
  ASSIGN_OR_RETURN(const TokenDecoder decoder, TokenDecoder::Build(given));
  parts_.leading_strip = decoder.leading_strip();
  for (size_t i = 0; i < spelled_.size(); ++i) {
    VocabularyToken& token = parts_.tokens[i];
    // The text of an added token is not spelled in the byte alphabet.
    const bool literal = given != nullptr && (token.control || (added_[i] && byte_level_));
    const auto normalized = decoded_as_.find(static_cast<TokenId>(i));
    const std::string& text = normalized == decoded_as_.end() ? spelled_[i] : normalized->second;
    token.bytes = literal ? text : decoder.Decode(text);
    token.begins_with_mark = text.starts_with(kSpaceMark);
  }
  return OkStatus();
}

Status Loader::ApplyConfig(const value& config) {
  if (config.is_null()) return OkStatus();
  ASSIGN_OR_RETURN(const TokenizerFields fields, TokenizerFields::Of(config, "tokenizer_config"));
  ASSIGN_OR_RETURN(parts_.bos_id, ConfigToken(fields, "bos_token"));
  ASSIGN_OR_RETURN(parts_.eos_id, ConfigToken(fields, "eos_token"));
  ASSIGN_OR_RETURN(const std::optional<bool> add_bos, fields.OptionalBool("add_bos_token"));
  ASSIGN_OR_RETURN(const std::optional<bool> add_eos, fields.OptionalBool("add_eos_token"));
  // The file's post-processor says what is added; the flags, where given, have the last word.
  const auto apply = [](std::optional<bool> add, std::optional<TokenId> id,
                        std::vector<TokenId>& side) {
    if (!add || !id) return;
    if (*add && side.empty()) side.push_back(*id);
    if (!*add && side == std::vector<TokenId>{*id}) side.clear();
  };
  apply(add_bos, parts_.bos_id, parts_.prefix);
  apply(add_eos, parts_.eos_id, parts_.suffix);
  return OkStatus();
}

// "<s>" or {"content": "<s>", ...}. A text that is no token is an error: nothing would ever end.
StatusOr<std::optional<TokenId>> Loader::ConfigToken(const TokenizerFields& config,
                                                     std::string_view name) const {
  const value* const entry = config.Find(name);
  if (entry == nullptr) return std::optional<TokenId>();
  std::string text;
  if (entry->is_string()) {
    text = StringView(entry->get_string());
  } else {
    ASSIGN_OR_RETURN(const TokenizerFields fields,
                     TokenizerFields::Of(*entry, "tokenizer_config." + std::string(name)));
    ASSIGN_OR_RETURN(text, fields.String("content"));
  }
  const TokenId id = parts_.spellings.Find(text);
  if (id == kNone) return InvalidArgument("tokenizer_config.{} is not in the vocabulary", name);
  return std::optional(id);
}

std::array<TokenId, 256> Loader::ByteTokens() const {
  std::array<TokenId, 256> ids;
  ids.fill(kNone);
  for (size_t i = 0; i < in_model_.size(); ++i) {
    if (const auto byte = ParseByteToken(spelled_[i])) ids[*byte] = static_cast<TokenId>(i);
  }
  return ids;
}

StatusOr<std::optional<TokenId>> Loader::UnknownId(const TokenizerFields& model) const {
  ASSIGN_OR_RETURN(const auto text, model.OptionalString("unk_token"));
  if (!text || text->empty()) return std::optional<TokenId>();
  const TokenId id = parts_.spellings.Find(*text);
  if (id == kNone) return InvalidArgument("model.unk_token is not in the vocabulary");
  return std::optional(id);
}

Status Loader::BuildBpe(const TokenizerFields& model) {
  BpeOptions options{.byte_level = byte_level_};
  ASSIGN_OR_RETURN(options.ignore_merges, model.Bool("ignore_merges", false));
  ASSIGN_OR_RETURN(options.fuse_unknown, model.Bool("fuse_unk", false));
  ASSIGN_OR_RETURN(const bool byte_fallback, model.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(options.unknown_id, UnknownId(model));
  ASSIGN_OR_RETURN(const auto prefix, model.OptionalString("continuing_subword_prefix"));
  ASSIGN_OR_RETURN(const auto suffix, model.OptionalString("end_of_word_suffix"));
  options.continuing_prefix = prefix.value_or("");
  options.end_suffix = suffix.value_or("");
  if (const value* dropout = model.Find("dropout")) {
    if (!dropout->is_number() || dropout->to_number<double>() != 0.0) {
      return InvalidArgument("model.dropout is set; a tokenizer that draws lots is not supported");
    }
  }
  BpeVocabulary vocabulary;
  vocabulary.byte_ids.fill(kNone);
  vocabulary.symbols_begin = static_cast<int32_t>(spelled_.size());
  if (byte_fallback && !byte_level_) vocabulary.byte_ids = ByteTokens();
  for (size_t i = 0; i < in_model_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    // Neither a control token nor a byte token is what a text that spells it means.
    if (!in_model_[i] || spelled_[i].empty() || IsControl(id)) continue;
    if (byte_fallback && ParseByteToken(spelled_[i])) continue;
    if (!byte_level_) {
      vocabulary.tokens.Insert(spelled_[i], id);
      continue;
    }
    const auto bytes = BytesOfSpelling(spelled_[i]);
    if (!bytes || !vocabulary.tokens.Insert(*bytes, id)) continue;
    if (bytes->size() == 1) vocabulary.byte_ids[static_cast<uint8_t>((*bytes)[0])] = id;
  }
  if (byte_level_) {
    for (std::string* affix : {&options.continuing_prefix, &options.end_suffix}) {
      const auto bytes = BytesOfSpelling(*affix);
      if (!bytes) return InvalidArgument("a prefix or suffix of the model is not spelled in bytes");
      *affix = *bytes;
    }
  }
  ASSIGN_OR_RETURN(vocabulary.merges, ReadMerges(model, prefix.value_or("").size()));
  parts_.model = BpeModel::Build(std::move(vocabulary), std::move(options));
  return OkStatus();
}

StatusOr<std::vector<BpeMerge>> Loader::ReadMerges(const TokenizerFields& model,
                                                   size_t prefix_bytes) const {
  ASSIGN_OR_RETURN(const boost::json::array* list, model.Array("merges"));
  std::vector<BpeMerge> merges;
  merges.reserve(list->size());
  for (size_t rank = 0; rank < list->size(); ++rank) {
    const value& entry = (*list)[rank];
    std::string_view left;
    std::string_view right;
    if (entry.is_string()) {  // "left right", the older form
      const std::string_view text = StringView(entry.get_string());
      const size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (entry.is_array() && entry.get_array().size() == 2 &&
               entry.get_array()[0].is_string() && entry.get_array()[1].is_string()) {
      left = StringView(entry.get_array()[0].get_string());
      right = StringView(entry.get_array()[1].get_string());
    }
    if (left.empty() || right.size() <= prefix_bytes) {
      return InvalidArgument("entry {} of model.merges is not a pair of tokens", rank);
    }
    const std::string whole = std::string(left).append(right.substr(prefix_bytes));
    const BpeMerge merge{.left = parts_.spellings.Find(left),
                         .right = parts_.spellings.Find(right),
                         .result = parts_.spellings.Find(whole),
                         .rank = static_cast<uint32_t>(rank)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      return InvalidArgument(
          "entry {} of model.merges joins or makes a token that the vocabulary "
          "lacks",
          rank);
    }
    if (!IsControl(merge.result)) merges.push_back(merge);
  }
  return merges;
}

Status Loader::BuildUnigram(const TokenizerFields& model) {
  if (byte_level_) return Unimplemented("a Unigram model over bytes is not supported");
  UnigramVocabulary vocabulary;
  vocabulary.byte_ids.fill(kNone);
  ASSIGN_OR_RETURN(const bool byte_fallback, model.Bool("byte_fallback", false));
  if (byte_fallback) vocabulary.byte_ids = ByteTokens();
  if (model.Find("unk_id") != nullptr) {
    ASSIGN_OR_RETURN(const int64_t id,
                     model.Int("unk_id", 0, static_cast<int64_t>(scores_.size()) - 1));
    vocabulary.unknown_id = static_cast<TokenId>(id);
  }
  for (size_t i = 0; i < scores_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    vocabulary.score_min = i == 0 ? scores_[0] : std::min(vocabulary.score_min, scores_[i]);
    if (IsControl(id) || id == vocabulary.unknown_id) continue;
    if (byte_fallback && ParseByteToken(spelled_[i])) continue;
    vocabulary.tokens.push_back({.text = spelled_[i], .score = scores_[i], .id = id});
  }
  ASSIGN_OR_RETURN(parts_.model, UnigramModel::Build(std::move(vocabulary)));
  return OkStatus();
}

StatusOr<value> ParseJson(std::string_view text, std::string_view name,
                          boost::json::storage_ptr storage) {
  if (text.size() > kFileBytesMax) {
    return InvalidArgument("{} has {} bytes, at most {} are accepted", name, text.size(),
                           kFileBytesMax);
  }
  boost::json::error_code error;
  value parsed = boost::json::parse({text.data(), text.size()}, error, std::move(storage));
  if (error) return InvalidArgument("{} is not JSON: {}", name, error.message());
  return parsed;
}

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                               std::string_view tokenizer_config) {
  boost::json::monotonic_resource memory;
  ASSIGN_OR_RETURN(const value root, ParseJson(tokenizer_json, "tokenizer.json", &memory));
  value config;
  if (!tokenizer_config.empty()) {
    ASSIGN_OR_RETURN(config, ParseJson(tokenizer_config, "tokenizer_config.json", &memory));
  }
  Loader loader;
  RETURN_IF_ERROR(loader.Load(root, config));
  return std::shared_ptr<const Tokenizer>(std::make_shared<PipelineTokenizer>(loader.Take()));
}

}  // namespace polysil
