#include "bench/offline_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <iterator>

namespace polysil {
namespace {

namespace json = boost::json;

constexpr double kGiga = 1e9;

json::value RateJson(const RateSamples& rate) {
  if (rate.empty()) return nullptr;  // the instruction set has no such thing
  return json::object{{"best", rate.best() / kGiga},
                      {"median", rate.median() / kGiga},
                      {"worst", rate.worst() / kGiga}};
}

// "412.0 GOP/s"; "none" where there is nothing to measure.
std::string RateText(const RateSamples& rate, std::string_view unit) {
  return !rate.empty() ? fmt::format("{:.1f} {}", rate.best() / kGiga, unit) : "none";
}

json::object ResultJson(const OfflineResult& result, const CpuBounds& bounds) {
  const OfflineRow& row = result.row;
  const double bound = result.BoundRate(bounds);
  json::object object = {{"name", row.Name()},
                         {"kind", row.streams == 0 ? "prompt" : "generate"},
                         {"tokens", row.tokens},
                         {"depth", row.depth},
                         {"streams", row.streams},
                         {"tok_s",
                          {{"median", result.Median()},
                           {"min", result.Min()},
                           {"max", result.Max()},
                           {"samples", json::value_from(result.rates)}}},
                         {"bytes", result.work.bytes},
                         {"int8_operations", result.work.int8_operations},
                         {"float_operations", result.work.float_operations},
                         {"work_tokens", result.work_tokens}};
  object["bound_tok_s"] = bound;
  object["bound_by"] = BoundOf(result.work, bounds).by_memory ? "memory" : "arithmetic";
  object["fraction"] = result.Median() / bound;
  return object;
}

}  // namespace

std::string TableOf(const OfflineReport& report) {
  const CpuBounds& bounds = report.bounds;
  std::string table;
  const auto out = std::back_inserter(table);
  fmt::format_to(out, "{:<9}{}, {}\n", "model", report.model, report.weight_types);
  fmt::format_to(out, "{:<9}{:.1f} MB of weights a step, {:.1f} kB of KV a token\n", "reads",
                 report.step_bytes / 1e6, report.kv_token_bytes / 1e3);
  fmt::format_to(out, "{:<9}{}\n", "device", report.device);
  fmt::format_to(out, "{:<9}read {} (one thread {}), int8 {}, fp32 {}\n", "bounds",
                 RateText(bounds.read_all, "GB/s"), RateText(bounds.read_one, "GB/s"),
                 RateText(bounds.int8_operations, "GOP/s"),
                 RateText(bounds.float_operations, "GFLOP/s"));
  fmt::format_to(out, "\n{:<20} {:>9}  {:<17} {:>9}  {:<10} {:>8}\n", "row", "tok/s", "min..max",
                 "bound", "by", "reached");
  for (const OfflineResult& result : report.results) {
    const double bound = result.BoundRate(bounds);
    fmt::format_to(out, "{:<20} {:>9.1f}  {:<17} {:>9.0f}  {:<10} {:>6.1f} %\n", result.row.Name(),
                   result.Median(), fmt::format("{:.1f}..{:.1f}", result.Min(), result.Max()),
                   bound, BoundOf(result.work, bounds).by_memory ? "memory" : "arithmetic",
                   100.0 * result.Median() / bound);
  }
  return table;
}

std::string JsonOf(const OfflineReport& report) {
  json::array rows;
  for (const OfflineResult& result : report.results) {
    rows.push_back(ResultJson(result, report.bounds));
  }
  const json::object object = {{"model", report.model},
                               {"weight_types", report.weight_types},
                               {"device", report.device},
                               {"numeric_class", report.numeric_class},
                               {"threads", report.bounds.threads},
                               {"step_weight_bytes", report.step_bytes},
                               {"kv_token_bytes", report.kv_token_bytes},
                               {"bounds",
                                {{"read_one_gb_s", RateJson(report.bounds.read_one)},
                                 {"read_all_gb_s", RateJson(report.bounds.read_all)},
                                 {"int8_gop_s", RateJson(report.bounds.int8_operations)},
                                 {"float_gflop_s", RateJson(report.bounds.float_operations)}}},
                               {"rows", std::move(rows)}};
  return json::serialize(object) + "\n";
}

}  // namespace polysil
