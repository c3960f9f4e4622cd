#include "sim/core_checks.h"

namespace polysil {

std::optional<Violation> CoreChecks::Check(int64_t tick, const EngineCore& core,
                                           const EngineStats& stats, const Clients& clients) {
  if (tick % integrity_every_ == 0) {
    const Status status = core.CheckIntegrity();
    if (!status.ok()) return Violation{"counts exact", Message(status)};
  }
  std::optional<Violation> violation = CheckBlocks(core, stats);
  if (!violation) violation = CheckRequests(stats, clients);
  if (!violation) violation = CheckCounters(stats);
  return violation;
}

std::optional<Violation> CoreChecks::CheckBlocks(const EngineCore& core, const EngineStats& stats) {
  if (stats.kv_blocks_used < 0 || stats.kv_blocks_cached < 0 ||
      stats.kv_blocks_used + stats.kv_blocks_cached > stats.kv_blocks_total ||
      stats.kv_blocks_total != core.options().kv.blocks || stats.kv_host_blocks_used < 0 ||
      stats.kv_host_blocks_used > stats.kv_host_blocks_total) {
    return Violation{
        "free + held = total",
        fmt::format("{} blocks used, {} cached of {}, the pool has {}", stats.kv_blocks_used,
                    stats.kv_blocks_cached, stats.kv_blocks_total, core.options().kv.blocks)};
  }
  if (core.sequences_live() == 0 && core.steps_in_flight() == 0 && stats.kv_blocks_used != 0) {
    return Violation{"blocks come back",
                     fmt::format("nobody is left and {} blocks are used", stats.kv_blocks_used)};
  }
  return std::nullopt;
}

std::optional<Violation> CoreChecks::CheckRequests(const EngineStats& stats,
                                                   const Clients& clients) {
  const int64_t live = stats.requests_running + stats.requests_waiting;
  const int64_t ended =
      static_cast<int64_t>(stats.requests_stop + stats.requests_length + stats.requests_cancelled +
                           stats.requests_deadline + stats.requests_error + stats.requests_refused);
  if (stats.requests_running >= 0 && stats.requests_waiting >= 0 && live == clients.calls_live() &&
      live + ended == clients.calls_total()) {
    return std::nullopt;
  }
  return Violation{
      "each request is counted once",
      fmt::format("{} run, {} wait, {} have ended; of {} calls {} live", stats.requests_running,
                  stats.requests_waiting, ended, clients.calls_total(), clients.calls_live())};
}

std::optional<Violation> CoreChecks::CheckCounters(const EngineStats& stats) {
  const std::array<uint64_t, kCounters> counters = {
      stats.requests_stop,           stats.requests_length,   stats.requests_cancelled,
      stats.requests_deadline,       stats.requests_error,    stats.requests_refused,
      stats.prompt_tokens,           stats.generation_tokens, stats.prefix_cache_query_tokens,
      stats.prefix_cache_hit_tokens, stats.preemptions,       stats.steps};
  for (size_t i = 0; i < kCounters; ++i) {
    if (counters[i] < counters_[i]) {
      return Violation{"counters never fall",
                       fmt::format("counter {} fell from {} to {}", i, counters_[i], counters[i])};
    }
  }
  counters_ = counters;
  if (stats.prefix_cache_hit_tokens > stats.prefix_cache_query_tokens) {
    return Violation{"counters never fall",
                     fmt::format("{} tokens were found of {} looked up",
                                 stats.prefix_cache_hit_tokens, stats.prefix_cache_query_tokens)};
  }
  return std::nullopt;
}

}  // namespace polysil
