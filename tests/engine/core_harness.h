// CoreHarness: EngineCore with a FakeDevice in one thread, and everything that must hold checked
// after each tick. The scenario and the random tests drive it; `problem` is empty as long as all is
// well.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "fakes/fake_executor.h"

namespace polysil {

// What the client of one sequence has seen.
struct SeenStream {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> prompt_logprobs;
  int32_t outputs = 0;
  int32_t prompt_tokens_cached = 0;
  SequenceLatency latency;
  std::optional<FinishReason> finish;
  Status status;
};

class CoreHarness final {
 public:
  CoreHarness(EngineCoreOptions options, FakeDeviceOptions device)
      : core_(std::move(options)), device_(std::move(device)) {
    FollowKvEvents();
  }

  RequestId Submit(Request request) {
    request.id = RequestId{++requests_given_};
    const RequestId id = request.id;
    auto shared = std::make_shared<const Request>(std::move(request));
    streams_[id].resize(static_cast<size_t>(
        std::clamp(shared->sequences, 1, core_.options().limits.sequences_max)));
    requests_.emplace(id, shared);
    arrived_ns_.emplace(id, now_ns_);
    inputs_.submitted.push_back({shared, now_ns_});
    return id;
  }
  void Cancel(RequestId id) { inputs_.cancelled.push_back(id); }
  void Stop(RequestId id, int32_t index) { inputs_.stopped.push_back({id, index}); }
  void Drain(int64_t deadline_ns) { inputs_.drain_deadline_ns = deadline_ns; }
  void AdvanceTo(int64_t now_ns) { now_ns_ = std::max(now_ns_, now_ns); }

  void Tick() {
    actions_ = core_.Tick(now_ns_, inputs_);
    for (const ScheduledStep& step : actions_.steps) {
      for (const SequenceStart& start : step.started) {
        names_[start.id] = {start.request->id, start.sequence_index};
        ids_[{start.request->id, start.sequence_index}] = start.id;
      }
      in_flight_.push_back(step);
    }
    for (const SequenceOutput& output : actions_.outputs) See(output);
    Check(core_.CheckIntegrity());
    FollowKvEvents();
    CheckStats();
  }
  // The device runs the oldest step in flight; the next tick gets its result.
  bool RunOldest(const FakeFaults& faults = {}) {
    if (in_flight_.empty()) return false;
    inputs_.results.push_back(device_.Run(std::move(in_flight_.front()), faults));
    in_flight_.pop_front();
    if (!device_.violation().empty()) Report(device_.violation());
    return true;
  }
  // Until every sequence has ended and no step is in flight. False: not within so many ticks.
  bool RunToEnd(int64_t ticks_max) {
    for (int64_t i = 0; i < ticks_max; ++i) {
      if (!RunOldest() && core_.sequences_live() == 0) return true;
      Tick();
      if (!problem_.empty()) return true;
    }
    return false;
  }

  EngineCore& core() { return core_; }
  const EngineActions& actions() const { return actions_; }
  const FakeDevice& device() const { return device_; }
  const std::deque<ScheduledStep>& in_flight() const { return in_flight_; }
  int64_t now_ns() const { return now_ns_; }
  const Request& request(RequestId id) const { return *requests_.at(id); }
  const std::map<RequestId, std::vector<SeenStream>>& streams() const { return streams_; }
  // Whose sequence it is, once it has run.
  std::pair<RequestId, int32_t> name(SequenceId id) const { return names_.at(id); }
  SequenceId id(RequestId request, int32_t index) const { return ids_.at({request, index}); }
  const std::string& problem() const { return problem_; }

 private:
  void Report(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }
  void Check(const Status& status) {
    if (!status.ok()) Report(Message(status));
  }

  void See(const SequenceOutput& output) {
    SeenStream& seen = streams_.at(output.request).at(static_cast<size_t>(output.sequence_index));
    if (seen.finish) Report(fmt::format("request {} goes on after its end", output.request.value));
    for (const OutputToken& token : output.tokens) seen.tokens.push_back(token.id);
    if (!output.prompt_logprobs.empty()) {
      if (seen.outputs > 0) Report("prompt logprobs came after the first output");
      seen.prompt_logprobs = output.prompt_logprobs;
    }
    if (output.tokens.empty() && !output.finish) Report("an output says nothing");
    ++seen.outputs;
    seen.prompt_tokens_cached = output.prompt_tokens_cached;
    SeeLatency(output, seen.latency);
    seen.finish = output.finish;
    seen.status = output.status;
    if (!output.status.ok() && output.finish != FinishReason::kError) {
      Report("a status without an error");
    }
  }

