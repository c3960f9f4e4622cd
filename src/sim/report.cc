#include "sim/report.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <iterator>
#include <string_view>

namespace polysil {
namespace {

namespace json = boost::json;

constexpr double kNsPerSecond = 1e9;

double Seconds(int64_t ns) {
  return static_cast<double>(ns) / kNsPerSecond;
}

double Share(double part, double whole) {
  return whole > 0.0 ? part / whole : 0.0;
}

json::object LatencyJson(const LatencyHistogram& latency) {
  return {{"count", latency.total()},
          {"p50_s", Seconds(latency.PercentileNs(0.5))},
          {"p90_s", Seconds(latency.PercentileNs(0.9))},
          {"p99_s", Seconds(latency.PercentileNs(0.99))}};
}

json::object BinJson(const Timeline::Bin& bin, int64_t begin_ns) {
  return {{"begin_s", Seconds(begin_ns)},
          {"blocks_used", bin.MeanOf(bin.blocks_used)},
          {"blocks_cached", bin.MeanOf(bin.blocks_cached)},
          {"running", bin.MeanOf(bin.running)},
          {"waiting", bin.MeanOf(bin.waiting)},
          {"time_to_first_token", LatencyJson(bin.time_to_first_token)},
          {"inter_token", LatencyJson(bin.inter_token)}};
}

std::string LatencyLine(std::string_view name, const LatencyHistogram& latency) {
  return fmt::format("{:<24}p50 {:.3f} s, p90 {:.3f} s, p99 {:.3f} s\n", name,
                     Seconds(latency.PercentileNs(0.5)), Seconds(latency.PercentileNs(0.9)),
                     Seconds(latency.PercentileNs(0.99)));
}

}  // namespace

std::string TableOf(const Simulation& simulation) {
  const EngineStats stats = simulation.stats();
  const Clients& clients = simulation.clients();
  const SimExecutorCounts& device = simulation.device().counts();
  const double seconds = Seconds(simulation.now_ns());
  std::string table;
  const auto out = std::back_inserter(table);
  fmt::format_to(out, "{:<24}{}\n", "plan", simulation.description());
  fmt::format_to(out, "{:<24}{}, {:.1f} s of virtual time\n", "ticks", simulation.ticks(), seconds);
  fmt::format_to(out,
                 "{:<24}{}: {} length, {} stop, {} cancelled, {} deadline, {} error, {} refused\n",
                 "requests", clients.calls_total(), stats.requests_length, stats.requests_stop,
                 stats.requests_cancelled, stats.requests_deadline, stats.requests_error,
                 stats.requests_refused);
  fmt::format_to(out, "{:<24}{} prompt ({:.1f} % of those looked up found), {} output\n", "tokens",
                 clients.prompt_tokens(),
                 100.0 * Share(static_cast<double>(stats.prefix_cache_hit_tokens),
                               static_cast<double>(stats.prefix_cache_query_tokens)),
                 clients.output_tokens());
  fmt::format_to(out,
                 "{:<24}{}, device busy {:.1f} %, padding {:.1f} % of tokens, {} preemptions\n",
                 "steps", device.steps, 100.0 * Share(Seconds(device.busy_ns), seconds),
                 100.0 * Share(static_cast<double>(device.tokens_padding),
                               static_cast<double>(device.tokens + device.tokens_padding)),
                 stats.preemptions);
  table += LatencyLine("time to first token", clients.time_to_first_token());
  table += LatencyLine("between tokens", clients.inter_token());
  table += LatencyLine("whole request", clients.duration());
  return table;
}

std::string JsonOf(const Simulation& simulation) {
  const EngineStats stats = simulation.stats();
  const Clients& clients = simulation.clients();
  const SimExecutorCounts& device = simulation.device().counts();
  json::object report = {{"plan", simulation.description()},
                         {"ticks", simulation.ticks()},
                         {"virtual_s", Seconds(simulation.now_ns())},
                         {"requests",
                          {{"total", clients.calls_total()},
                           {"length", stats.requests_length},
                           {"stop", stats.requests_stop},
                           {"cancelled", stats.requests_cancelled},
                           {"deadline", stats.requests_deadline},
                           {"error", stats.requests_error},
                           {"refused", stats.requests_refused}}},
                         {"prompt_tokens", clients.prompt_tokens()},
                         {"output_tokens", clients.output_tokens()},
                         {"prefix_cache_query_tokens", stats.prefix_cache_query_tokens},
                         {"prefix_cache_hit_tokens", stats.prefix_cache_hit_tokens},
                         {"preemptions", stats.preemptions},
                         {"kv_blocks", stats.kv_blocks_total},
                         {"steps", device.steps},
                         {"step_tokens", device.tokens},
                         {"step_padding_tokens", device.tokens_padding},
                         {"device_busy_s", Seconds(device.busy_ns)},
                         {"time_to_first_token", LatencyJson(clients.time_to_first_token())},
                         {"inter_token", LatencyJson(clients.inter_token())},
                         {"duration", LatencyJson(clients.duration())}};
  if (const Timeline* timeline = simulation.timeline()) {
    json::array bins;
    for (size_t i = 0; i < timeline->bins().size(); ++i) {
      bins.push_back(BinJson(timeline->bins()[i], static_cast<int64_t>(i) * timeline->bin_ns()));
    }
    report["bin_s"] = Seconds(timeline->bin_ns());
    report["bins"] = std::move(bins);
  }
  return json::serialize(report) + "\n";
}

}  // namespace polysil
