#include "model/hf_checkpoint.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/hf_config.h"
#include "model/json_fields.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "model/weights_builder.h"

namespace polysil {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kConfigBytesMax = 4 * kMiB;
constexpr int64_t kIndexBytesMax = 64 * kMiB;
constexpr int64_t kTokenizerBytesMax = 256 * kMiB;  // the largest published ones have 40 MB
constexpr size_t kShardsMax = 4096;

std::string Join(const std::string& folder, std::string_view name) {
  return folder + "/" + std::string(name);
}

StatusOr<std::string> ReadOptional(const std::string& path, int64_t bytes_max) {
  StatusOr<std::string> text = ReadTextFile(path, bytes_max);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return std::string();
  return text;
}

// The weight files, and where each tensor is said to be (empty for a single file).
struct ShardPlan {
  std::vector<std::string> names;
  std::map<std::string, std::string> shard_by_tensor;
};

StatusOr<std::vector<std::string>> ListSafetensors(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::string name = entries->path().filename().string();
    if (name.ends_with(".safetensors")) names.push_back(std::move(name));
    if (names.size() > kShardsMax) {
      return ResourceExhausted("{}: has more than {} .safetensors files", folder, kShardsMax);
    }
  }
  if (error) return FailedPrecondition("{}: cannot be listed: {}", folder, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// A plain file name: the index must not lead out of the folder.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name.ends_with(".safetensors");
}

StatusOr<ShardPlan> PlanFromIndex(const std::string& text, std::string_view what) {
  ASSIGN_OR_RETURN(const boost::json::object index, ParseJsonObject(text, what));
  ASSIGN_OR_RETURN(const boost::json::object* map, JsonFields(index).Object("weight_map"));
  if (map == nullptr) return InvalidArgument("{} has no weight_map", what);
  ShardPlan plan;
  for (const auto& entry : *map) {
    const std::string tensor(entry.key().data(), entry.key().size());
    if (!entry.value().is_string()) {
      return InvalidArgument("{}: weight_map names no file for tensor {}", what, tensor);
    }
    const std::string shard(entry.value().get_string().data(), entry.value().get_string().size());
    if (!IsPlainName(shard)) {
      return InvalidArgument(
          "{}: weight_map has file \"{}\" for tensor {}, which is not the name "
          "of a .safetensors file in the folder",
          what, shard.substr(0, 255), tensor);
    }
    plan.names.push_back(shard);
    plan.shard_by_tensor.emplace(tensor, shard);
  }
  std::sort(plan.names.begin(), plan.names.end());
  plan.names.erase(std::unique(plan.names.begin(), plan.names.end()), plan.names.end());
  if (plan.names.empty() || plan.names.size() > kShardsMax) {
    return InvalidArgument("{}: weight_map names {} files, not 1 to {}", what, plan.names.size(),
                           kShardsMax);
  }
  return plan;
}

StatusOr<ShardPlan> PlanShards(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> present, ListSafetensors(folder));
  constexpr std::string_view kSingle = "model.safetensors";
  if (std::find(present.begin(), present.end(), kSingle) != present.end()) {
    return ShardPlan{.names = {std::string(kSingle)}};
  }
  const std::string index_path = Join(folder, "model.safetensors.index.json");
  ASSIGN_OR_RETURN(const std::string index, ReadOptional(index_path, kIndexBytesMax));
  if (!index.empty()) return PlanFromIndex(index, index_path);
  if (present.size() == 1) return ShardPlan{.names = present};
  if (present.empty()) return NotFound("{}: holds no .safetensors file", folder);
  return NotFound("{}: holds {} .safetensors files, but no model.safetensors.index.json", folder,
                  present.size());
}

struct Shards {
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::vector<SafetensorsTensor> tensors;
};

Status CheckPlace(const ShardPlan& plan, const std::string& shard,
                  const SafetensorsTensor& tensor) {
  if (plan.shard_by_tensor.empty()) return OkStatus();
  const auto stated = plan.shard_by_tensor.find(tensor.name);
  if (stated == plan.shard_by_tensor.end()) {
    return InvalidArgument("tensor {} lies in {}, but the index does not list it", tensor.name,
                           shard);
  }
  if (stated->second != shard) {
    return InvalidArgument("tensor {} lies in {}, but the index says {}", tensor.name, shard,
                           stated->second);
  }
  return OkStatus();
}

