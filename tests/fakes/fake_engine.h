// FakeEngine: an Engine without a model, for tests of the faces and of the session layer. Either
// manual, where the test hands out every output itself, or automatic, where a thread of its own
// answers each request with a scripted token sequence, one token at a time, under the same rules as
// a real engine: queue, end tokens, lengths, stop, cancel, deadline.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "polysil/base/clock.h"
#include "polysil/engine/engine.h"

namespace polysil {

struct FakeEngineOptions {
  RequestLimits limits{
      .vocab_size = 300, .context_tokens_max = 256, .kv_tokens_max = 100'000, .sequences_max = 16};
  bool manual = false;
  size_t running_max = 1000;
  size_t queue_max = 1000;
  // What a sequence chooses, position by position; after its end the last one again.
  std::function<std::vector<TokenId>(const Request&, int32_t sequence_index)> script;
  int64_t fail_after_tokens = -1;  // >= 0: kError after so many tokens
  float top_logprob_last = -3.0F;  // of the worst alternative
  bool chosen_in_top = true;
  int32_t prompt_tokens_cached = 0;
};

class FakeEngine final : public Engine {
 public:
  static constexpr auto kPatience = std::chrono::seconds(60);

  explicit FakeEngine(FakeEngineOptions options = {}) : options_(std::move(options)) {
    info_ = EngineInfo{.limits = options_.limits, .numeric_class = "fake"};
    if (!options_.manual) thread_ = std::thread([this] { RunThread(); });
  }
  ~FakeEngine() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  const EngineInfo& info() const override { return info_; }

  StatusOr<RequestId> Submit(Request request, std::shared_ptr<OutputSink> sink) override {
    const Turn turn(*this);
    if (draining_) {
      ++stats_.requests_refused;
      return Unavailable("the engine is draining");
    }
    if (live_.size() >= options_.running_max + options_.queue_max) {
      ++stats_.requests_refused;
      return ResourceExhausted("the queue holds {} requests already", options_.queue_max);
    }
    const RequestId id{next_id_++};
    request.id = id;
    Live live{.request = request, .sink = std::move(sink)};
    live.sequences.resize(static_cast<size_t>(request.sequences));
    for (int32_t i = 0; i < request.sequences && options_.script; ++i) {
      live.sequences[static_cast<size_t>(i)].script = options_.script(request, i);
    }
    stats_.prompt_tokens += request.prompt.size();
    submitted_.push_back(std::move(request));
    live_.emplace(id, std::move(live));
    changed_.notify_all();
    return id;
  }

  void Cancel(RequestId id) override {
    const Turn turn(*this);
    cancels_.push_back(id);
    if (const auto it = live_.find(id); it != live_.end()) it->second.cancelled = true;
    changed_.notify_all();
  }

  void Stop(RequestId id, int32_t sequence_index) override {
    const Turn turn(*this);
    stops_.emplace_back(id, sequence_index);
    if (const auto it = live_.find(id); it != live_.end()) {
      it->second.sequences[static_cast<size_t>(sequence_index)].stopped = true;
    }
    changed_.notify_all();
  }

  EngineStats Stats() const override {
    const Turn turn(*this);
    EngineStats stats = stats_;
    stats.requests_running = static_cast<int64_t>(std::min(live_.size(), options_.running_max));
    stats.requests_waiting = static_cast<int64_t>(live_.size()) - stats.requests_running;
    stats.kv_blocks_total = 100;
    stats.kv_blocks_used = stats.requests_running;
    for (Histogram* histogram : {&stats.time_to_first_token_s, &stats.inter_token_latency_s,
                                 &stats.request_duration_s, &stats.step_duration_s}) {
      histogram->bounds = {0.1, 1.0};
      histogram->counts = {1, 2, 3};
      histogram->sum = 7.5;
    }
    return stats;
  }

  EngineReadiness Readiness() const override {
    const Turn turn(*this);
    return readiness_;
  }

  int32_t RetryAfterSeconds() const override { return 7; }

  KvEventBatch ReadKvEvents(uint64_t from, int32_t events_max) const override {
    const Turn turn(*this);
    const uint64_t last = kv_removed_.size();
    const uint64_t oldest = last < kKvEventsKept ? 1 : last - kKvEventsKept + 1;
    KvEventBatch batch{.first = std::max(std::max<uint64_t>(from, 1), oldest)};
    batch.lost = batch.first - std::max<uint64_t>(from, 1);
    const uint64_t end = std::min(last + 1, batch.first + static_cast<uint64_t>(events_max));
    for (uint64_t number = batch.first; number < end; ++number) {
      batch.news.events.push_back({.kind = KvEventKind::kRemoved, .hash = kv_removed_[number - 1]});
    }
    return batch;
  }
  uint64_t WaitKvEvent(uint64_t number, int64_t timeout_ns) const override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                      [&] { return stopping_ || kv_removed_.size() >= number; });
    return kv_removed_.size();
  }

