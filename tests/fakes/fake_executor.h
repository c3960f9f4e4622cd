// FakeDevice and FakeExecutor: an executor without a model, strict about everything the engine may
// get wrong. Each KV slot holds the fingerprint of all tokens up to it, and the token a row chooses
// depends on the fingerprint it reads back through its block table. So one block given to two
// sequences, one published too early or one table out of order gives wrong tokens and a named
// violation.
//
// The token at a position depends on (tokens before it, seed, sequence index) alone: SoloTokens is
// what a request must get whatever runs beside it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "polysil/exec/executor.h"

namespace polysil {

// splitmix64's finisher over two words.
inline uint64_t FakeMix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return (x ^ (x >> 31)) | 1;  // never 0, which marks an empty slot
}

inline TokenId FakeToken(uint64_t fingerprint, const SamplingParams& sampling, int32_t index,
                         int32_t vocab_size) {
  const uint64_t draw = FakeMix(FakeMix(fingerprint, sampling.seed), static_cast<uint64_t>(index));
  return static_cast<TokenId>(draw % static_cast<uint64_t>(vocab_size));
}

// What sequence `index` of the request gets alone. tokens_limit: of prompt and output.
inline std::vector<TokenId> SoloTokens(const Request& request, int32_t index, int32_t vocab_size,
                                       int32_t tokens_limit) {
  uint64_t fingerprint = 0;
  for (const TokenId id : request.prompt) {
    fingerprint = FakeMix(fingerprint, static_cast<uint64_t>(id));
  }
  std::vector<TokenId> output;
  const int32_t room = tokens_limit - static_cast<int32_t>(request.prompt.size());
  const int32_t tokens_max = std::min(request.sampling.tokens_max, room);
  while (static_cast<int32_t>(output.size()) < tokens_max) {
    const TokenId id = FakeToken(fingerprint, request.sampling, index, vocab_size);
    output.push_back(id);
    fingerprint = FakeMix(fingerprint, static_cast<uint64_t>(id));
    const bool ends = std::ranges::binary_search(request.end_token_ids, id);
    if (ends && static_cast<int32_t>(output.size()) > request.sampling.tokens_min) break;
  }
  return output;
}

// How long a step takes. Rows count with those that pad them to a bucket.
struct FakeCost {
  int64_t step_ns = 1'000'000;
  int64_t row_ns = 0;
  int64_t position_ns = 0;  // looked at by a row
};

struct FakeDeviceOptions {
  StepLimits limits;
  int32_t blocks = 64;
  int32_t tokens_per_block = 4;
  int32_t vocab_size = 1000;
  FakeCost cost;
};

// What one run of a step shall go wrong with.
struct FakeFaults {
  Status step;                           // not OK: the whole step fails
  std::map<SequenceId, Status> rows;     // these rows fail
  std::map<SequenceId, TokenId> tokens;  // these rows choose so
  double slowness = 1.0;                 // the step takes so many times as long
};

class FakeDevice final {
 public:
  explicit FakeDevice(FakeDeviceOptions options)
      : options_(std::move(options)),
        slots_(static_cast<size_t>(options_.blocks) *
               static_cast<size_t>(options_.tokens_per_block)),
        host_slots_(static_cast<size_t>(options_.limits.kv_host_blocks) *
                    static_cast<size_t>(options_.tokens_per_block)) {}

  StepResult Run(ScheduledStep step, const FakeFaults& faults = {}) {
    CheckLimits(step);
    for (const SequenceId id : step.ended) {
      Expect(sequences_.erase(id) == 1, "step {} ends sequence {}, which is unknown", step.step_id,
             id.value);
    }
    for (const SequenceStart& start : step.started) {
      Known known{.start = start, .tokens = start.request->prompt};
      Expect(sequences_.emplace(start.id, std::move(known)).second, "sequence {} started twice",
             start.id.value);
    }
    for (const KvCopy& copy : step.copies) RunCopy(step, copy, faults);
    StepResult result{.step_id = step.step_id,
                      .status = faults.step,
                      .sequences = std::move(step.results_memory),
                      .duration_ns = DurationNs(step, faults.slowness)};
    for (const ScheduledSequence& row : step.sequences) {
      SequenceResult row_result = RunRow(step, row, faults);
      if (faults.step.ok()) result.sequences.push_back(std::move(row_result));
    }
    result.step = std::move(step);
    return result;
  }

