#include <fmt/core.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/text_input.h"
#include "daemon/assemble.h"
#include "polysil/base/clock.h"

namespace polysil {
namespace {

constexpr int32_t kTokensMaxDefault = 128;

}  // namespace

Status RunGenerate(const GenerateArgs& args, const v1::Config& config) {
  RETURN_IF_ERROR(CheckUtf8("the prompt", args.prompt));
  const SteadyClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<Assembly> assembly,
                   Assembly::Create(args.model_path, config, clock));
  TextCall call;
  call.prompts = {args.prompt};
  call.sampling.temperature = args.temperature;
  call.seed = args.seed;
  call.tokens_max = args.tokens_max.value_or(kTokensMaxDefault);
  fmt::print("{}", args.prompt);
  ASSIGN_OR_RETURN(const ConsoleAnswer answer, RunToConsole(assembly->text(), std::move(call)));
  fmt::print("\n");
  const double decode_seconds = answer.seconds_total - answer.seconds_to_first_token;
  const auto decoded = static_cast<double>(answer.usage.output_tokens - 1);
  fmt::print(stderr,
             "{} prompt tokens, {} generated; first token after {:.3f} s, then {:.1f} tokens/s\n",
             answer.usage.prompt_tokens, answer.usage.output_tokens, answer.seconds_to_first_token,
             decode_seconds > 0 && decoded > 0 ? decoded / decode_seconds : 0.0);
  return OkStatus();
}

}  // namespace polysil