StatusOr<Shards> OpenShards(const std::string& folder) {
  ASSIGN_OR_RETURN(const ShardPlan plan, PlanShards(folder));
  Shards shards;
  for (const std::string& name : plan.names) {
    ASSIGN_OR_RETURN(shards.files.emplace_back(), MappedFile::Open(Join(folder, name)));
    shards.files.back()->Prefetch();
    StatusOr<std::vector<SafetensorsTensor>> tensors =
        ParseSafetensors(shards.files.back()->bytes());
    if (!tensors.ok()) {
      return MakeStatus(tensors.status().code(),
                        fmt::format("{}: {}", name, Message(tensors.status())));
    }
    for (SafetensorsTensor& tensor : *tensors) {
      RETURN_IF_ERROR(CheckPlace(plan, name, tensor));
      shards.tensors.push_back(std::move(tensor));
    }
  }
  // Every tensor of a shard has its place in the index, so a missing one shows in the count.
  if (!plan.shard_by_tensor.empty() && plan.shard_by_tensor.size() != shards.tensors.size()) {
    return InvalidArgument("the index lists {} tensors, but the files hold {}",
                           plan.shard_by_tensor.size(), shards.tensors.size());
  }
  return shards;
}

std::vector<FileTensor> ToFileTensors(const Shards& shards) {
  std::vector<FileTensor> tensors;
  for (const SafetensorsTensor& tensor : shards.tensors) {
    tensors.push_back({tensor.name, tensor.type_name, tensor.dtype, tensor.shape, tensor.data});
  }
  return tensors;
}

StatusOr<TokenizerFiles> ReadTokenizerFiles(const std::string& folder) {
  TokenizerFiles files;
  ASSIGN_OR_RETURN(files.config_json, ReadTextFile(Join(folder, "config.json"), kConfigBytesMax));
  ASSIGN_OR_RETURN(files.tokenizer_json,
                   ReadOptional(Join(folder, "tokenizer.json"), kTokenizerBytesMax));
  ASSIGN_OR_RETURN(files.tokenizer_config_json,
                   ReadOptional(Join(folder, "tokenizer_config.json"), kTokenizerBytesMax));
  ASSIGN_OR_RETURN(files.generation_config_json,
                   ReadOptional(Join(folder, "generation_config.json"), kConfigBytesMax));
  return files;
}

// tokenizer_config.json holds one text, or a list of {"name", "template"}.
StatusOr<std::vector<ChatTemplateSource>> TemplatesFromConfig(const std::string& json) {
  std::vector<ChatTemplateSource> templates;
  if (json.empty()) return templates;
  ASSIGN_OR_RETURN(const boost::json::object object,
                   ParseJsonObject(json, "tokenizer_config.json"));
  const JsonFields config(object);
  const boost::json::value* value = config.Find("chat_template");
  if (value == nullptr) return templates;
  if (!value->is_array()) {
    ASSIGN_OR_RETURN(std::optional<std::string> source, config.String("chat_template"));
    templates.push_back({"default", std::move(*source)});
    return templates;
  }
  for (const boost::json::value& entry : value->get_array()) {
    if (!entry.is_object()) return InvalidArgument("chat_template lists something unnamed");
    const JsonFields fields(entry.get_object(), "chat_template.");
    ASSIGN_OR_RETURN(std::optional<std::string> name, fields.String("name"));
    ASSIGN_OR_RETURN(std::optional<std::string> source, fields.String("template"));
    if (!name || !source)
      return InvalidArgument("chat_template lists one without name or template");
    templates.push_back({std::move(*name), std::move(*source)});
  }
  std::stable_partition(templates.begin(), templates.end(),
                        [](const ChatTemplateSource& t) { return t.name == "default"; });
  return templates;
}