  // The first thing the engine did wrong; empty: nothing.
  const std::string& violation() const { return violation_; }
  // Of a sequence that was started and not ended.
  const std::vector<BlockId>& blocks(SequenceId id) const { return sequences_.at(id).table; }
  int64_t rows_run() const { return rows_run_; }
  int64_t copies_out() const { return copies_out_; }
  int64_t copies_in() const { return copies_in_; }

  int64_t DurationNs(const ScheduledStep& step, double slowness = 1.0) const {
    const auto bucket = std::ranges::lower_bound(options_.limits.token_buckets, step.tokens_total);
    const bool padded = bucket != options_.limits.token_buckets.end();
    const int64_t rows = padded ? *bucket : step.tokens_total;
    int64_t positions = 0;
    for (const ScheduledSequence& row : step.sequences) {
      for (int32_t i = 1; i <= row.tokens; ++i) positions += row.tokens_computed + i;
    }
    const FakeCost& cost = options_.cost;
    const int64_t ns = cost.step_ns + rows * cost.row_ns + positions * cost.position_ns;
    return static_cast<int64_t>(static_cast<double>(ns) * slowness);
  }

 private:
  struct Known {
    SequenceStart start;
    std::vector<TokenId> tokens;
    std::vector<BlockId> table;
    int32_t tokens_computed = 0;
    bool broken = false;  // a row of it failed: nothing more is expected of it
  };

