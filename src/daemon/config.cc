#include "daemon/config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "base/log.h"

namespace polysil {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kFileBytesMax = 1 << 20;

// "serve.yaml:3" or "--set kv.blocks=x" (no line in a setting).
struct Place {
  std::string_view origin;
  bool lines = true;

  std::string At(const YAML::Node& node) const {
    if (!lines || node.Mark().is_null()) return std::string(origin);
    return fmt::format("{}:{}", origin, node.Mark().line + 1);
  }
};

std::string KnownKeys(const Descriptor& type) {
  std::string keys;
  for (int i = 0; i < type.field_count(); ++i) {
    if (i > 0) keys += ", ";
    keys += type.field(i)->name();
  }
  return keys;
}

std::string_view TypeWord(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_INT32:
      return "a whole number";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number";
    default:
      return "a text";
  }
}

// False where the scalar is not of the field's type.
bool SetScalar(const YAML::Node& node, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  // A quoted scalar ("16") has the tag "!": text, not a number.
  const bool quoted = node.Tag() == "!";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: {
      bool value = false;
      if (quoted || !YAML::convert<bool>::decode(node, value)) return false;
      reflection.SetBool(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      int32_t value = 0;
      if (quoted || !YAML::convert<int32_t>::decode(node, value)) return false;
      reflection.SetInt32(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      if (quoted || !YAML::convert<double>::decode(node, value) || !std::isfinite(value)) {
        return false;
      }
      reflection.SetDouble(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, &field, node.Scalar());
      return true;
    default:
      return false;
  }
}

// The schema is two levels deep, so the recursion is, too.
Status MergeNode(const YAML::Node& node, const Place& place, const std::string& path,
                 Message& message) {
  if (node.IsNull()) return OkStatus();
  if (!node.IsMap()) {
    return InvalidArgument("{}: {} must be a map of keys ({})", place.At(node),
                           path.empty() ? "the configuration" : path,
                           KnownKeys(*message.GetDescriptor()));
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const std::string full = path.empty() ? key : path + "." + key;
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) {
      return InvalidArgument("{}: unknown key {}; known here: {}", place.At(entry.first), full,
                             KnownKeys(*message.GetDescriptor()));
    }
    if (!seen.insert(key).second) {
      return InvalidArgument("{}: key {} is given twice", place.At(entry.first), full);
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      RETURN_IF_ERROR(MergeNode(entry.second, place, full,
                                *message.GetReflection()->MutableMessage(&message, field)));
      continue;
    }
    if (!entry.second.IsScalar() || !SetScalar(entry.second, *field, message)) {
      return InvalidArgument("{}: {} must be {}, not '{}'", place.At(entry.second), full,
                             TypeWord(*field),
                             entry.second.IsScalar() ? entry.second.Scalar() : "a list or map");
    }
  }
  return OkStatus();
}

Status CheckRange(std::string_view key, double value, double low, double high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument("{} is {}; it must be from {} to {}", key, value, low, high);
}

Status CheckChoice(std::string_view key, const std::string& value,
                   std::initializer_list<std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return OkStatus();
  return InvalidArgument("{} is '{}'; use one of: {}", key, value, fmt::join(choices, ", "));
}

void FillDefaults(v1::Config& config) {
  v1::KvConfig& kv = *config.mutable_kv();
  if (!kv.has_block_tokens()) kv.set_block_tokens(16);
  if (!kv.has_prefix_cache()) kv.set_prefix_cache(true);
  if (!kv.has_dtype()) kv.set_dtype("f16");
  if (!kv.has_host_blocks()) kv.set_host_blocks(0);
  v1::SchedulerConfig& scheduler = *config.mutable_scheduler();
  if (!scheduler.has_step_tokens_max()) scheduler.set_step_tokens_max(256);
  if (!scheduler.has_itl_target_ms()) scheduler.set_itl_target_ms(50);
  if (!scheduler.has_sequences_max()) scheduler.set_sequences_max(64);
  if (!scheduler.has_queue_max()) scheduler.set_queue_max(256);
  if (!scheduler.has_queue_tokens_max()) scheduler.set_queue_tokens_max(1048576);
  if (!scheduler.has_output_token_weight()) scheduler.set_output_token_weight(2);
  if (!scheduler.has_cached_token_weight()) scheduler.set_cached_token_weight(0.1);
  v1::ServerConfig& server = *config.mutable_server();
  if (!server.has_http()) server.set_http("127.0.0.1:8080");
  if (!server.has_grpc()) server.set_grpc("127.0.0.1:50051");
  if (!server.has_drain_seconds()) server.set_drain_seconds(30);
  if (!server.has_http_threads()) server.set_http_threads(2);
  if (!server.has_tenants()) server.set_tenants("none");
  if (!server.has_priority_max()) server.set_priority_max(0);
  v1::CpuConfig& cpu = *config.mutable_cpu();
  if (!cpu.has_threads()) cpu.set_threads(0);
  if (!cpu.has_activations()) cpu.set_activations("q8");
  v1::LogConfig& log = *config.mutable_log();
  if (!log.has_level()) log.set_level("info");
}

Status CheckRanges(const v1::Config& config) {
  const v1::ModelConfig& model = config.model();
  if (model.has_name() && (model.name().empty() || model.name().size() > 256)) {
    return InvalidArgument("model.name has {} bytes; it must have from 1 to 256",
                           model.name().size());
  }
  if (model.has_context_tokens()) {
    RETURN_IF_ERROR(CheckRange("model.context_tokens", model.context_tokens(), 2, 1 << 24));
  }
  const v1::KvConfig& kv = config.kv();
  if (kv.has_blocks()) RETURN_IF_ERROR(CheckRange("kv.blocks", kv.blocks(), 2, 1 << 24));
  RETURN_IF_ERROR(CheckRange("kv.host_blocks", kv.host_blocks(), 0, 1 << 24));
  if (kv.host_blocks() > 0 && !kv.prefix_cache()) {
    return InvalidArgument("kv.host_blocks is {}, which needs kv.prefix_cache: true",
                           kv.host_blocks());
  }
  constexpr std::array<int32_t, 5> kBlockTokens = {8, 16, 32, 64, 128};
  if (std::find(kBlockTokens.begin(), kBlockTokens.end(), kv.block_tokens()) ==
      kBlockTokens.end()) {
    return InvalidArgument("kv.block_tokens is {}; use one of: {}", kv.block_tokens(),
                           fmt::join(kBlockTokens, ", "));
  }
  RETURN_IF_ERROR(CheckChoice("kv.dtype", kv.dtype(), {"f16", "f32", "int8"}));
  const v1::SchedulerConfig& scheduler = config.scheduler();
  RETURN_IF_ERROR(CheckRange("scheduler.step_tokens_max", scheduler.step_tokens_max(), 1, 65536));
  RETURN_IF_ERROR(CheckRange("scheduler.sequences_max", scheduler.sequences_max(), 1, 4096));
  if (scheduler.sequences_max() > scheduler.step_tokens_max()) {
    return InvalidArgument(
        "scheduler.sequences_max is {}, more than scheduler.step_tokens_max, {}: a decoding "
        "sequence "
        "takes one token of each step",
        scheduler.sequences_max(), scheduler.step_tokens_max());
  }
  RETURN_IF_ERROR(CheckRange("scheduler.queue_max", scheduler.queue_max(), 0, 1 << 20));
  RETURN_IF_ERROR(
      CheckRange("scheduler.queue_tokens_max", scheduler.queue_tokens_max(), 1, 1 << 30));
  RETURN_IF_ERROR(CheckRange("scheduler.itl_target_ms", scheduler.itl_target_ms(), 0, 60000));
  RETURN_IF_ERROR(
      CheckRange("scheduler.output_token_weight", scheduler.output_token_weight(), 0, 1000));
  RETURN_IF_ERROR(
      CheckRange("scheduler.cached_token_weight", scheduler.cached_token_weight(), 0, 1000));
  const v1::ServerConfig& server = config.server();
  RETURN_IF_ERROR(CheckRange("server.drain_seconds", server.drain_seconds(), 0, 86400));
  RETURN_IF_ERROR(CheckRange("server.http_threads", server.http_threads(), 1, 64));
  RETURN_IF_ERROR(CheckChoice("server.tenants", server.tenants(), {"none", "api_key", "header"}));
  RETURN_IF_ERROR(CheckRange("server.priority_max", server.priority_max(), 0, 100));
  if (server.http() == "off" && server.grpc() == "off") {
    return InvalidArgument("server.http and server.grpc are both off; nothing would be served");
  }
  RETURN_IF_ERROR(CheckRange("cpu.threads", config.cpu().threads(), 0, 1024));
  RETURN_IF_ERROR(CheckChoice("cpu.activations", config.cpu().activations(), {"q8", "f32"}));
  return ParseLogLevel(config.log().level()).status();
}

Status Merge(std::string_view yaml, const Place& place, v1::Config& config) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(yaml));
    if (documents.size() > 1) {
      return InvalidArgument("{}: {} YAML documents; one is read", place.origin, documents.size());
    }
    if (documents.empty()) return OkStatus();
    return MergeNode(documents[0], place, "", config);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}:{}: {}", place.origin, error.mark.line + 1, error.msg);
  }
}

}  // namespace

