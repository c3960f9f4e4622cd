#include "engine/engine_thread.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "engine/engine_core.h"
#include "engine/kv_event_log.h"
#include "engine/outbox.h"
#include "engine/places.h"
#include "engine/progress_watch.h"
#include "engine/service_rate.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

// So many failed steps in a row are not the requests' fault any more.
constexpr int32_t kStepFailuresMax = 3;
constexpr int32_t kRetryAfterSecondsMax = 600;
// A wait longer than this is cut into several; keeps clock arithmetic far from overflow.
constexpr int64_t kWaitNsMax = 3'600'000'000'000;

// Of 16 tokens each they take 2 MiB.
constexpr int32_t kKvEventsMax = 16'384;

uint64_t RequestsFinished(const EngineStats& stats) {
  return stats.requests_stop + stats.requests_length + stats.requests_cancelled +
         stats.requests_deadline + stats.requests_error;
}

EngineCoreOptions CoreOptions(const EngineOptions& options, const RequestLimits& limits,
                              const Executor& executor) {
  return EngineCoreOptions{.sequences_max = options.sequences_max,
                           .queue_max = options.queue_max,
                           .queue_tokens_max = options.queue_tokens_max,
                           .tenants_leave_room = options.tenants_leave_room,
                           .itl_target_ns = options.itl_target_ns,
                           .weights = options.weights,
                           .limits = limits,
                           .step_limits = executor.limits(),
                           .kv = {.blocks = executor.kv_blocks(),
                                  .tokens_per_block = executor.kv_layout().tokens_per_block,
                                  .prefix_cache = options.prefix_cache}};
}

Status ValidateParts(const EngineOptions& options, const ModelLimits& model,
                     const Executor* executor) {
  if (executor == nullptr) return InvalidArgument("the engine has no executor");
  // Far above any use, and far below overflow of their sum.
  constexpr int32_t kPlacesMax = 1 << 20;
  if (options.sequences_max < 1 || options.sequences_max > kPlacesMax || options.queue_max < 0 ||
      options.queue_max > kPlacesMax) {
    return InvalidArgument("sequences_max is {} and queue_max {}, must lie in [1, {}] and [0, {}]",
                           options.sequences_max, options.queue_max, kPlacesMax, kPlacesMax);
  }
  if (options.queue_tokens_max < 0 || options.itl_target_ns < 0) {
    return InvalidArgument("queue_tokens_max is {} and itl_target_ns {}, must be 0 or more",
                           options.queue_tokens_max, options.itl_target_ns);
  }
  // Far above any use, and far below overflow of their sums.
  constexpr int64_t kWeightMax = 1'000'000;
  for (const int64_t weight :
       {options.weights.prefill, options.weights.decode, options.weights.cached}) {
    if (weight < 0 || weight > kWeightMax) {
      return InvalidArgument("a token's weight is {}, must lie in [0, {}]", weight, kWeightMax);
    }
  }
  if (options.stall_ns <= 0) return InvalidArgument("stall_ns is {}", options.stall_ns);
  if (model.vocab_size < 1 || model.context_tokens_max < 2) {
    return InvalidArgument("the model has a vocabulary of {} and a context of {} tokens",
                           model.vocab_size, model.context_tokens_max);
  }
  const int32_t tokens_per_block = executor->kv_layout().tokens_per_block;
  if (executor->kv_blocks() < 1 || tokens_per_block < 1 || tokens_per_block > kTokensPerBlockMax) {
    return InvalidArgument(
        "the KV pool has {} blocks of {} tokens, at most {} a block are possible",
        executor->kv_blocks(), tokens_per_block, kTokensPerBlockMax);
  }
  return Validate(executor->limits());
}

}  // namespace

