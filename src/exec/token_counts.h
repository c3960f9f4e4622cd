// TokenCounts: which tokens a sequence has seen and how often it chose each, for the sampler's
// penalties. One per sequence that has a penalty; owned by ModelRunner, on the worker thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "polysil/base/ids.h"

namespace polysil {

class TokenCounts final {
 public:
  struct Entry {
    TokenId id = 0;
    int32_t outputs = 0;  // 0: only in the prompt
  };

  explicit TokenCounts(std::span<const TokenId> prompt);
  void AddOutput(TokenId id);

  // Each token of prompt and output once, by rising id.
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace polysil
