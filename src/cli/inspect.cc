#include <fmt/core.h>
#include <fmt/format.h>

#include <map>
#include <string>

#include "cli/commands.h"
#include "model/checkpoint.h"

namespace polysil {
namespace {

constexpr size_t kTemplateCharsShown = 400;

void PrintTensors(const CheckpointSummary& summary) {
  std::map<std::string, std::pair<int64_t, int64_t>> by_type;  // type -> tensors, bytes
  for (const TensorListing& tensor : summary.tensors) {
    auto& [tensors, bytes] = by_type[tensor.type];
    tensors += 1;
    bytes += tensor.bytes;
  }
  fmt::print("tensors: {}\n", summary.tensors.size());
  for (const auto& [type, totals] : by_type) {
    fmt::print("  {:<8} {:>5} tensors {:>14} bytes\n", type, totals.first, totals.second);
  }
  for (const TensorListing& tensor : summary.tensors) {
    fmt::print("  {:<44} {:<8} [{}] {} bytes\n", tensor.name, tensor.type,
               fmt::join(tensor.shape, ", "), tensor.bytes);
  }
}

}  // namespace

Status RunInspect(const std::string& path) {
  ASSIGN_OR_RETURN(const CheckpointSummary summary, InspectCheckpoint(path));
  fmt::print("format: {}\narchitecture: {}\nname: {}\nbytes: {}\nsha256: {}\n", summary.format,
             summary.architecture, summary.model_name, summary.bytes_total, summary.digest);
  fmt::print("runnable: {}\n", summary.runnable.ok() ? "yes" : "no: " + Message(summary.runnable));
  fmt::print("tokenizer: {}\n", summary.tokenizer);
  for (const ChatTemplateSource& source : summary.chat_templates) {
    fmt::print("chat template {} ({} bytes):\n{}{}\n", source.name, source.source.size(),
               source.source.substr(0, kTemplateCharsShown),
               source.source.size() > kTemplateCharsShown ? "..." : "");
  }
  fmt::print("metadata: {}\n", summary.metadata.size());
  for (const auto& [key, value] : summary.metadata) fmt::print("  {} = {}\n", key, value);
  PrintTensors(summary);
  return OkStatus();
}

}  // namespace polysil
