// RandomWorkload: calls drawn from a seed. Prompts come in families, so that prefixes are shared
// and part at every offset; some clients cancel, stop, set deadlines, return with the conversation
// so far, or ask for what can never be served.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/random.h"
#include "sim/workload.h"

namespace polysil {

struct RandomWorkloadOptions {
  int32_t calls = 20;  // besides those that return
  double gap_mean_ns = 5e6;
  double gap_shape =
      1.0;  // of the Gamma distribution of gaps: 1 is Poisson, below 1 comes in bursts
  int32_t prompt_tokens_max = 40;
  int32_t output_tokens_max = 20;
  int32_t families = 3;
  int32_t vocab_size = 50;
  int32_t tokens_per_block = 4;
  int32_t sequences_max = 4;  // n
  int32_t context_tokens_max = 80;
  int64_t time_scale_ns = 10'000'000;  // about a client's patience
  // The share of calls that ...
  double cancelled = 0.0;
  double stopped = 0.0;
  double with_deadline = 0.0;
  double with_end_token = 0.0;
  double with_many = 0.0;  // n > 1
  double with_priority = 0.0;
  double with_salt = 0.0;
  double with_prompt_logprobs = 0.0;
  double returning = 0.0;
  double filling = 0.0;  // take nearly the whole pool for a while, before all others
  double invalid = 0.0;
  double with_retention = 0.0;
  double with_tenant = 0.0;
};

class RandomWorkload final : public Workload {
 public:
  RandomWorkload(const RandomWorkloadOptions& options, uint64_t seed);

  int64_t next_ns() const override;
  SimCall Take() override;
  void OnEnd(int64_t session, const Request& request, std::span<const TokenId> output,
             int64_t now_ns) override;

 private:
  SimCall DrawCall(int64_t now_ns);
  std::vector<TokenId> DrawPrompt();
  void DrawSampling(Request& request);
  void DrawPatience(SimCall& call, int64_t now_ns);
  void MakeInvalid(Request& request);
  void MakeFilling(SimCall& call, int64_t now_ns);
  int64_t DrawDelayNs();

  const RandomWorkloadOptions options_;
  Random random_;
  int64_t next_new_ns_ = 0;
  int32_t calls_left_;
  int64_t sessions_ = 0;
  // Those that come back, by time and session.
  absl::btree_map<std::pair<int64_t, int64_t>, SimCall> returning_;
};

}  // namespace polysil
