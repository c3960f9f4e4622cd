#include "model/gguf_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "model/gguf_spec.h"
#include "model/weights_builder.h"

namespace polysil {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

Status ReadScores(const GgufFile& file, GgufVocabulary& vocabulary) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  ASSIGN_OR_RETURN(const GgufArray* scores, file.FindArray(kKey, GgufType::kFloat32));
  if (scores == nullptr) return OkStatus();
  if (scores->size != static_cast<int64_t>(vocabulary.tokens.size())) {
    return InvalidArgument("{} has {} entries for {} tokens", kKey, scores->size,
                           vocabulary.tokens.size());
  }
  vocabulary.scores.resize(scores->size);
  for (int64_t i = 0; i < scores->size; ++i) {
    const auto score = NumberAt<float>(*scores, i);
    if (std::isnan(score)) return InvalidArgument("{} entry {} is not a number", kKey, i);
    vocabulary.scores[i] = score;
  }
  return OkStatus();
}

Status ReadTypes(const GgufFile& file, GgufVocabulary& vocabulary) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  ASSIGN_OR_RETURN(const GgufArray* types, file.FindArray(kKey, GgufType::kInt32));
  if (types == nullptr) return OkStatus();
  if (types->size != static_cast<int64_t>(vocabulary.tokens.size())) {
    return InvalidArgument("{} has {} entries for {} tokens", kKey, types->size,
                           vocabulary.tokens.size());
  }
  vocabulary.types.resize(types->size);
  for (int64_t i = 0; i < types->size; ++i) {
    const auto type = NumberAt<int32_t>(*types, i);
    if (type < 0 || type > 6) {  // undefined, normal, unknown, control, user-defined, unused, byte
      return InvalidArgument("{} entry {} is {}, which is not a token type", kKey, i, type);
    }
    vocabulary.types[i] = type;
  }
  return OkStatus();
}

Status ReadMerges(const GgufFile& file, GgufVocabulary& vocabulary) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  ASSIGN_OR_RETURN(const GgufArray* merges, file.FindArray(kKey, GgufType::kString));
  if (merges == nullptr) return OkStatus();
  vocabulary.merges.reserve(merges->strings.size());
  for (const std::string_view merge : merges->strings) {
    const size_t space = merge.find(' ', 1);
    if (merge.size() < 3 || space == std::string_view::npos || space + 1 == merge.size()) {
      return InvalidArgument("{} entry {} is not two pieces with a space between", kKey,
                             vocabulary.merges.size());
    }
    vocabulary.merges.emplace_back(merge);
  }
  return OkStatus();
}

StatusOr<std::optional<int32_t>> ReadTokenId(const GgufFile& file, std::string_view key,
                                             size_t tokens) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> id, file.FindInt(key));
  if (!id) return std::nullopt;
  if (*id < 0 || *id >= static_cast<int64_t>(tokens)) {
    return InvalidArgument("{} is {}, but there are {} tokens", key, *id, tokens);
  }
  return static_cast<int32_t>(*id);
}

Status ReadTokenIds(const GgufFile& file, GgufVocabulary& vocabulary) {
  const size_t tokens = vocabulary.tokens.size();
  ASSIGN_OR_RETURN(vocabulary.bos_id, ReadTokenId(file, "tokenizer.ggml.bos_token_id", tokens));
  ASSIGN_OR_RETURN(vocabulary.eos_id, ReadTokenId(file, "tokenizer.ggml.eos_token_id", tokens));
  ASSIGN_OR_RETURN(vocabulary.eot_id, ReadTokenId(file, "tokenizer.ggml.eot_token_id", tokens));
  ASSIGN_OR_RETURN(vocabulary.unknown_id,
                   ReadTokenId(file, "tokenizer.ggml.unknown_token_id", tokens));
  // Not used, but a file that is wrong here is wrong.
  for (const std::string_view key :
       {"tokenizer.ggml.padding_token_id", "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.mask_token_id"}) {
    RETURN_IF_ERROR(ReadTokenId(file, key, tokens).status());
  }
  ASSIGN_OR_RETURN(vocabulary.add_bos, file.FindBool("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(vocabulary.add_eos, file.FindBool("tokenizer.ggml.add_eos_token"));
  ASSIGN_OR_RETURN(vocabulary.add_space_prefix, file.FindBool("tokenizer.ggml.add_space_prefix"));
  return OkStatus();
}

std::string Describe(const GgufVocabulary& vocabulary) {
  std::string text = fmt::format("gguf {}", vocabulary.model);
  if (!vocabulary.pre.empty()) text += fmt::format(", pre-tokenizer {}", vocabulary.pre);
  return text + fmt::format(", {} tokens", vocabulary.tokens.size());
}

StatusOr<std::string> ModelName(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::optional<std::string_view> name, file.FindString("general.name"));
  return std::string(name.value_or(""));
}

}  // namespace