// All of it; EngineThread is its face.
class EngineThread::Runtime final {
 public:
  Runtime(const EngineOptions& options, const EngineInfo& info, std::unique_ptr<Executor> executor,
          const Clock& clock)
      : clock_(clock),
        info_(info),
        places_(options.sequences_max + options.queue_max, options.tenants_leave_room),
        watch_(options.stall_ns),
        core_(CoreOptions(options, info.limits, *executor)),
        kv_events_(kKvEventsMax, executor->kv_layout().tokens_per_block),
        stats_(core_.stats()),
        rate_(clock.NowNs()),
        executor_(std::move(executor)) {
    kv_events_.Append(core_.kv_events());
    executor_->SetNotify([this] { Wake([this] { executor_called_ = true; }); });
    executor_->SetHeartbeat([this] { watch_.Beat(clock_.NowNs()); });
    engine_ = std::thread([this] { RunEngine(); });
    output_ = std::thread([this] { RunOutput(); });
  }

  ~Runtime() {
    draining_ = true;
    Wake([this] { stopping_ = true; });
    engine_.join();
    outbox_.Close();
    output_.join();
  }

  const EngineInfo& info() const { return info_; }
  StatusOr<RequestId> Submit(Request request, std::shared_ptr<OutputSink> sink);
  void Cancel(RequestId id);
  void Stop(RequestId id, int32_t sequence_index);
  EngineStats Stats() const;
  EngineReadiness Readiness() const;
  const KvEventLog& kv_events() const { return kv_events_; }
  int32_t RetryAfterSeconds() const;
  void Drain(int64_t deadline_ns);
  bool WaitIdle(int64_t timeout_ns) const { return outbox_.WaitEmpty(timeout_ns); }

 private:
  // Changes the inbox under its lock, then wakes the engine thread.
  template <typename Change>
  void Wake(Change change) {
    {
      std::lock_guard lock(inbox_mutex_);
      change();
      watch_.inbox().BeginIfIdle(clock_.NowNs());
      inbox_filled_ = true;
    }
    inbox_changed_.notify_one();
  }
  Status Refusal(const Request& request) const;

  void RunEngine();
  // Brings into inputs_ what other threads left. False: it is time to end.
  bool WaitForInputs(int64_t wake_ns);
  // Gives the time after which a tick is needed.
  int64_t Tick();
  void PublishStats(int64_t now_ns);
  void RunOutput();

  const Clock& clock_;
  const EngineInfo info_;

  // Any thread.
  Places places_;
  std::atomic<bool> draining_{false};
  std::atomic<int32_t> step_failures_{0};
  std::atomic<uint64_t> requests_refused_{0};
  ProgressWatch watch_;
  Outbox outbox_;

  std::mutex inbox_mutex_;
  std::condition_variable inbox_changed_;
  EngineInputs inbox_;  // under inbox_mutex_, with all up to requests_given_
  bool inbox_filled_ = false;
  bool executor_called_ = false;
  bool stopping_ = false;
  uint64_t requests_given_ = 0;

  EngineCore core_;      // the engine thread's alone
  EngineInputs inputs_;  // likewise; empty between two ticks
  KvEventLog kv_events_;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;  // under stats_mutex_, as of the last tick; rate_ too
  ServiceRate rate_;

  // Last, so that it is gone, and calls back no more, before the rest is.
  std::unique_ptr<Executor> executor_;
  std::thread engine_;
  std::thread output_;
};

