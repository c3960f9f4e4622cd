#include "bench/load_options.h"

#include <cmath>
#include <string_view>

namespace polysil {
namespace {

constexpr int32_t kTokensMax = 1 << 24;
constexpr double kSecondsMax = 1e7;

Status CheckNumber(std::string_view flag, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return OkStatus();
  return InvalidArgument("--{} is {}, must be {} to {}", flag, value, low, high);
}

}  // namespace

Status Validate(const LoadOptions& options) {
  if (!options.url.starts_with("http://") && !options.url.starts_with("https://")) {
    return InvalidArgument("--url is '{}', must begin with http:// or https://", options.url);
  }
  if ((options.rate > 0) + (options.concurrency > 0) + !options.trace_path.empty() != 1) {
    return InvalidArgument("one of --rate, --concurrency and --trace says when requests are sent");
  }
  const bool has_file = !options.prompts_path.empty();
  if (has_file + (options.input_tokens > 0) + !options.trace_path.empty() > 1) {
    return InvalidArgument("--prompts, --input-tokens and --trace each say what is sent: give one");
  }
  if (!options.trace_path.empty() && (options.turns != 1 || options.shared_prefix_tokens != 0)) {
    return InvalidArgument(
        "a trace has its own sessions and prefixes: no --turns with it, and no "
        "--shared-prefix-tokens");
  }
  RETURN_IF_ERROR(CheckNumber("rate", options.rate, 0, 1e6));
  RETURN_IF_ERROR(CheckNumber("burstiness", options.burstiness, 1e-3, 1e6));
  RETURN_IF_ERROR(CheckNumber("concurrency", options.concurrency, 0, 10'000));
  RETURN_IF_ERROR(CheckNumber("speed", options.speed, 1e-6, 1e6));
  RETURN_IF_ERROR(CheckNumber("requests", static_cast<double>(options.requests), 0,
                              static_cast<double>(kLoadRequestsMax)));
  RETURN_IF_ERROR(CheckNumber("duration", options.duration_s, 0, kSecondsMax));
  RETURN_IF_ERROR(CheckNumber("input-tokens", options.input_tokens, 0, kTokensMax));
  RETURN_IF_ERROR(CheckNumber("shared-prefix-tokens", options.shared_prefix_tokens, 0, kTokensMax));
  RETURN_IF_ERROR(CheckNumber("turns", options.turns, 1, 10'000));
  RETURN_IF_ERROR(CheckNumber("output-tokens", options.output_tokens, 1, kTokensMax));
  RETURN_IF_ERROR(CheckNumber("cancel-after-tokens", options.cancel_after_tokens, 0, kTokensMax));
  RETURN_IF_ERROR(CheckNumber("cancel-share", options.cancel_share, 0, 1));
  RETURN_IF_ERROR(CheckNumber("ttft-limit-ms", options.ttft_limit_ms, 0, 1e9));
  RETURN_IF_ERROR(CheckNumber("tpot-limit-ms", options.tpot_limit_ms, 0, 1e9));
  return CheckNumber("timeout", options.timeout_s, 1e-3, 1e6);
}

}  // namespace polysil
