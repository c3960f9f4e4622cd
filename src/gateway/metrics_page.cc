#include "gateway/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>
#include <vector>

namespace polysil {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Family(std::string name, std::string help, MetricType type) {
  return MetricFamily{std::move(name), std::move(help), type, {}};
}

MetricFamily Gauge(std::string name, std::string help, int64_t value) {
  MetricFamily family = Family(std::move(name), std::move(help), MetricType::Gauge);
  family.metric.emplace_back().gauge.value = static_cast<double>(value);
  return family;
}

MetricFamily Counter(std::string name, std::string help, uint64_t value) {
  MetricFamily family = Family(std::move(name), std::move(help), MetricType::Counter);
  family.metric.emplace_back().counter.value = static_cast<double>(value);
  return family;
}

void AddHistogram(const Histogram& histogram, ClientMetric::Histogram& out) {
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    out.sample_count += histogram.counts[i];
    const bool last = i >= histogram.bounds.size();
    out.bucket.push_back(
        {out.sample_count, last ? std::numeric_limits<double>::infinity() : histogram.bounds[i]});
  }
  out.sample_sum = histogram.sum;
}

MetricFamily Seconds(std::string name, std::string help, const Histogram& histogram) {
  MetricFamily family = Family(std::move(name), std::move(help), MetricType::Histogram);
  AddHistogram(histogram, family.metric.emplace_back().histogram);
  return family;
}

MetricFamily Segments(const LatencyTotals::Histograms& segments) {
  MetricFamily family =
      Family("polysil_request_segment_seconds",
             "Where the time of a request went; the segments of one sum to its duration.",
             MetricType::Histogram);
  for (size_t i = 0; i < segments.size(); ++i) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({"segment", std::string(Name(static_cast<LatencySegment>(i)))});
    AddHistogram(segments[i], metric.histogram);
  }
  return family;
}

MetricFamily Outcomes(const EngineStats& stats) {
  MetricFamily family =
      Family("polysil_requests_total", "Requests that have ended, by how.", MetricType::Counter);
  const std::pair<const char*, uint64_t> outcomes[] = {
      {"stop", stats.requests_stop},           {"length", stats.requests_length},
      {"cancelled", stats.requests_cancelled}, {"deadline", stats.requests_deadline},
      {"error", stats.requests_error},         {"refused", stats.requests_refused}};
  for (const auto& [outcome, count] : outcomes) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({"outcome", outcome});
    metric.counter.value = static_cast<double>(count);
  }
  return family;
}

}  // namespace

std::string MetricsPage(const EngineStats& stats, const LatencyTotals::Histograms& segments) {
  const std::vector<MetricFamily> families = {
      Gauge("polysil_requests_running", "Requests that the scheduler runs now.",
            stats.requests_running),
      Gauge("polysil_requests_waiting", "Requests that wait in the queue.", stats.requests_waiting),
      Gauge("polysil_kv_blocks_total", "KV blocks of the pool.", stats.kv_blocks_total),
      Gauge("polysil_kv_blocks_used", "KV blocks held by sequences.", stats.kv_blocks_used),
      Gauge("polysil_kv_blocks_cached", "Free KV blocks that hold a known prefix.",
            stats.kv_blocks_cached),
      Gauge("polysil_kv_host_blocks_total", "KV blocks of the host tier.",
            stats.kv_host_blocks_total),
      Gauge("polysil_kv_host_blocks_used", "KV blocks of the host tier that hold a known prefix.",
            stats.kv_host_blocks_used),
      Counter("polysil_kv_blocks_copied_out_total", "KV blocks copied to the host tier.",
              stats.kv_blocks_copied_out),
      Counter("polysil_kv_blocks_copied_in_total", "KV blocks copied back from the host tier.",
              stats.kv_blocks_copied_in),
      Outcomes(stats),
      Counter("polysil_prompt_tokens_total", "Prompt tokens of accepted requests.",
              stats.prompt_tokens),
      Counter("polysil_generation_tokens_total", "Tokens generated.", stats.generation_tokens),
      Counter("polysil_prefix_cache_query_tokens_total", "Prompt tokens looked up in the cache.",
              stats.prefix_cache_query_tokens),
      Counter("polysil_prefix_cache_hit_tokens_total", "Prompt tokens found in the cache.",
              stats.prefix_cache_hit_tokens),
      Counter("polysil_preemptions_total", "Sequences put back for want of KV blocks.",
              stats.preemptions),
      Counter("polysil_steps_total", "Steps that came back from the device.", stats.steps),
      Counter("polysil_step_tokens_total", "Rows of all steps.", stats.step_tokens),
      Counter("polysil_step_padding_tokens_total",
              "Rows without a token that pad steps to the sizes the device takes.",
              stats.step_padding_tokens),
      Seconds("polysil_time_to_first_token_seconds", "From submission to the first token.",
              stats.time_to_first_token_s),
      Seconds("polysil_inter_token_latency_seconds", "Between two tokens of a sequence.",
              stats.inter_token_latency_s),
      Seconds("polysil_request_duration_seconds", "From submission to the end.",
              stats.request_duration_s),
      Seconds("polysil_step_duration_seconds", "Of one step on the device.", stats.step_duration_s),
      Segments(segments)};
  return prometheus::TextSerializer().Serializer::Serialize(families);
}

}  // namespace polysil