StatusOr<RequestId> EngineThread::Runtime::Submit(Request request,
                                                  std::shared_ptr<OutputSink> sink) {
  CHECK(sink != nullptr, "a request without a sink");
  const int32_t sequences = request.sequences;
  Status status = Refusal(request);
  if (status.ok()) status = places_.TryTake(request.tenant, sequences);
  if (!status.ok()) {
    requests_refused_.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  sink = places_.Placed(std::move(sink), request.tenant);
  const int64_t now_ns = clock_.NowNs();
  RequestId id;
  Wake([&] {
    id = RequestId{++requests_given_};
    request.id = id;
    outbox_.Open(id, sequences, std::move(sink));
    inbox_.submitted.push_back({std::make_shared<const Request>(std::move(request)), now_ns});
  });
  return id;
}

Status EngineThread::Runtime::Refusal(const Request& request) const {
  if (draining_) return Unavailable("the engine is shutting down");
  const std::string stall = watch_.Stall(clock_.NowNs());
  if (!stall.empty()) return Unavailable("{}", stall);
  // One request at a time may try whether steps succeed again.
  const int32_t failures = step_failures_;
  if (failures >= kStepFailuresMax && places_.taken() > 0) {
    return Unavailable("the last {} steps have failed", failures);
  }
  return Validate(request, info_.limits);
}

void EngineThread::Runtime::Cancel(RequestId id) {
  // Once for each request, which bounds the inbox.
  if (!outbox_.TryMarkCancelled(id)) return;
  Wake([&] { inbox_.cancelled.push_back(id); });
}

void EngineThread::Runtime::Stop(RequestId id, int32_t sequence_index) {
  if (!outbox_.TryMarkStopped(id, sequence_index)) return;
  Wake([&] { inbox_.stopped.push_back({id, sequence_index}); });
}

void EngineThread::Runtime::Drain(int64_t deadline_ns) {
  draining_ = true;
  Wake([&] {
    inbox_.drain_deadline_ns = std::min(inbox_.drain_deadline_ns.value_or(kNever), deadline_ns);
  });
}

EngineStats EngineThread::Runtime::Stats() const {
  EngineStats stats;
  {
    std::lock_guard lock(stats_mutex_);
    stats = stats_;
  }
  stats.requests_refused += requests_refused_.load(std::memory_order_relaxed);
  return stats;
}

EngineReadiness EngineThread::Runtime::Readiness() const {
  if (draining_) return {.reason = "the engine is shutting down"};
  std::string stall = watch_.Stall(clock_.NowNs());
  if (!stall.empty()) return {.reason = std::move(stall)};
  const int32_t failures = step_failures_;
  if (failures >= kStepFailuresMax) {
    return {.reason = fmt::format("the last {} steps have failed", failures)};
  }
  return {.ready = true};
}

int32_t EngineThread::Runtime::RetryAfterSeconds() const {
  const int64_t now_ns = clock_.NowNs();
  std::lock_guard lock(stats_mutex_);
  // By then those who wait now have been served.
  const double waiting = static_cast<double>(std::max<int64_t>(1, stats_.requests_waiting));
  const double seconds = std::ceil(waiting / rate_.PerSecond(now_ns));
  return static_cast<int32_t>(std::clamp(seconds, 1.0, double{kRetryAfterSecondsMax}));
}

void EngineThread::Runtime::RunEngine() {
  SetThreadName("engine");
  int64_t wake_ns = kNever;
  while (true) {
    const bool goes_on = WaitForInputs(wake_ns);
    if (!goes_on) inputs_.drain_deadline_ns = 0;
    wake_ns = Tick();
    if (!goes_on) return;
  }
}

bool EngineThread::Runtime::WaitForInputs(int64_t wake_ns) {
  std::unique_lock lock(inbox_mutex_);
  const auto filled = [this] { return inbox_filled_; };
  if (wake_ns == kNever) {
    inbox_changed_.wait(lock, filled);
  } else {
    const int64_t wait_ns = std::clamp<int64_t>(wake_ns - clock_.NowNs(), 0, kWaitNsMax);
    inbox_changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns), filled);
  }
  watch_.tick().Begin(clock_.NowNs());
  watch_.inbox().End();
  inbox_filled_ = false;
  std::swap(inputs_, inbox_);
  return !stopping_;
}