bool LooksLikeGguf(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

StatusOr<GgufVocabulary> ReadGgufVocabulary(const GgufFile& file) {
  GgufVocabulary vocabulary;
  ASSIGN_OR_RETURN(const std::optional<std::string_view> model,
                   file.FindString("tokenizer.ggml.model"));
  if (!model) return InvalidArgument("tokenizer.ggml.model is missing");
  vocabulary.model = std::string(*model);
  ASSIGN_OR_RETURN(const std::optional<std::string_view> pre,
                   file.FindString("tokenizer.ggml.pre"));
  vocabulary.pre = std::string(pre.value_or(""));
  ASSIGN_OR_RETURN(const GgufArray* tokens,
                   file.FindArray("tokenizer.ggml.tokens", GgufType::kString));
  if (tokens == nullptr || tokens->size == 0) {
    return InvalidArgument("tokenizer.ggml.tokens is missing or empty");
  }
  vocabulary.tokens.assign(tokens->strings.begin(), tokens->strings.end());
  RETURN_IF_ERROR(ReadScores(file, vocabulary));
  RETURN_IF_ERROR(ReadTypes(file, vocabulary));
  RETURN_IF_ERROR(ReadMerges(file, vocabulary));
  RETURN_IF_ERROR(ReadTokenIds(file, vocabulary));
  return vocabulary;
}

StatusOr<std::vector<ChatTemplateSource>> ReadGgufChatTemplates(const GgufFile& file) {
  std::vector<ChatTemplateSource> templates;
  ASSIGN_OR_RETURN(const std::optional<std::string_view> source, file.FindString(kTemplateKey));
  if (source) templates.push_back({"default", std::string(*source)});
  // Further ones are named in the key: tokenizer.chat_template.tool_use.
  const std::string prefix = std::string(kTemplateKey) + ".";
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(prefix)) continue;
    ASSIGN_OR_RETURN(const std::optional<std::string_view> named, file.FindString(key));
    templates.push_back({std::string(key.substr(prefix.size())), std::string(*named)});
  }
  return templates;
}

StatusOr<Checkpoint::Contents> ReadGgufCheckpoint(std::shared_ptr<const MappedFile> mapped,
                                                  const CheckpointOptions& options) {
  Checkpoint::Contents contents;
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(mapped->bytes()));
  contents.format = fmt::format("GGUF v{}", file.version());
  ASSIGN_OR_RETURN(contents.model_name, ModelName(file));
  ASSIGN_OR_RETURN(const GgufModel model, ReadGgufModel(file, options.context_tokens));
  contents.spec = model.spec;
  const std::vector<FileTensor> tensors = ToFileTensors(file);
  for (const FileTensor& tensor : tensors) contents.tensors.push_back(ToListing(tensor));
  ASSIGN_OR_RETURN(BuiltWeights built,
                   BuildWeights(model.spec, model.names, tensors, [](std::string_view name) {
                     return name == "rope_freqs.weight" || name == "rope_factors_short.weight" ||
                            name == "rope_factors_long.weight";  // part of the spec's ropes
                   }));
  contents.weights = std::move(built.weights);
  contents.copies = std::move(built.copies);
  ASSIGN_OR_RETURN(GgufVocabulary vocabulary, ReadGgufVocabulary(file));
  if (static_cast<int64_t>(vocabulary.tokens.size()) != model.spec.vocab_size) {
    return InvalidArgument(
        "tokenizer.ggml.tokens has {} entries, but tensor token_embd.weight has "
        "{} rows",
        vocabulary.tokens.size(), model.spec.vocab_size);
  }
  contents.tokenizer.description = Describe(vocabulary);
  contents.tokenizer.gguf = std::move(vocabulary);
  ASSIGN_OR_RETURN(contents.chat_templates, ReadGgufChatTemplates(file));
  contents.files.push_back(std::move(mapped));
  return contents;
}

StatusOr<CheckpointSummary> SummarizeGguf(const MappedFile& mapped) {
  CheckpointSummary summary;
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(mapped.bytes()));
  summary.format = fmt::format("GGUF v{}", file.version());
  ASSIGN_OR_RETURN(const std::optional<std::string_view> architecture,
                   file.FindString("general.architecture"));
  summary.architecture = std::string(architecture.value_or(""));
  ASSIGN_OR_RETURN(summary.model_name, ModelName(file));
  constexpr size_t kValueLengthMax = 72;
  for (const auto& [key, value] : file.metadata()) {
    summary.metadata.emplace_back(key, ToText(value, kValueLengthMax));
  }
  for (const FileTensor& tensor : ToFileTensors(file)) {
    summary.tensors.push_back(ToListing(tensor));
  }
  const StatusOr<GgufVocabulary> vocabulary = ReadGgufVocabulary(file);
  summary.tokenizer = vocabulary.ok() ? Describe(*vocabulary) : Message(vocabulary.status());
  ASSIGN_OR_RETURN(summary.chat_templates, ReadGgufChatTemplates(file));
  summary.bytes_total = static_cast<int64_t>(mapped.bytes().size());
  return summary;
}

}  // namespace polysil
