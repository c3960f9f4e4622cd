#include "sim/random_workload.h"

#include <algorithm>
#include <utility>

#include "engine/engine_core.h"
#include "polysil/base/check.h"
#include "sim/sim_executor.h"

namespace polysil {

RandomWorkload::RandomWorkload(const RandomWorkloadOptions& options, uint64_t seed)
    : options_(options), random_(seed), calls_left_(options.calls) {}

int64_t RandomWorkload::next_ns() const {
  const int64_t returning_ns = returning_.empty() ? kNever : returning_.begin()->first.first;
  return calls_left_ > 0 ? std::min(next_new_ns_, returning_ns) : returning_ns;
}

SimCall RandomWorkload::Take() {
  const int64_t now_ns = next_ns();
  CHECK(now_ns != kNever, "no call is left");
  if (!returning_.empty() && returning_.begin()->first.first == now_ns) {
    SimCall call = std::move(returning_.begin()->second);
    returning_.erase(returning_.begin());
    return call;
  }
  --calls_left_;
  next_new_ns_ += static_cast<int64_t>(
      random_.Gamma(options_.gap_shape, options_.gap_mean_ns / options_.gap_shape));
  return DrawCall(now_ns);
}

void RandomWorkload::OnEnd(int64_t session, const Request& request, std::span<const TokenId> output,
                           int64_t now_ns) {
  SimCall call;
  call.request = std::make_shared<Request>(request);
  std::vector<TokenId>& prompt = call.request->prompt;
  prompt.insert(prompt.end(), output.begin(), output.end());
  for (int32_t i = random_.Between(1, 2 * options_.tokens_per_block); i > 0; --i) {
    prompt.push_back(random_.Between(0, options_.vocab_size - 1));
  }
  if (static_cast<int32_t>(prompt.size()) >= options_.prompt_tokens_max) return;
  call.request->deadline_ns = 0;
  call.session = random_.Chance(0.7) ? session : -1;
  returning_.emplace(std::pair(now_ns + DrawDelayNs(), session), std::move(call));
}

SimCall RandomWorkload::DrawCall(int64_t now_ns) {
  SimCall call;
  call.request = std::make_shared<Request>();
  Request& request = *call.request;
  request.prompt = DrawPrompt();
  DrawSampling(request);
  if (random_.Chance(options_.with_many)) {
    request.sequences = random_.Between(1, options_.sequences_max);
  }
  if (random_.Chance(options_.with_end_token)) {
    request.end_token_ids = {random_.Between(0, options_.vocab_size - 1)};
  }
  if (random_.Chance(options_.with_priority)) request.priority = random_.Between(-2, 2);
  if (random_.Chance(options_.with_salt)) request.cache_salt = random_.Pick({"a", "b"});
  if (random_.Chance(options_.with_tenant)) request.tenant = random_.Pick({"x", "y", "z"});
  if (random_.Chance(options_.with_retention)) {
    request.retention = {
        {.tokens = random_.Between(1, options_.prompt_tokens_max), .keep_ns = 1 + DrawDelayNs()}};
  }
  DrawPatience(call, now_ns);
  if (random_.Chance(options_.returning) && request.sequences == 1) call.session = sessions_++;
  if (random_.Chance(options_.filling)) MakeFilling(call, now_ns);
  if (random_.Chance(options_.invalid)) MakeInvalid(request);
  return call;
}

// A prefix of a family, then tokens of its own; often ends at the edge of a block or beside it.
std::vector<TokenId> RandomWorkload::DrawPrompt() {
  const int32_t family = random_.Between(0, options_.families - 1);
  int32_t length = random_.Between(1, std::max(1, options_.prompt_tokens_max - 1));
  if (random_.Chance(0.3)) {
    const int32_t size = options_.tokens_per_block;
    length = std::clamp(length / size * size + random_.Between(-1, 1), 1,
                        std::max(1, options_.prompt_tokens_max - 1));
  }
  const int32_t shared = random_.Chance(0.3) ? length : random_.Between(0, length);
  std::vector<TokenId> prompt;
  prompt.reserve(static_cast<size_t>(length));
  for (int32_t i = 0; i < length; ++i) {
    const TokenId of_family = DrawToken(static_cast<uint64_t>(family), 0, i, options_.vocab_size);
    prompt.push_back(i < shared ? of_family : random_.Between(0, options_.vocab_size - 1));
  }
  return prompt;
}

void RandomWorkload::DrawSampling(Request& request) {
  SamplingParams& sampling = request.sampling;
  sampling.tokens_max = random_.Between(1, options_.output_tokens_max);
  sampling.tokens_min = random_.Between(0, std::min(4, sampling.tokens_max));
  sampling.seed = random_.Next();
  if (random_.Chance(options_.with_prompt_logprobs)) sampling.prompt_logprobs = 0;
}

void RandomWorkload::DrawPatience(SimCall& call, int64_t now_ns) {
  const int32_t tokens = call.request->sampling.tokens_max;
  if (random_.Chance(options_.cancelled)) {
    if (random_.Chance(0.5)) {
      call.cancel_ns = now_ns + DrawDelayNs();
    } else {
      call.cancel_after_tokens = random_.Between(1, tokens);
    }
  }
  if (random_.Chance(options_.stopped)) call.stop_after_tokens = random_.Between(1, tokens);
  if (random_.Chance(options_.with_deadline)) {
    call.request->deadline_ns = now_ns + 1 + DrawDelayNs();
  }
}

void RandomWorkload::MakeInvalid(Request& request) {
  switch (random_.Between(0, 4)) {
    case 0:
      request.prompt.clear();
      return;
    case 1:
      request.prompt.assign(static_cast<size_t>(options_.context_tokens_max), 0);
      return;
    case 2:
      request.prompt.back() = options_.vocab_size;
      return;
    case 3:
      request.sequences = options_.sequences_max + 1;
      return;
    default:
      request.sampling.tokens_max = 0;
  }
}

// What others need is refused to them while it lasts.
void RandomWorkload::MakeFilling(SimCall& call, int64_t now_ns) {
  Request& request = *call.request;
  request.prompt.resize(static_cast<size_t>(std::max(1, options_.prompt_tokens_max - 1)), 0);
  request.sampling.tokens_max = 2 * options_.output_tokens_max;
  request.priority = 2;
  call.cancel_ns = now_ns + 2 * DrawDelayNs();
  call.session = -1;
}

int64_t RandomWorkload::DrawDelayNs() {
  return static_cast<int64_t>(random_.Exponential(static_cast<double>(options_.time_scale_ns)));
}

}  // namespace polysil
