// Workload: what the simulated clients ask for, and when. A seam: drawn at random, or a recorded
// trace. Used by Simulation alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "polysil/core/request.h"

namespace polysil {

// One call of a client and how the client behaves.
struct SimCall {
  std::shared_ptr<Request> request;  // its id is set when it is submitted
  std::optional<int64_t> cancel_ns;  // the client goes away at this time
  int32_t cancel_after_tokens = 0;   // ... or once it has so many tokens; 0: not so
  int32_t stop_after_tokens = 0;     // finds its stop string in each sequence there; 0: never
  int64_t session = -1;              // of those that return; -1: of none
};

class Workload {
 public:
  virtual ~Workload() = default;
  // When the next call comes; kNever: none comes, unless a session returns.
  virtual int64_t next_ns() const = 0;
  // That call. Only where there is one.
  virtual SimCall Take() = 0;
  // A call of a session has ended well with this output; it may return with a longer prompt.
  virtual void OnEnd(int64_t session, const Request& request, std::span<const TokenId> output,
                     int64_t now_ns) = 0;
};

}  // namespace polysil