int64_t EngineThread::Runtime::Tick() {
  while (std::optional<StepResult> result = executor_->Poll()) {
    if (!result->status.ok()) {
      Log(LogLevel::kError, "step {} failed: {}", result->step_id, Message(result->status));
    }
    inputs_.results.push_back(std::move(*result));
  }
  const int64_t now_ns = clock_.NowNs();
  const bool stepped = !inputs_.results.empty();
  EngineActions& actions = core_.Tick(now_ns, inputs_);
  step_failures_ = core_.step_failures();
  // A step that came back is progress; the time of the next one runs from here.
  if (core_.steps_in_flight() == 0) {
    watch_.step().End();
  } else if (stepped || !actions.steps.empty()) {
    stepped ? watch_.step().Begin(now_ns) : watch_.step().BeginIfIdle(now_ns);
  }
  for (ScheduledStep& step : actions.steps) executor_->Submit(std::move(step));
  kv_events_.Append(core_.kv_events());
  PublishStats(now_ns);
  outbox_.Put(actions.outputs);
  watch_.tick().End();
  return actions.wake_ns;
}

void EngineThread::Runtime::PublishStats(int64_t now_ns) {
  EngineStats stats = core_.stats();
  const uint64_t finished = RequestsFinished(stats);
  std::lock_guard lock(stats_mutex_);
  std::swap(stats_, stats);
  rate_.Observe(now_ns, finished);
}

void EngineThread::Runtime::RunOutput() {
  SetThreadName("output");
  while (std::optional<Outbox::Delivery> delivery = outbox_.Take()) {
    const RequestId id = delivery->output.request;
    const bool finished = delivery->output.finish.has_value();
    watch_.delivery().Begin(clock_.NowNs());
    delivery->sink->OnOutput(std::move(delivery->output));
    watch_.delivery().End();
    delivery.reset();
    if (!finished) continue;
    outbox_.Finish(id);
  }
}

StatusOr<std::unique_ptr<EngineThread>> EngineThread::Create(const EngineOptions& options,
                                                             const ModelLimits& model,
                                                             std::unique_ptr<Executor> executor,
                                                             const Clock& clock) {
  RETURN_IF_ERROR(ValidateParts(options, model, executor.get()));
  const int64_t kv_tokens_max =
      int64_t{executor->kv_blocks()} * executor->kv_layout().tokens_per_block;
  const EngineInfo info{.limits = {.vocab_size = model.vocab_size,
                                   .context_tokens_max = model.context_tokens_max,
                                   .kv_tokens_max = kv_tokens_max,
                                   .sequences_max = options.sequences_max},
                        .numeric_class = executor->numeric_class().name};
  return std::unique_ptr<EngineThread>(
      new EngineThread(std::make_unique<Runtime>(options, info, std::move(executor), clock)));
}

EngineThread::EngineThread(std::unique_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}
EngineThread::~EngineThread() = default;

const EngineInfo& EngineThread::info() const {
  return runtime_->info();
}
StatusOr<RequestId> EngineThread::Submit(Request request, std::shared_ptr<OutputSink> sink) {
  return runtime_->Submit(std::move(request), std::move(sink));
}
void EngineThread::Cancel(RequestId id) {
  runtime_->Cancel(id);
}
void EngineThread::Stop(RequestId id, int32_t sequence_index) {
  runtime_->Stop(id, sequence_index);
}
EngineStats EngineThread::Stats() const {
  return runtime_->Stats();
}
EngineReadiness EngineThread::Readiness() const {
  return runtime_->Readiness();
}
KvEventBatch EngineThread::ReadKvEvents(uint64_t from, int32_t events_max) const {
  return runtime_->kv_events().Read(from, events_max);
}
uint64_t EngineThread::WaitKvEvent(uint64_t number, int64_t timeout_ns) const {
  return runtime_->kv_events().Wait(number, timeout_ns);
}
int32_t EngineThread::RetryAfterSeconds() const {
  return runtime_->RetryAfterSeconds();
}
void EngineThread::Drain(int64_t deadline_ns) {
  runtime_->Drain(deadline_ns);
}
bool EngineThread::WaitIdle(int64_t timeout_ns) const {
  return runtime_->WaitIdle(timeout_ns);
}

}  // namespace polysil