  // Who follows the events knows what can be found: each block is stored once in a tier before it
  // is removed there, and at the end the idle ones are left.
  void FollowKvEvents() {
    for (const KvEvent& event : core_.kv_events().events) {
      const std::pair<KvTier, KvBlockName> key{event.tier, event.hash};
      if (event.kind == KvEventKind::kCleared) findable_.clear();
      if (event.kind == KvEventKind::kStored && !findable_.insert(key).second) {
        Report("a block was stored twice");
      }
      if (event.kind == KvEventKind::kRemoved && findable_.erase(key) != 1) {
        Report("a block was removed that was not there");
      }
    }
    const EngineStats stats = core_.stats();
    const auto on_host =
        std::ranges::count(findable_, KvTier::kHost, [](const auto& key) { return key.first; });
    const bool idle = core_.sequences_live() == 0 && core_.steps_in_flight() == 0;
    if (on_host > stats.kv_host_blocks_used ||
        (idle && std::ssize(findable_) - on_host != stats.kv_blocks_cached)) {
      Report(fmt::format(
          "{} blocks are told to be findable, {} on the host; {} are cached, {} used "
          "on the host",
          findable_.size(), on_host, stats.kv_blocks_cached, stats.kv_host_blocks_used));
    }
  }

  // Nothing is left out and nothing counts twice, whatever becomes of the request.
  void SeeLatency(const SequenceOutput& output, SequenceLatency& seen) {
    const SequenceLatency& latency = output.latency;
    const int64_t elapsed_ns = now_ns_ - arrived_ns_.at(output.request);
    if (latency.total_ns() != elapsed_ns) {
      Report(fmt::format("request {} is {} ns old, its latency sums to {}", output.request.value,
                         elapsed_ns, latency.total_ns()));
    }
    if (latency.queue_ns < seen.queue_ns || latency.prefill_ns < seen.prefill_ns ||
        latency.decode_ns < seen.decode_ns || latency.wait_ns < seen.wait_ns ||
        latency.preempted_ns < seen.preempted_ns || latency.prefill_steps < seen.prefill_steps ||
        latency.decode_steps < seen.decode_steps || latency.preemptions < seen.preemptions) {
      Report(fmt::format("a part of the latency of request {} fell", output.request.value));
    }
    seen = latency;
  }

  // Gauges make sense, counters never fall.
  void CheckStats() {
    const EngineStats stats = core_.stats();
    if (stats.requests_running < 0 || stats.requests_waiting < 0 || stats.kv_blocks_used < 0 ||
        stats.kv_blocks_cached < 0 ||
        stats.kv_blocks_used + stats.kv_blocks_cached > stats.kv_blocks_total ||
        stats.kv_host_blocks_used < 0 || stats.kv_host_blocks_used > stats.kv_host_blocks_total) {
      Report(fmt::format("gauges: {} running, {} waiting, {} used, {} cached of {}",
                         stats.requests_running, stats.requests_waiting, stats.kv_blocks_used,
                         stats.kv_blocks_cached, stats.kv_blocks_total));
    }
    const std::vector<uint64_t> counters = {
        stats.requests_stop,           stats.requests_length,    stats.requests_cancelled,
        stats.requests_deadline,       stats.requests_error,     stats.requests_refused,
        stats.prompt_tokens,           stats.generation_tokens,  stats.prefix_cache_query_tokens,
        stats.prefix_cache_hit_tokens, stats.preemptions,        stats.steps,
        stats.kv_blocks_copied_out,    stats.kv_blocks_copied_in};
    for (size_t i = 0; i < counters.size() && !counters_.empty(); ++i) {
      if (counters[i] < counters_[i]) Report(fmt::format("counter {} fell", i));
    }
    counters_ = counters;
    if (core_.sequences_live() == 0 && core_.steps_in_flight() == 0 && stats.kv_blocks_used != 0) {
      Report(fmt::format("nobody is left and {} blocks are used", stats.kv_blocks_used));
    }
  }

  EngineCore core_;
  FakeDevice device_;
  EngineInputs inputs_;
  EngineActions actions_;
  std::deque<ScheduledStep> in_flight_;
  int64_t now_ns_ = 0;
  uint64_t requests_given_ = 0;
  std::map<RequestId, std::shared_ptr<const Request>> requests_;
  std::map<RequestId, int64_t> arrived_ns_;
  std::map<RequestId, std::vector<SeenStream>> streams_;
  std::map<SequenceId, std::pair<RequestId, int32_t>> names_;
  std::map<std::pair<RequestId, int32_t>, SequenceId> ids_;
  std::set<std::pair<KvTier, KvBlockName>> findable_;
  std::vector<uint64_t> counters_;
  std::string problem_;
};

}  // namespace polysil
