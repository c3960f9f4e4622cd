#include "sim/tick_text.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace polysil {
namespace {

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  return "?";
}

}  // namespace

std::string TextOf(int64_t now_ns, const EngineInputs& inputs) {
  std::string text = fmt::format("at {:.3f} ms", static_cast<double>(now_ns) / 1e6);
  const auto out = std::back_inserter(text);
  for (const StepResult& result : inputs.results) {
    fmt::format_to(out, "; result {}{}", result.step_id, result.status.ok() ? "" : " failed");
    for (const SequenceResult& row : result.sequences) {
      if (!row.status.ok()) fmt::format_to(out, " (row of sequence {} failed)", row.id.value);
    }
  }
  for (const SubmittedRequest& submitted : inputs.submitted) {
    const Request& request = *submitted.request;
    fmt::format_to(out, "; submit {} ({} tokens, at most {} more, n {}, priority {})",
                   request.id.value, request.prompt.size(), request.sampling.tokens_max,
                   request.sequences, request.priority);
  }
  for (const RequestId id : inputs.cancelled) fmt::format_to(out, "; cancel {}", id.value);
  for (const SequenceStop& stop : inputs.stopped) {
    fmt::format_to(out, "; stop {}/{}", stop.request.value, stop.sequence_index);
  }
  if (inputs.drain_deadline_ns) {
    fmt::format_to(out, "; drain by {:.3f} ms",
                   static_cast<double>(*inputs.drain_deadline_ns) / 1e6);
  }
  return text;
}

std::string TextOf(const EngineActions& actions) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const SequenceOutput& output : actions.outputs) {
    fmt::format_to(out, "; output {}/{} +{}", output.request.value, output.sequence_index,
                   output.tokens.size());
    if (output.finish) fmt::format_to(out, " {}", NameOf(*output.finish));
    if (!output.status.ok()) fmt::format_to(out, " ({})", Message(output.status));
  }
  for (const ScheduledStep& step : actions.steps) {
    fmt::format_to(out, "; step {}:", step.step_id);
    for (const KvCopy& copy : step.copies) {
      fmt::format_to(out, " {}{}>{}{}", copy.from.tier == KvTier::kHost ? "host " : "",
                     copy.from.block.value, copy.to.tier == KvTier::kHost ? "host " : "",
                     copy.to.block.value);
    }
    for (const ScheduledSequence& row : step.sequences) {
      fmt::format_to(out, " {}[{}, {}){}", row.id.value, row.tokens_computed,
                     row.tokens_computed + row.tokens, row.sample ? "+" : "");
    }
    for (const SequenceStart& start : step.started) {
      fmt::format_to(out, "; sequence {} is {}/{}", start.id.value, start.request->id.value,
                     start.sequence_index);
    }
  }
  return text;
}

}  // namespace polysil
