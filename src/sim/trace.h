// Trace: recorded requests in the Mooncake format, one JSON object a line:
//
//   {"timestamp": 3000, "input_length": 1200, "output_length": 52, "hash_ids": [0, 17, 18]}
//
// timestamp is in ms; hash_ids names each block of 512 prompt tokens (the last may be shorter) by
// its content and all before it, so equal ids are equal prefixes. TraceWorkload replays one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "sim/workload.h"

namespace polysil {

inline constexpr int32_t kTraceTokensPerBlock = 512;
inline constexpr int32_t kTraceVocabSize = 1 << 17;

struct TraceRequest {
  int64_t arrival_ns = 0;
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  std::vector<uint32_t> block_ids;
};

// In the order of arrival. A line that is not as above: INVALID_ARGUMENT that names it.
StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path);
// The prompt behind it: equal block ids give equal tokens, others do not.
std::vector<TokenId> TracePrompt(const TraceRequest& request);

class TraceWorkload final : public Workload {
 public:
  explicit TraceWorkload(std::vector<TraceRequest> requests) : requests_(std::move(requests)) {}

  int64_t next_ns() const override;
  SimCall Take() override;
  void OnEnd(int64_t /*session*/, const Request& /*request*/, std::span<const TokenId> /*output*/,
             int64_t /*now_ns*/) override {}

 private:
  const std::vector<TraceRequest> requests_;
  size_t next_ = 0;
};

}  // namespace polysil
