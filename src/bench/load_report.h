// LoadReport: what the requests of a load came to: a table for people, JSON with the keys of vLLM's
// benchmark_serving, and a line of JSON for each request. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/call_record.h"
#include "bench/load_options.h"
#include "bench/load_run.h"
#include "bench/measurements.h"

namespace polysil {

class LoadReport final {
 public:
  explicit LoadReport(LoadOptions options) : options_(std::move(options)) {}

  void Add(const CallRecord& call);
  // When all calls are in. `model` as the server knows it.
  std::string Table(const LoadTotals& totals);
  std::string Json(const LoadTotals& totals, const std::string& model);
  // Sentences for people: the client was the bottleneck, some requests failed. Often none.
  std::vector<std::string> Warnings(const LoadTotals& totals);

  int64_t completed() const { return completed_; }

 private:
  // Gaps beyond this many are counted, but not looked at: they take 4 bytes each.
  static constexpr size_t kGapsMax = size_t{1} << 26;

  struct Errors {
    int64_t count = 0;
    std::vector<std::string> samples;
  };

  bool HasLimits() const { return options_.ttft_limit_ms > 0 || options_.tpot_limit_ms > 0; }
  bool IsGood(const CallRecord& call) const;

  const LoadOptions options_;
  int64_t completed_ = 0;
  int64_t cancelled_ = 0;
  int64_t failed_ = 0;
  int64_t good_ = 0;
  int64_t without_usage_ = 0;
  int64_t input_tokens_ = 0;
  int64_t output_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t gaps_left_out_ = 0;
  Measurements ttft_ms_;
  Measurements tpot_ms_;
  Measurements itl_ms_;
  Measurements e2el_ms_;
  Measurements lag_ms_;
  std::map<std::string, Errors> errors_;  // by kind
};

// One line, with its end.
std::string JsonLineOf(const CallRecord& call);

}  // namespace polysil