Status MergeYaml(std::string_view yaml, std::string_view origin, v1::Config& config) {
  return Merge(yaml, {.origin = origin}, config);
}

Status MergeFile(const std::string& path, v1::Config& config) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("{}: cannot be read; give the path of a YAML file", path);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) return NotFound("{}: cannot be read", path);
  if (file.gcount() > static_cast<std::streamsize>(kFileBytesMax)) {
    return InvalidArgument("{}: larger than {} bytes", path, kFileBytesMax);
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return MergeYaml(text, path, config);
}

Status MergeSetting(std::string_view setting, v1::Config& config) {
  const size_t equals = setting.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return InvalidArgument("--set {}: write key=value, as in --set kv.blocks=1024", setting);
  }
  const std::string_view key = setting.substr(0, equals);
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) {
    return InvalidArgument("--set {}: write section.key=value; sections: {}", setting,
                           KnownKeys(*v1::Config::descriptor()));
  }
  const std::string origin = fmt::format("--set {}", setting);
  // Built as a tree, not as YAML text, so that a value cannot smuggle in further keys.
  try {
    YAML::Node value = YAML::Load(std::string(setting.substr(equals + 1)));
    if (value.IsNull()) value = YAML::Node(std::string());
    YAML::Node root;
    root[std::string(key.substr(0, dot))][std::string(key.substr(dot + 1))] = value;
    return MergeNode(root, {.origin = origin, .lines = false}, "", config);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}: {}", origin, error.msg);
  }
}

StatusOr<v1::Config> Complete(v1::Config config) {
  FillDefaults(config);
  RETURN_IF_ERROR(CheckRanges(config));
  return config;
}

}  // namespace polysil