// A file chat_template.jinja takes the place of the default in tokenizer_config.json.
StatusOr<std::vector<ChatTemplateSource>> ReadChatTemplates(const std::string& folder,
                                                            const std::string& config_json) {
  ASSIGN_OR_RETURN(std::vector<ChatTemplateSource> templates, TemplatesFromConfig(config_json));
  ASSIGN_OR_RETURN(std::string file,
                   ReadOptional(Join(folder, "chat_template.jinja"), kConfigBytesMax));
  if (file.empty()) return templates;
  std::erase_if(templates, [](const ChatTemplateSource& t) { return t.name == "default"; });
  templates.insert(templates.begin(), {"default", std::move(file)});
  return templates;
}

std::string FolderName(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(folder, error);
  if (error) return folder;
  const std::filesystem::path normal = absolute.lexically_normal();
  return normal.has_filename() ? normal.filename().string()
                               : normal.parent_path().filename().string();
}

// Weights that repeat or precompute what the spec has already.
bool IsIgnorable(std::string_view name, bool tied) {
  return name.ends_with(".rotary_emb.inv_freq") || (tied && name == "lm_head.weight");
}

}  // namespace

StatusOr<Checkpoint::Contents> ReadHfCheckpoint(const std::string& folder,
                                                const CheckpointOptions& options) {
  Checkpoint::Contents contents;
  contents.format = "safetensors";
  contents.model_name = FolderName(folder);
  ASSIGN_OR_RETURN(TokenizerFiles texts, ReadTokenizerFiles(folder));
  ASSIGN_OR_RETURN(const HfModel model, ReadHfModel(texts.config_json, options.context_tokens));
  contents.spec = model.spec;
  ASSIGN_OR_RETURN(Shards shards, OpenShards(folder));
  const std::vector<FileTensor> tensors = ToFileTensors(shards);
  for (const FileTensor& tensor : tensors) contents.tensors.push_back(ToListing(tensor));
  const bool tied = model.spec.tied_embedding;
  ASSIGN_OR_RETURN(BuiltWeights built,
                   BuildWeights(model.spec, model.names, tensors,
                                [tied](std::string_view name) { return IsIgnorable(name, tied); }));
  contents.weights = std::move(built.weights);
  contents.copies = std::move(built.copies);
  if (texts.tokenizer_json.empty()) return NotFound("{}: holds no tokenizer.json", folder);
  ASSIGN_OR_RETURN(contents.chat_templates, ReadChatTemplates(folder, texts.tokenizer_config_json));
  ASSIGN_OR_RETURN(contents.files.emplace_back(), MappedFile::Open(Join(folder, "config.json")));
  for (auto& file : shards.files) contents.files.push_back(std::move(file));
  contents.tokenizer.description =
      fmt::format("tokenizer.json, {} bytes", texts.tokenizer_json.size());
  contents.tokenizer.files = std::move(texts);
  return contents;
}

StatusOr<CheckpointSummary> SummarizeHfFolder(const std::string& folder) {
  CheckpointSummary summary;
  summary.format = "safetensors";
  summary.model_name = FolderName(folder);
  ASSIGN_OR_RETURN(const TokenizerFiles texts, ReadTokenizerFiles(folder));
  ASSIGN_OR_RETURN(const boost::json::object config,
                   ParseJsonObject(texts.config_json, "config.json"));
  summary.architecture = HfModelType(texts.config_json);
  for (const auto& entry : config) {
    summary.metadata.emplace_back(std::string(entry.key().data(), entry.key().size()),
                                  ShortJson(entry.value()));
  }
  ASSIGN_OR_RETURN(const Shards shards, OpenShards(folder));
  for (const FileTensor& tensor : ToFileTensors(shards)) {
    summary.tensors.push_back(ToListing(tensor));
  }
  for (const auto& file : shards.files) {
    summary.bytes_total += static_cast<int64_t>(file->bytes().size());
  }
  summary.tokenizer = texts.tokenizer_json.empty()
                          ? "none"
                          : fmt::format("tokenizer.json, {} bytes", texts.tokenizer_json.size());
  ASSIGN_OR_RETURN(summary.chat_templates, ReadChatTemplates(folder, texts.tokenizer_config_json));
  ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> config_file,
                   MappedFile::Open(Join(folder, "config.json")));
  std::vector<std::shared_ptr<const MappedFile>> files = {std::move(config_file)};
  files.insert(files.end(), shards.files.begin(), shards.files.end());
  summary.digest = DigestOf(files);
  return summary;
}

}  // namespace polysil
