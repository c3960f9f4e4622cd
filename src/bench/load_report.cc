#include "bench/load_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <iterator>
#include <string_view>

namespace polysil {
namespace {

namespace json = boost::json;

constexpr size_t kErrorSamplesMax = 3;
constexpr double kPercents[] = {50, 90, 95, 99, 99.9};
// A client that is later than this, or that leaves its core no more time than this, is no longer
// what it says it is.
constexpr double kLagMsMax = 10.0;
constexpr double kCpuShareMax = 0.8;

void AddMetric(json::object& object, std::string_view name, Measurements& values) {
  object[fmt::format("mean_{}_ms", name)] = values.Mean();
  object[fmt::format("median_{}_ms", name)] = values.Percentile(50);
  object[fmt::format("std_{}_ms", name)] = values.Deviation();
  for (const double percent : kPercents) {
    object[fmt::format("p{:g}_{}_ms", percent, name)] = values.Percentile(percent);
  }
}

void AddLine(std::string& table, std::string_view name, Measurements& values) {
  fmt::format_to(std::back_inserter(table),
                 "{:<22} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", name,
                 values.Mean(), values.Percentile(50), values.Percentile(90), values.Percentile(95),
                 values.Percentile(99), values.Percentile(99.9));
}

double PerSecond(int64_t count, const LoadTotals& totals) {
  return totals.seconds > 0 ? static_cast<double>(count) / totals.seconds : 0.0;
}

double CpuShare(const LoadTotals& totals) {
  return totals.seconds > 0 ? totals.cpu_seconds / totals.seconds : 0.0;
}

std::string_view WordOf(CallOutcome outcome) {
  switch (outcome) {
    case CallOutcome::kOk:
      return "ok";
    case CallOutcome::kCancelled:
      return "cancelled";
    case CallOutcome::kFailed:
      return "failed";
  }
  return "";
}

// Bytes of a server that broke off in the middle of a character are no JSON text.
std::string Ascii(std::string_view text) {
  std::string ascii(text);
  for (char& c : ascii) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return ascii;
}

}  // namespace

bool LoadReport::IsGood(const CallRecord& call) const {
  return (options_.ttft_limit_ms <= 0 || call.ttft_ms() <= options_.ttft_limit_ms) &&
         (options_.tpot_limit_ms <= 0 || call.tpot_ms() <= options_.tpot_limit_ms);
}

void LoadReport::Add(const CallRecord& call) {
  lag_ms_.Add(static_cast<float>(call.lag_ms()));
  if (call.outcome == CallOutcome::kFailed) {
    ++failed_;
    Errors& errors = errors_[call.error_kind];
    ++errors.count;
    const std::string sample = Ascii(call.error);
    if (errors.samples.size() < kErrorSamplesMax &&
        std::ranges::find(errors.samples, sample) == errors.samples.end()) {
      errors.samples.push_back(sample);
    }
    return;
  }
  if (call.outcome == CallOutcome::kCancelled) {
    ++cancelled_;
    return;
  }
  ++completed_;
  if (!call.has_usage) ++without_usage_;
  input_tokens_ += call.input_tokens;
  output_tokens_ += call.output_tokens;
  cached_tokens_ += call.cached_tokens;
  ttft_ms_.Add(static_cast<float>(call.ttft_ms()));
  e2el_ms_.Add(static_cast<float>(call.e2el_ms()));
  if (call.output_tokens > 1) tpot_ms_.Add(static_cast<float>(call.tpot_ms()));
  for (const float gap : call.gaps_ms) {
    if (itl_ms_.count() < kGapsMax) {
      itl_ms_.Add(gap);
    } else {
      ++gaps_left_out_;
    }
  }
  if (IsGood(call)) ++good_;
}

std::string LoadReport::Table(const LoadTotals& totals) {
  std::string table;
  const auto out = std::back_inserter(table);
  fmt::format_to(out, "{:<22} {} completed, {} cancelled, {} failed in {:.2f} s; {} at once\n",
                 "requests", completed_, cancelled_, failed_, totals.seconds, totals.in_flight_max);
  fmt::format_to(out, "{:<22} {} in ({} of them from a cache), {} out\n", "tokens", input_tokens_,
                 cached_tokens_, output_tokens_);
  fmt::format_to(out, "{:<22} {:.2f} requests/s, {:.1f} output tok/s, {:.1f} tok/s in all\n",
                 "throughput", PerSecond(completed_, totals), PerSecond(output_tokens_, totals),
                 PerSecond(input_tokens_ + output_tokens_, totals));
  if (HasLimits()) {
    fmt::format_to(out, "{:<22} {:.2f} requests/s within the limits ({} of {})\n", "goodput",
                   PerSecond(good_, totals), good_, completed_);
  }
  fmt::format_to(out, "\n{:<22} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ms", "mean", "p50", "p90",
                 "p95", "p99", "p99.9");
  AddLine(table, "first token (TTFT)", ttft_ms_);
  AddLine(table, "each other (TPOT)", tpot_ms_);
  AddLine(table, "between two (ITL)", itl_ms_);
  AddLine(table, "whole request (E2E)", e2el_ms_);
  AddLine(table, "sent after due", lag_ms_);
  for (const auto& [kind, errors] : errors_) {
    fmt::format_to(out, "\n{} x {}\n", errors.count, kind);
    for (const std::string& sample : errors.samples) fmt::format_to(out, "  {}\n", sample);
  }
  return table;
}

std::string LoadReport::Json(const LoadTotals& totals, const std::string& model) {
  json::object report;
  report["date"] = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  report["backend"] = options_.chat ? "openai-chat" : "openai";
  report["model_id"] = model;
  report["num_prompts"] = totals.calls;
  report["request_rate"] = options_.rate > 0 ? json::value(options_.rate) : json::value("inf");
  report["burstiness"] = options_.burstiness;
  report["max_concurrency"] =
      options_.concurrency > 0 ? json::value(options_.concurrency) : json::value(nullptr);
  report["seed"] = options_.seed;
  report["duration"] = totals.seconds;
  report["completed"] = completed_;
  report["failed"] = failed_;
  report["cancelled"] = cancelled_;
  report["total_input_tokens"] = input_tokens_;
  report["total_output_tokens"] = output_tokens_;
  report["total_cached_tokens"] = cached_tokens_;
  report["tokens_counted_by_server"] = without_usage_ == 0;
  report["request_throughput"] = PerSecond(completed_, totals);
  report["request_goodput"] =
      HasLimits() ? json::value(PerSecond(good_, totals)) : json::value(nullptr);
  report["output_throughput"] = PerSecond(output_tokens_, totals);
  report["total_token_throughput"] = PerSecond(input_tokens_ + output_tokens_, totals);
  report["max_concurrent_requests"] = totals.in_flight_max;
  AddMetric(report, "ttft", ttft_ms_);
  AddMetric(report, "tpot", tpot_ms_);
  AddMetric(report, "itl", itl_ms_);
  AddMetric(report, "e2el", e2el_ms_);
  AddMetric(report, "lag", lag_ms_);
  report["max_lag_ms"] = lag_ms_.Max();
  report["itls_left_out"] = gaps_left_out_;
  report["client_cpu_share"] = CpuShare(totals);
  json::object errors;
  for (const auto& [kind, of_kind] : errors_) {
    errors[kind] = {{"count", of_kind.count}, {"samples", json::value_from(of_kind.samples)}};
  }
  report["errors_by_kind"] = std::move(errors);
  report["warnings"] = json::value_from(Warnings(totals));
  return json::serialize(report) + "\n";
}

std::vector<std::string> LoadReport::Warnings(const LoadTotals& totals) {
  std::vector<std::string> warnings;
  if (lag_ms_.Percentile(99) > kLagMsMax) {
    warnings.push_back(fmt::format(
        "requests were sent late (p99 {:.1f} ms after they were due): this client, its machine or "
        "the making of connections was a bottleneck, and the latencies contain it",
        lag_ms_.Percentile(99)));
  }
  if (CpuShare(totals) > kCpuShareMax) {
    warnings.push_back(fmt::format(
        "this client used {:.0f} % of a core: times of tokens may be its own; send less, or from "
        "several processes",
        100.0 * CpuShare(totals)));
  }
  if (without_usage_ > 0) {
    warnings.push_back(fmt::format(
        "the server did not count the tokens of {} requests: their outputs are counted in events, "
        "their inputs not at all",
        without_usage_));
  }
  if (gaps_left_out_ > 0) {
    warnings.push_back(
        fmt::format("the last {} gaps between tokens are in no ITL figure", gaps_left_out_));
  }
  return warnings;
}

std::string JsonLineOf(const CallRecord& call) {
  json::object line = {{"session", call.session},
                       {"turn", call.turn},
                       {"status", WordOf(call.outcome)},
                       {"due_s", static_cast<double>(call.due_ns) / 1e9},
                       {"sent_s", static_cast<double>(call.sent_ns) / 1e9},
                       {"end_s", static_cast<double>(call.end_ns) / 1e9},
                       {"lag_ms", call.lag_ms()}};
  if (call.outcome == CallOutcome::kFailed) {
    line["error_kind"] = call.error_kind;
    line["error"] = Ascii(call.error);
    return json::serialize(line) + "\n";
  }
  line["ttft_ms"] = call.ttft_ms();
  line["tpot_ms"] = call.tpot_ms();
  line["e2el_ms"] = call.e2el_ms();
  line["input_tokens"] = call.input_tokens;
  line["output_tokens"] = call.output_tokens;
  line["cached_tokens"] = call.cached_tokens;
  line["finish_reason"] = call.finish_reason;
  line["itls_ms"] = json::value_from(call.gaps_ms);
  return json::serialize(line) + "\n";
}

}  // namespace polysil
