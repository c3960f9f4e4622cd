// SimExecutor: an Executor without a model, in virtual time. A step takes what its price says; a
// token is drawn from (seed, sequence index, position). It is strict about everything the engine
// may get wrong: the limits, the order of steps, who is started and ended, the block tables, and
// what lies in the blocks. The first wrong thing is kept as a violation. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "polysil/base/clock.h"
#include "polysil/exec/executor.h"
#include "sim/block_contents.h"
#include "sim/step_price.h"
#include "sim/violation.h"

namespace polysil {

// The token at `position` of an output, whatever runs beside it.
TokenId DrawToken(uint64_t seed, int32_t sequence_index, int32_t position, int32_t vocab_size);

struct SimExecutorOptions {
  StepLimits limits;
  int32_t blocks = 64;
  int32_t tokens_per_block = 16;
  int32_t vocab_size = 1000;
  StepPrice price;
  int64_t give_up_ns = 1'000'000'000;  // a lost result is reported as a failure after so long
};

// What goes wrong with one step.
struct StepFault {
  Status step;                       // not OK: it fails as a whole
  std::vector<size_t> rows_failing;  // indices into the step's sequences
  double slowdown = 1.0;
  bool lost = false;  // its result never comes
};

// Asked once for each step, in order.
using DrawStepFault = std::function<StepFault(const ScheduledStep& step)>;

struct SimExecutorCounts {
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t tokens_padding = 0;  // rows that buckets added
  int64_t busy_ns = 0;
};

class SimExecutor final : public Executor {
 public:
  // `clock` must outlive it.
  SimExecutor(SimExecutorOptions options, const Clock& clock, DrawStepFault draw_fault);

  const StepLimits& limits() const override { return options_.limits; }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return options_.blocks; }
  const NumericClass& numeric_class() const override { return numeric_class_; }
  void Submit(ScheduledStep step) override;
  std::optional<StepResult> Poll() override;
  void SetNotify(std::function<void()> notify) override { notify_ = std::move(notify); }
  void SetHeartbeat(std::function<void()>) override {}  // a step is done at once, when it is due

  // When Poll has the next result; absent: no step is in flight.
  std::optional<int64_t> next_result_ns() const;
  const std::optional<Violation>& violation() const { return violation_; }
  const SimExecutorCounts& counts() const { return counts_; }
  // Started, and not yet known to have ended.
  int32_t sequences_held() const { return static_cast<int32_t>(held_.size()); }
  // A row of it was made to fail.
  bool has_failed(RequestId request) const { return failed_.contains(request); }

 private:
  struct Held {
    SequenceStart start;
    std::vector<TokenId> output;
    std::vector<BlockContents::Hold> table;
    uint64_t fingerprint = 0;  // of [0, tokens_computed)
    int32_t tokens_computed = 0;
    int64_t step_id = 0;  // ran last
    bool broken = false;  // a row of it failed: nothing more is expected of it

    int32_t tokens_known() const {
      return static_cast<int32_t>(start.request->prompt.size() + output.size());
    }
  };
  struct Pending {
    int64_t ready_ns = 0;
    StepResult result;
  };

  template <typename... Args>
  bool Expect(bool condition, const char* check, fmt::format_string<Args...> format,
              Args&&... args) {
    if (!condition && !violation_) {
      violation_ = Violation{check, fmt::format(format, std::forward<Args>(args)...)};
    }
    return condition;
  }

  void RunCopies(const ScheduledStep& step);
  StepShape CheckLimits(const ScheduledStep& step);
  void StartAndEnd(const ScheduledStep& step);
  // The row's sequence with its table brought up to date; null: something is wrong.
  Held* Prepare(const ScheduledStep& step, const ScheduledSequence& row);
  SequenceResult RunRow(const ScheduledStep& step, const ScheduledSequence& row, Held* prepared,
                        bool fails);
  bool TakeBlocks(const ScheduledStep& step, const ScheduledSequence& row, Held& held);
  bool ReadPrefix(const ScheduledSequence& row, Held& held);
  bool WriteRows(const ScheduledStep& step, const ScheduledSequence& row, Held& held);
  void Break(const ScheduledSequence& row, Held& held);
  // Of [position, position + tokens) of prompt and output.
  static uint64_t Extend(const Held& held, uint64_t before, int32_t position, int32_t tokens);

  const SimExecutorOptions options_;
  const KvLayout layout_;
  const NumericClass numeric_class_{"sim"};
  const Clock& clock_;
  const DrawStepFault draw_fault_;
  std::function<void()> notify_;
  BlockContents contents_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Held>> held_;
  std::vector<Held*> rows_;  // of the step at hand
  absl::flat_hash_set<RequestId> failed_;
  std::deque<Pending> pending_;
  int64_t device_free_ns_ = 0;
  int64_t step_known_ = 0;  // the last whose result was polled
  SimExecutorCounts counts_;
  std::optional<Violation> violation_;
};

}  // namespace polysil
