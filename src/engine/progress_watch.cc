#include "engine/progress_watch.h"

#include <fmt/format.h>

namespace polysil {

bool ProgressWatch::StepIsStuck(int64_t now_ns) const {
  return step_.IsOlderThan(stall_ns_, now_ns) &&
         now_ns - stall_ns_ > beat_ns_.load(std::memory_order_relaxed);
}

std::string ProgressWatch::Stall(int64_t now_ns) const {
  const double seconds = static_cast<double>(stall_ns_) / 1e9;
  if (StepIsStuck(now_ns)) {
    return fmt::format("the executor has made no progress with a step for more than {} s", seconds);
  }
  if (tick_.IsOlderThan(stall_ns_, now_ns) || inbox_.IsOlderThan(stall_ns_, now_ns)) {
    return fmt::format("the engine thread has been stuck for more than {} s", seconds);
  }
  if (delivery_.IsOlderThan(stall_ns_, now_ns)) {
    return fmt::format("a client's sink has blocked the output thread for more than {} s", seconds);
  }
  return {};
}

}  // namespace polysil