  // --- for the test ---

  static constexpr uint64_t kKvEventsKept = 1000;
  // One more event: a block of that name was removed.
  void RemoveKvBlock(KvBlockName name) {
    const Turn turn(*this);
    kv_removed_.push_back(name);
    changed_.notify_all();
  }

  void SetReadiness(EngineReadiness readiness) {
    const Turn turn(*this);
    readiness_ = std::move(readiness);
  }
  // Refuses what comes, as a draining engine; what runs goes on.
  void Drain() {
    const Turn turn(*this);
    draining_ = true;
    readiness_ = {.ready = false, .reason = "draining"};
  }
  // Ends everything that runs with kCancelled, as at the end of a drain.
  void EndAll() {
    const Turn turn(*this);
    for (auto& [id, live] : live_) live.cancelled = true;
    changed_.notify_all();
  }
  // Sequences stand still once they have so many tokens.
  void AllowTokens(int64_t tokens) {
    const Turn turn(*this);
    tokens_allowed_ = tokens;
    changed_.notify_all();
  }

  std::vector<Request> submitted() const {
    const Turn turn(*this);
    return submitted_;
  }
  std::vector<RequestId> cancels() const {
    const Turn turn(*this);
    return cancels_;
  }
  std::vector<std::pair<RequestId, int32_t>> stops() const {
    const Turn turn(*this);
    return stops_;
  }
  // Manual mode: an output as the engine's output thread would give it, from the calling thread.
  void Deliver(RequestId id, SequenceOutput output) {
    std::shared_ptr<OutputSink> sink;
    {
      const Turn turn(*this);
      sink = live_.at(id).sink;
    }
    output.request = id;
    sink->OnOutput(std::move(output));
  }
  // Waits until `predicate` holds of the engine's state; false when patience ends.
  bool WaitUntilSubmitted(size_t requests) {
    return Wait([&] { return submitted_.size() >= requests; });
  }
  bool WaitUntilCancelled(size_t requests) {
    return Wait([&] { return stats_.requests_cancelled >= requests; });
  }
  bool WaitUntilIdle() {
    return Wait([&] { return live_.empty(); });
  }

 private:
  // The lock, for callers.
  class Turn final {
   public:
    explicit Turn(const FakeEngine& engine) : lock_(engine.mutex_, std::defer_lock) {
      ++engine.callers_;
      lock_.lock();
      --engine.callers_;
    }

   private:
    std::unique_lock<std::mutex> lock_;
  };
  struct LiveSequence {
    std::vector<TokenId> script;
    int64_t tokens = 0;
    bool stopped = false;
    bool done = false;
  };
  struct Live {
    Request request;
    std::shared_ptr<OutputSink> sink;
    std::vector<LiveSequence> sequences;
    bool cancelled = false;
  };