  template <typename... Args>
  void Expect(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition && violation_.empty()) {
      violation_ = fmt::format(format, std::forward<Args>(args)...);
    }
  }

  static int32_t Cap(int32_t limit, const std::vector<int32_t>& buckets) {
    return buckets.empty() ? limit : std::min(limit, buckets.back());
  }

  void CheckLimits(const ScheduledStep& step) {
    const StepLimits& limits = options_.limits;
    int32_t tokens = 0;
    int32_t prefills = 0;
    std::set<SequenceId> ids;
    for (const ScheduledSequence& row : step.sequences) {
      Expect(row.tokens > 0, "step {} has a row of {} tokens", step.step_id, row.tokens);
      Expect(ids.insert(row.id).second, "step {} has sequence {} twice", step.step_id,
             row.id.value);
      tokens += row.tokens;
      prefills += row.tokens > 1 ? 1 : 0;
    }
    const int32_t sequences = static_cast<int32_t>(step.sequences.size());
    ++steps_run_;
    Expect(steps_run_ == step.step_id, "step {} came as number {}", step.step_id, steps_run_);
    Expect(sequences > 0, "step {} is empty", step.step_id);
    Expect(tokens == step.tokens_total, "step {} has {} tokens and says {}", step.step_id, tokens,
           step.tokens_total);
    Expect(tokens <= Cap(limits.tokens_max, limits.token_buckets), "step {} has {} tokens",
           step.step_id, tokens);
    Expect(sequences <= Cap(limits.sequences_max, limits.sequence_buckets),
           "step {} has {} sequences", step.step_id, sequences);
    Expect(prefills <= limits.prefill_sequences_max, "step {} has {} prefills", step.step_id,
           prefills);
    Expect(limits.mixes_prefill_and_decode || prefills == 0 || prefills == sequences,
           "step {} mixes {} prefills into {} sequences", step.step_id, prefills, sequences);
  }

  void RunCopy(const ScheduledStep& step, const KvCopy& copy, const FakeFaults& faults) {
    Expect(copy.from.tier != copy.to.tier, "step {} copies within a tier", step.step_id);
    const int32_t size = options_.tokens_per_block;
    for (int32_t i = 0; i < size && violation_.empty(); ++i) {
      // What a failed copy leaves behind is anybody's guess.
      SlotAt(copy.to, i) = faults.step.ok() ? SlotAt(copy.from, i) : 0xBAD;
    }
    ++(copy.to.tier == KvTier::kHost ? copies_out_ : copies_in_);
  }

  uint64_t& SlotAt(const KvPlace& place, int32_t index) {
    std::vector<uint64_t>& slots = place.tier == KvTier::kHost ? host_slots_ : slots_;
    return slots.at(static_cast<size_t>(place.block.value) *
                        static_cast<size_t>(options_.tokens_per_block) +
                    static_cast<size_t>(index));
  }

  SequenceResult RunRow(const ScheduledStep& step, const ScheduledSequence& row,
                        const FakeFaults& faults) {
    SequenceResult result{.id = row.id};
    const auto found = sequences_.find(row.id);
    Expect(found != sequences_.end(), "step {} runs sequence {}, which is unknown", step.step_id,
           row.id.value);
    if (found == sequences_.end()) return result;
    Known& known = found->second;
    if (row.blocks_replaced) {
      known.table.clear();
      known.tokens_computed = row.tokens_computed;  // from the prefix cache
    }
    const std::span<const BlockId> blocks_new = step.BlocksNew(row);
    known.table.insert(known.table.end(), blocks_new.begin(), blocks_new.end());
    if (known.broken) {
      result.status = Internal("sequence {} failed before", row.id.value);
      return result;
    }
    const auto fault = faults.rows.find(row.id);
    if (!faults.step.ok() || fault != faults.rows.end()) {
      // What a failed row leaves behind is anybody's guess.
      for (int32_t i = 0; i < row.tokens; ++i) Write(known, row.tokens_computed + i, 0xBAD);
      known.broken = true;
      if (fault != faults.rows.end()) result.status = fault->second;
      return result;
    }
    Compute(step, row, known, result);
    const auto forced = faults.tokens.find(row.id);
    if (result.token && forced != faults.tokens.end()) {
      result.token = forced->second;
      known.tokens.back() = forced->second;
    }
    return result;
  }

  void Compute(const ScheduledStep& step, const ScheduledSequence& row, Known& known,
               SequenceResult& result) {
    const SamplingParams& sampling = known.start.request->sampling;
    const int32_t end = row.tokens_computed + row.tokens;
    Expect(row.tokens_computed == known.tokens_computed, "sequence {} is at {}, step {} says {}",
           row.id.value, known.tokens_computed, step.step_id, row.tokens_computed);
    Expect(end <= static_cast<int32_t>(known.tokens.size()), "step {} runs sequence {} to {} of {}",
           step.step_id, row.id.value, end, known.tokens.size());
    Expect(end <= static_cast<int32_t>(known.table.size()) * options_.tokens_per_block,
           "step {}: sequence {} has {} blocks for {} tokens", step.step_id, row.id.value,
           known.table.size(), end);
    if (!violation_.empty()) return;
    uint64_t fingerprint = 0;
    for (int32_t position = 0; position < end; ++position) {
      const TokenId token = known.tokens[static_cast<size_t>(position)];
      fingerprint = FakeMix(fingerprint, static_cast<uint64_t>(token));
      if (position >= row.tokens_computed) {
        Write(known, position, fingerprint);
        if (sampling.prompt_logprobs && position > 0 &&
            position < static_cast<int32_t>(known.start.request->prompt.size())) {
          result.prompt_logprobs.push_back({.chosen = {token, -static_cast<float>(position)}});
        }
      } else {
        Expect(Slot(known, position) == fingerprint,
               "step {}: sequence {} reads what is not its position {} from block {}", step.step_id,
               row.id.value, position,
               known.table[static_cast<size_t>(position / options_.tokens_per_block)].value);
      }
    }
    rows_run_ += row.tokens;
    known.tokens_computed = end;
    Expect(row.sample == (end == static_cast<int32_t>(known.tokens.size())),
           "step {}: sequence {} at {} of {}, sample is {}", step.step_id, row.id.value, end,
           known.tokens.size(), row.sample);
    if (!row.sample) return;
    result.token =
        FakeToken(Slot(known, end - 1), sampling, known.start.sequence_index, options_.vocab_size);
    known.tokens.push_back(*result.token);
    if (sampling.logprobs) result.logprobs = TokenLogprobs{.chosen = {*result.token, -1.0F}};
  }

  uint64_t& Slot(const Known& known, int32_t position) {
    const int32_t size = options_.tokens_per_block;
    const int32_t block = known.table.at(static_cast<size_t>(position / size)).value;
    return slots_.at(static_cast<size_t>(block) * static_cast<size_t>(size) +
                     static_cast<size_t>(position % size));
  }
  void Write(const Known& known, int32_t position, uint64_t fingerprint) {
    Slot(known, position) = fingerprint;
  }

  const FakeDeviceOptions options_;
  std::vector<uint64_t> slots_;       // [blocks, tokens_per_block]
  std::vector<uint64_t> host_slots_;  // [kv_host_blocks, tokens_per_block]
  std::map<SequenceId, Known> sequences_;
  int64_t steps_run_ = 0;
  int64_t rows_run_ = 0;
  int64_t copies_out_ = 0;  // to the host tier
  int64_t copies_in_ = 0;
  std::string violation_;
};

