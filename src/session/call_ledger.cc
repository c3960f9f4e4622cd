#include "session/call_ledger.h"

#include <numeric>
#include <utility>

#include "base/log.h"

namespace polysil {
namespace {

constexpr std::array<std::string_view, kLatencySegments> kNames = {
    "receive", "tokenize",  "queue",      "prefill", "decode",
    "wait",    "preempted", "detokenize", "flush"};

std::string_view OutcomeOf(const Status& status) {
  if (status.ok()) return "finished";
  if (status.code() == StatusCode::kCancelled) return "cancelled";
  if (status.code() == StatusCode::kDeadlineExceeded) return "deadline";
  return status.code() == StatusCode::kResourceExhausted ? "refused" : "error";
}

}  // namespace

std::string_view Name(LatencySegment segment) {
  return kNames[static_cast<size_t>(segment)];
}

int64_t LatencySegments::total_ns() const {
  return std::accumulate(ns.begin(), ns.end(), int64_t{0});
}

LatencyTotals::LatencyTotals() {
  for (Histogram& histogram : histograms_) {
    histogram.bounds = {0.00001, 0.0001, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0};
    histogram.counts.resize(histogram.bounds.size() + 1);
  }
}

void LatencyTotals::Observe(const LatencySegments& segments) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kLatencySegments; ++i) {
    histograms_[i].Observe(static_cast<double>(segments.ns[i]) * 1e-9);
  }
}

LatencyTotals::Histograms LatencyTotals::Read() const {
  std::lock_guard lock(mutex_);
  return histograms_;
}

CallLedger::CallLedger(const Clock& clock, std::shared_ptr<LatencyTotals> totals, int64_t begun_ns,
                       std::string id)
    : clock_(clock),
      totals_(std::move(totals)),
      begun_ns_(begun_ns),
      id_(std::move(id)),
      mark_ns_(begun_ns) {}

CallLedger::~CallLedger() {
  Close();
}

void CallLedger::Lap(LatencySegment segment) {
  const int64_t now_ns = clock_.NowNs();
  latency_.total[segment] += now_ns - std::exchange(mark_ns_, now_ns);
}

void CallLedger::OnReceived() {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kReceiving) return;
  Lap(LatencySegment::kReceive);
  phase_ = Phase::kTokenizing;
}

void CallLedger::OnTokenized() {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kTokenizing) return;
  Lap(LatencySegment::kTokenize);
  phase_ = Phase::kRunning;
}

void CallLedger::AddEngine(const SequenceLatency& engine) {
  LatencySegments& total = latency_.total;
  total[LatencySegment::kQueue] = engine.queue_ns;
  total[LatencySegment::kPrefill] = engine.prefill_ns;
  total[LatencySegment::kDecode] = engine.decode_ns;
  total[LatencySegment::kWait] = engine.wait_ns;
  total[LatencySegment::kPreempted] = engine.preempted_ns;
  // What the engine accounts for lies between the last station and now.
  mark_ns_ += engine.total_ns();
  Lap(LatencySegment::kDetokenize);
}

void CallLedger::OnFirstToken(const SequenceLatency& engine) {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kRunning || had_first_token_) return;
  had_first_token_ = true;
  const LatencySegments before = latency_.total;
  const int64_t mark_ns = mark_ns_;
  AddEngine(engine);
  first_token_ns_ = std::exchange(mark_ns_, mark_ns);
  latency_.first_token = std::exchange(latency_.total, before);
}

void CallLedger::OnFirstTokenSent() {
  std::lock_guard lock(mutex_);
  if (!had_first_token_ || std::exchange(first_token_sent_, true)) return;
  latency_.first_token[LatencySegment::kFlush] = clock_.NowNs() - first_token_ns_;
}

void CallLedger::OnEnd(const Status& status, const TextUsage& usage,
                       const SequenceLatency& engine) {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kRunning) return;
  AddEngine(engine);
  phase_ = Phase::kFlushing;
  latency_.prefill_steps = engine.prefill_steps;
  latency_.decode_steps = engine.decode_steps;
  latency_.preemptions = engine.preemptions;
  usage_ = usage;
  outcome_ = OutcomeOf(status);
}

void CallLedger::OnRefused(const Status& status) {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::kFlushing || phase_ == Phase::kClosed) return;
  Lap(CurrentSegment());
  phase_ = Phase::kFlushing;
  outcome_ = status.code() == StatusCode::kDeadlineExceeded ? "deadline" : "refused";
}

LatencySegment CallLedger::CurrentSegment() const {
  switch (phase_) {
    case Phase::kReceiving:
      return LatencySegment::kReceive;
    case Phase::kTokenizing:
      return LatencySegment::kTokenize;
    case Phase::kRunning:
      return LatencySegment::kWait;  // the engine gave no account
    case Phase::kFlushing:
    case Phase::kClosed:
      break;
  }
  return LatencySegment::kFlush;
}

void CallLedger::Close() {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::kClosed) return;
  Lap(CurrentSegment());
  phase_ = Phase::kClosed;
  totals_->Observe(latency_.total);
  WriteLog();
}

CallLatency CallLedger::latency() const {
  std::lock_guard lock(mutex_);
  CallLatency latency = latency_;
  if (phase_ != Phase::kClosed) latency.total[CurrentSegment()] += clock_.NowNs() - mark_ns_;
  return latency;
}

void CallLedger::WriteLog() const {
  if (!LogEnabled(LogLevel::kInfo)) return;
  std::string segments;
  for (size_t i = 0; i < kLatencySegments; ++i) {
    segments += fmt::format(" {}_us={}", kNames[i], latency_.total.ns[i] / 1000);
  }
  Log(LogLevel::kInfo,
      "request id={} outcome={} prompt_tokens={} cached_tokens={} output_tokens={} "
      "prefill_steps={} decode_steps={} preemptions={} first_token_us={} total_us={}{}",
      id_, outcome_, usage_.prompt_tokens, usage_.prompt_tokens_cached, usage_.output_tokens,
      latency_.prefill_steps, latency_.decode_steps, latency_.preemptions,
      latency_.first_token.total_ns() / 1000, latency_.total.total_ns() / 1000, segments);
}

}  // namespace polysil