  template <typename Predicate>
  bool Wait(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, predicate);
  }

  void RunThread() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const std::vector<std::pair<std::shared_ptr<OutputSink>, SequenceOutput>> outputs = Step();
      if (outputs.empty()) {
        changed_.wait_for(lock, std::chrono::milliseconds(20));  // deadlines pass without a call
        continue;
      }
      lock.unlock();
      for (const auto& [sink, output] : outputs) sink->OnOutput(output);
      // A mutex is not fair: without this, callers could wait for ever beside a busy thread.
      while (callers_ > 0) std::this_thread::yield();
      lock.lock();
    }
  }

  // At most one token for each running sequence.
  std::vector<std::pair<std::shared_ptr<OutputSink>, SequenceOutput>> Step() {
    std::vector<std::pair<std::shared_ptr<OutputSink>, SequenceOutput>> outputs;
    size_t place = 0;
    for (auto it = live_.begin(); it != live_.end(); ++place) {
      Live& live = it->second;
      const bool running = place < options_.running_max;
      FinishReason worst = FinishReason::kStop;
      for (size_t i = 0; i < live.sequences.size(); ++i) {
        if (live.sequences[i].done) continue;
        std::optional<SequenceOutput> output = Next(live, static_cast<int32_t>(i), running);
        if (!output) continue;
        if (output->finish) worst = std::max(worst, *output->finish);
        outputs.emplace_back(live.sink, *std::move(output));
      }
      const bool done = std::all_of(live.sequences.begin(), live.sequences.end(),
                                    [](const LiveSequence& s) { return s.done; });
      if (done) {
        Count(worst);
        it = live_.erase(it);
        changed_.notify_all();
      } else {
        ++it;
      }
    }
    return outputs;
  }

  void Count(FinishReason reason) {
    switch (reason) {
      case FinishReason::kStop:
        ++stats_.requests_stop;
        break;
      case FinishReason::kLength:
        ++stats_.requests_length;
        break;
      case FinishReason::kCancelled:
        ++stats_.requests_cancelled;
        break;
      case FinishReason::kDeadline:
        ++stats_.requests_deadline;
        break;
      case FinishReason::kError:
        ++stats_.requests_error;
        break;
    }
  }

  std::optional<SequenceOutput> Next(Live& live, int32_t index, bool running) {
    LiveSequence& sequence = live.sequences[static_cast<size_t>(index)];
    const Request& request = live.request;
    SequenceOutput output{.request = request.id, .sequence_index = index};
    output.prompt_tokens_cached = options_.prompt_tokens_cached;
    if (live.cancelled) {
      output.finish = FinishReason::kCancelled;
    } else if (sequence.stopped) {
      output.finish = FinishReason::kStop;
    } else if (request.deadline_ns != 0 && clock_.NowNs() >= request.deadline_ns) {
      output.finish = FinishReason::kDeadline;
    } else if (options_.fail_after_tokens >= 0 && sequence.tokens >= options_.fail_after_tokens) {
      output.finish = FinishReason::kError;
      output.status = Internal("logits of the row are not finite");
    } else if (!running || sequence.tokens >= tokens_allowed_) {
      return std::nullopt;
    } else {
      Choose(request, sequence, output);
    }
    sequence.done = output.finish.has_value();
    return output;
  }

  void Choose(const Request& request, LiveSequence& sequence, SequenceOutput& output) {
    TokenId id = 'x';
    if (!sequence.script.empty()) {
      id = sequence
               .script[std::min(static_cast<size_t>(sequence.tokens), sequence.script.size() - 1)];
    }
    for (const auto& [biased, bias] : request.sampling.logit_bias) {
      if (bias == 100.0F) id = biased;
    }
    OutputToken token{.id = id};
    if (request.sampling.logprobs) token.logprobs = Logprobs(id, *request.sampling.logprobs);
    if (sequence.tokens == 0 && request.sampling.prompt_logprobs) {
      for (size_t i = 1; i < request.prompt.size(); ++i) {
        output.prompt_logprobs.push_back(
            Logprobs(request.prompt[i], *request.sampling.prompt_logprobs));
      }
    }
    output.tokens.push_back(std::move(token));
    ++sequence.tokens;
    ++stats_.generation_tokens;
    const bool is_end =
        std::binary_search(request.end_token_ids.begin(), request.end_token_ids.end(), id);
    const int64_t context_left = options_.limits.context_tokens_max -
                                 static_cast<int64_t>(request.prompt.size()) - sequence.tokens;
    if (is_end && sequence.tokens > request.sampling.tokens_min) {
      output.finish = FinishReason::kStop;
    } else if (sequence.tokens >= request.sampling.tokens_max || context_left <= 0) {
      output.finish = FinishReason::kLength;
    }
  }

  TokenLogprobs Logprobs(TokenId chosen, int32_t top) const {
    TokenLogprobs logprobs{.chosen = {chosen, -0.25F}};
    const TokenId first = options_.chosen_in_top ? chosen : chosen + 1;
    for (int32_t k = 0; k < top; ++k) {
      const bool last = k > 0 && k + 1 == top;
      logprobs.top.push_back({(first + k) % options_.limits.vocab_size,
                              last ? options_.top_logprob_last : -0.25F - 0.125F * k});
    }
    return logprobs;
  }

  const FakeEngineOptions options_;
  EngineInfo info_;
  const SteadyClock clock_;
  mutable std::mutex mutex_;
  mutable std::atomic<int> callers_ = 0;
  mutable std::condition_variable changed_;
  EngineStats stats_;
  EngineReadiness readiness_{.ready = true, .reason = {}};
  bool draining_ = false;
  bool stopping_ = false;
  int64_t tokens_allowed_ = INT64_MAX;
  uint64_t next_id_ = 1;
  std::map<RequestId, Live> live_;
  std::vector<Request> submitted_;
  std::vector<KvBlockName> kv_removed_;
  std::vector<RequestId> cancels_;
  std::vector<std::pair<RequestId, int32_t>> stops_;
  std::thread thread_;
};

}  // namespace polysil