// FakeDevice behind the Executor seam. By default a worker thread of its own runs each step at
// once; with `manual`, steps wait until the test lets one through.
class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(FakeDeviceOptions options, bool manual = false)
      : limits_(options.limits),
        layout_{.layers = 1,
                .kv_heads = 1,
                .head_size = 1,
                .tokens_per_block = options.tokens_per_block},
        blocks_(options.blocks),
        manual_(manual),
        device_(std::move(options)) {
    if (!manual_) worker_ = std::thread([this] { RunAll(); });
  }
  ~FakeExecutor() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
  }

  const StepLimits& limits() const override { return limits_; }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return blocks_; }
  const NumericClass& numeric_class() const override { return numeric_class_; }

  void Submit(ScheduledStep step) override {
    {
      std::lock_guard lock(mutex_);
      submitted_.push_back(std::move(step));
    }
    changed_.notify_all();
  }
  std::optional<StepResult> Poll() override {
    std::lock_guard lock(mutex_);
    if (finished_.empty()) return std::nullopt;
    StepResult result = std::move(finished_.front());
    finished_.pop_front();
    return result;
  }
  void SetNotify(std::function<void()> notify) override { notify_ = std::move(notify); }
  void SetHeartbeat(std::function<void()> beat) override { beat_ = std::move(beat); }

  // A part of the step at hand is done.
  void Beat() { beat_(); }

  // For `manual`: waits for a submitted step, runs it, reports it.
  void RunOne(const FakeFaults& faults = {}) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !submitted_.empty(); });
      FinishFront(faults);
    }
    notify_();
  }
  // Waits until a step was submitted and has not run.
  void WaitForStep() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !submitted_.empty(); });
  }
  // Steps from now on fail, or (OK) do not.
  void FailSteps(Status status) {
    std::lock_guard lock(mutex_);
    step_status_ = std::move(status);
  }
  std::string violation() const {
    std::lock_guard lock(mutex_);
    return device_.violation();
  }

 private:
  void FinishFront(FakeFaults faults) {
    if (!step_status_.ok()) faults.step = step_status_;
    finished_.push_back(device_.Run(std::move(submitted_.front()), faults));
    submitted_.pop_front();
  }
  void RunAll() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !submitted_.empty(); });
        if (stopping_) return;
        FinishFront({});
      }
      notify_();
    }
  }

  const StepLimits limits_;
  const KvLayout layout_;
  const int32_t blocks_;
  const NumericClass numeric_class_{"fake"};
  const bool manual_;
  std::function<void()> notify_;
  std::function<void()> beat_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  FakeDevice device_;
  std::deque<ScheduledStep> submitted_;
  std::deque<StepResult> finished_;
  Status step_status_;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace polysil
