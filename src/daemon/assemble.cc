#include "daemon/assemble.h"

#include <boost/json/parse.hpp>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/log.h"
#include "daemon/machine_memory.h"
#include "daemon/sizing.h"
#include "device/cpu/cpu_device.h"
#include "exec/local_executor.h"
#include "text/chat_template.h"

namespace polysil {
namespace {

namespace json = boost::json;

TokenizerSpec SpecOf(const GgufVocabulary& vocabulary) {
  TokenizerSpec spec = {.model = vocabulary.model,
                        .pre = vocabulary.pre,
                        .tokens = vocabulary.tokens,
                        .scores = vocabulary.scores,
                        .types = {},
                        .merges = vocabulary.merges,
                        .bos_id = vocabulary.bos_id,
                        .eos_id = vocabulary.eos_id,
                        .eot_id = vocabulary.eot_id,
                        .unknown_id = vocabulary.unknown_id,
                        .add_bos = vocabulary.add_bos,
                        .add_eos = vocabulary.add_eos,
                        .add_space_prefix = vocabulary.add_space_prefix};
  spec.types.reserve(vocabulary.types.size());
  for (int32_t type : vocabulary.types) spec.types.push_back(static_cast<TokenType>(type));
  return spec;
}

// eos_token_id of generation_config.json: a number or a list of them.
std::vector<TokenId> EndTokenIds(const Checkpoint& checkpoint) {
  std::vector<TokenId> ids;
  if (!checkpoint.tokenizer().files) return ids;
  boost::system::error_code error;
  const json::value config =
      json::parse(checkpoint.tokenizer().files->generation_config_json, error);
  if (error || !config.is_object()) return ids;
  const json::value* eos = config.get_object().if_contains("eos_token_id");
  if (eos == nullptr) return ids;
  const auto add = [&](const json::value& value) {
    const int64_t* id = value.if_int64();
    if (id != nullptr && *id >= 0 && *id < checkpoint.spec().vocab_size) {
      ids.push_back(static_cast<TokenId>(*id));
    }
  };
  add(*eos);
  if (const json::array* list = eos->if_array()) {
    for (const json::value& value : *list) add(value);
  }
  return ids;
}

std::string TokenText(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.TokenBytes(*id)) : std::string();
}

std::shared_ptr<const ChatTemplate> BuildTemplate(const Checkpoint& checkpoint,
                                                  std::string_view name, const Tokenizer& tokenizer,
                                                  std::string& missing) {
  for (const ChatTemplateSource& source : checkpoint.chat_templates()) {
    if (source.name != name) continue;
    auto made = ChatTemplate::Create(source.source,
                                     {.bos_token = TokenText(tokenizer, tokenizer.bos_id()),
                                      .eos_token = TokenText(tokenizer, tokenizer.eos_id())});
    if (made.ok()) return *std::move(made);
    missing = fmt::format("the model's chat template cannot be used: {}", Message(made.status()));
    Log(LogLevel::kWarning, "{}", missing);
    return nullptr;
  }
  return nullptr;
}

// "SmolLM2-135M-Instruct.Q4_1" from "models/SmolLM2-135M-Instruct.Q4_1.gguf".
std::string NameFromPath(const std::string& path) {
  std::filesystem::path trimmed = path;
  if (!trimmed.has_filename()) trimmed = trimmed.parent_path();
  if (trimmed.extension() == ".gguf") trimmed = trimmed.stem();
  const std::string name = trimmed.filename().string();
  return name.empty() ? "model" : name;
}

TenantSource TenantSourceOf(const v1::Config& config) {
  const std::string& tenants = config.server().tenants();
  if (tenants == "api_key") return TenantSource::kApiKey;
  return tenants == "header" ? TenantSource::kHeader : TenantSource::kNone;
}

EngineOptions EngineOptionsOf(const v1::Config& config) {
  const v1::SchedulerConfig& scheduler = config.scheduler();
  const auto thousandths = [](double weight) {
    return static_cast<int64_t>(std::llround(weight * 1000));
  };
  return {.sequences_max = scheduler.sequences_max(),
          .queue_max = scheduler.queue_max(),
          .queue_tokens_max = scheduler.queue_tokens_max(),
          .tenants_leave_room = TenantSourceOf(config) != TenantSource::kNone,
          .itl_target_ns = static_cast<int64_t>(scheduler.itl_target_ms() * 1e6),
          .weights = {.decode = thousandths(scheduler.output_token_weight()),
                      .cached = thousandths(scheduler.cached_token_weight())},
          .prefix_cache = config.kv().prefix_cache()};
}

struct LoadedExecutor {
  std::unique_ptr<Executor> executor;
  int32_t context_tokens = 0;
  std::string device;
};

// As CheckConfig let it pass.
DType KvDType(std::string_view name) {
  return name == "f32" ? DType::kF32 : name == "int8" ? DType::kI8 : DType::kF16;
}

StatusOr<LoadedExecutor> LoadExecutor(const Checkpoint& checkpoint, const v1::Config& config) {
  const CpuActivations activations =
      config.cpu().activations() == "f32" ? CpuActivations::kF32 : CpuActivations::kQ8;
  ASSIGN_OR_RETURN(
      std::unique_ptr<Device> device,
      CreateCpuDevice({.threads = config.cpu().threads(), .activations = activations}));
  const ModelSpec& spec = checkpoint.spec();
  const KvLayout layout = {.layers = spec.layer_count(),
                           .kv_heads = spec.kv_heads,
                           .head_size = spec.head_size,
                           .tokens_per_block = config.kv().block_tokens(),
                           .dtype = KvDType(config.kv().dtype())};
  ASSIGN_OR_RETURN(const KvSizing sizing,
                   SizeKv(config, spec.context_tokens_max, layout, MemoryAvailableBytes()));
  const v1::SchedulerConfig& scheduler = config.scheduler();
  LoadedExecutor loaded = {.executor = nullptr,
                           .context_tokens = sizing.context_tokens,
                           .device = device->info().description};
  ASSIGN_OR_RETURN(
      loaded.executor,
      LocalExecutor::Create(std::move(device), checkpoint,
                            {.limits = {.tokens_max = scheduler.step_tokens_max(),
                                        .sequences_max = scheduler.sequences_max(),
                                        .prefill_sequences_max = scheduler.sequences_max(),
                                        .steps_in_flight_max = 2,
                                        .kv_host_blocks = config.kv().host_blocks()},
                             .kv_blocks = sizing.blocks,
                             .kv_block_tokens = layout.tokens_per_block,
                             .kv_dtype = layout.dtype}));
  Log(LogLevel::kInfo, "{}: context {} tokens, KV pool {} blocks of {} tokens ({} MiB)",
      loaded.device, sizing.context_tokens, sizing.blocks, layout.tokens_per_block,
      sizing.blocks * layout.block_bytes() >> 20);
  const StepLimits& limits = loaded.executor->limits();
  if (limits.kv_host_blocks > 0) {
    Log(LogLevel::kInfo, "host tier: {} blocks; copying one costs as much as {:.3g} prefill rows",
        limits.kv_host_blocks, limits.block_copy_rows);
  }
  return loaded;
}

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> BuildTokenizer(const Checkpoint& checkpoint) {
  const TokenizerSource& source = checkpoint.tokenizer();
  if (source.gguf) return Tokenizer::Create(SpecOf(*source.gguf));
  if (source.files) {
    return Tokenizer::FromJson(source.files->tokenizer_json, source.files->tokenizer_config_json);
  }
  return FailedPrecondition("the model has no tokenizer");
}

StatusOr<std::unique_ptr<Assembly>> Assembly::Create(const std::string& model_path,
                                                     const v1::Config& config, const Clock& clock) {
  std::unique_ptr<Assembly> assembly(new Assembly());
  ASSIGN_OR_RETURN(assembly->checkpoint_,
                   OpenCheckpoint(model_path, {.context_tokens = config.model().context_tokens()}));
  const Checkpoint& checkpoint = *assembly->checkpoint_;
  Log(LogLevel::kInfo, "{}: {}, {}, {} layers, {}, {}", model_path, checkpoint.format(),
      checkpoint.spec().architecture, checkpoint.spec().layer_count(), checkpoint.WeightTypes(),
      checkpoint.tokenizer().description);

  TextModel model;
  ASSIGN_OR_RETURN(model.tokenizer, BuildTokenizer(checkpoint));
  if (model.tokenizer->vocab_size() > checkpoint.spec().vocab_size) {
    Log(LogLevel::kWarning, "the tokenizer has {} tokens, the model {}",
        model.tokenizer->vocab_size(), checkpoint.spec().vocab_size);
  }
  std::string tool_template_missing;
  model.chat_template =
      BuildTemplate(checkpoint, "default", *model.tokenizer, model.chat_template_missing);
  model.tool_template =
      BuildTemplate(checkpoint, "tool_use", *model.tokenizer, tool_template_missing);
  model.end_token_ids = EndTokenIds(checkpoint);
  model.names = {config.model().has_name() ? config.model().name() : NameFromPath(model_path)};

  ASSIGN_OR_RETURN(LoadedExecutor loaded, LoadExecutor(checkpoint, config));
  assembly->device_ = loaded.device;
  assembly->kv_layout_ = loaded.executor->kv_layout();
  ASSIGN_OR_RETURN(assembly->engine_,
                   EngineThread::Create(EngineOptionsOf(config),
                                        {.vocab_size = checkpoint.spec().vocab_size,
                                         .context_tokens_max = loaded.context_tokens},
                                        std::move(loaded.executor), clock));
  ASSIGN_OR_RETURN(assembly->text_,
                   TextService::Create({.limits = {.priority_max = config.server().priority_max()},
                                        .tenants = TenantSourceOf(config)},
                                       std::move(model), *assembly->engine_, clock));
  return assembly;
}

}  // namespace polysil
