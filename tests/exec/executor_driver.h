// ExecutorDriver: the least of an engine, for tests: keeps sequences and blocks, hands steps to a
// LocalExecutor one at a time and waits for each. It decides nothing: the test says who runs how
// many rows.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "exec/local_executor.h"
#include "model/checkpoint.h"
#include "polysil/core/step.h"

namespace polysil {

// What the engine would know of a sequence.
struct DrivenSequence {
  SequenceId id;
  int32_t index = 0;
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;  // prompt and output
  int32_t tokens_computed = 0;
  std::vector<BlockId> blocks;
  size_t blocks_sent = 0;
  bool started = false;
  bool replaced = true;
  Status status;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;

  std::vector<TokenId> output() const {
    return {tokens.begin() + static_cast<int64_t>(request->prompt.size()), tokens.end()};
  }
  int32_t rows_left() const { return static_cast<int32_t>(tokens.size()) - tokens_computed; }
};

struct DriverOptions {
  int32_t threads = 2;
  CpuActivations activations = CpuActivations::kF32;
  DType kv_dtype = DType::kF32;
  int32_t tokens_max = 256;
  int32_t sequences_max = 32;
  int32_t kv_blocks = 256;
  int32_t kv_host_blocks = 0;
};

class ExecutorDriver final {
 public:
  ExecutorDriver(const Checkpoint& checkpoint, const DriverOptions& options) {
    auto device = CreateCpuDevice({.threads = options.threads, .activations = options.activations});
    EXPECT_TRUE(device.ok()) << device.status();
    auto executor = LocalExecutor::Create(*std::move(device), checkpoint,
                                          {.limits = {.tokens_max = options.tokens_max,
                                                      .sequences_max = options.sequences_max,
                                                      .kv_host_blocks = options.kv_host_blocks},
                                           .kv_blocks = options.kv_blocks,
                                           .kv_dtype = options.kv_dtype});
    EXPECT_TRUE(executor.ok()) << executor.status();
    executor_ = *std::move(executor);
    executor_->SetNotify([this] {
      std::lock_guard lock(mutex_);
      ++notified_;
      changed_.notify_all();
    });
    // Handed out from the end, every other one first: no test can rely on their order.
    for (int32_t i = 0; i < options.kv_blocks; i += 2) free_.push_back({i});
    for (int32_t i = 1; i < options.kv_blocks; i += 2) free_.push_back({i});
  }

  LocalExecutor& executor() { return *executor_; }

  DrivenSequence Add(Request request, int32_t index = 0) {
    auto shared = std::make_shared<const Request>(std::move(request));
    return {.id = {++last_id_}, .index = index, .request = shared, .tokens = shared->prompt};
  }

  // One step in which each sequence computes so many rows. Choosing a token follows from the rows.
  StepResult Step(const std::vector<std::pair<DrivenSequence*, int32_t>>& plan) {
    ScheduledStep step{.step_id = ++last_step_, .ended = std::exchange(ended_, {})};
    for (const auto& [sequence, rows] : plan) {
      if (!sequence->started)
        step.started.push_back({sequence->id, sequence->index, sequence->request});
      sequence->started = true;
      Schedule(*sequence, rows, step);
    }
    StepResult result = Run(std::move(step));
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.sequences.size(), plan.size());
    for (size_t i = 0; i < result.sequences.size(); ++i) {
      Take(result.sequences[i], *plan[i].first, plan[i].second);
    }
    return result;
  }

  // Any step, as it is.
  StepResult Run(ScheduledStep step) {
    const int64_t id = step.step_id;
    executor_->Submit(std::move(step));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return notified_ > taken_; });
    ++taken_;
    std::optional<StepResult> result = executor_->Poll();
    EXPECT_TRUE(result.has_value());
    EXPECT_EQ(result->step_id, id);
    return *std::move(result);
  }

  // Prompt in chunks, then token by token, alone.
  void Generate(DrivenSequence& sequence, int32_t outputs, int32_t chunk = 1 << 20) {
    while (static_cast<int32_t>(sequence.output().size()) < outputs && sequence.status.ok()) {
      Step({{&sequence, std::min(chunk, sequence.rows_left())}});
    }
  }

  // As a scheduler does when blocks run out: the KV is lost, the tokens are kept.
  void Preempt(DrivenSequence& sequence) {
    free_.insert(free_.end(), sequence.blocks.begin(), sequence.blocks.end());
    sequence.blocks.clear();
    sequence.blocks_sent = 0;
    sequence.tokens_computed = 0;
    sequence.replaced = true;
  }

  // As a prefix cache does: the first blocks are another sequence's, already computed.
  void ShareBlocks(const DrivenSequence& from, DrivenSequence& to, int32_t blocks) {
    to.blocks.assign(from.blocks.begin(), from.blocks.begin() + blocks);
    to.tokens_computed = blocks * executor_->kv_layout().tokens_per_block;
  }

  void End(const DrivenSequence& sequence) { ended_.push_back(sequence.id); }

  void Schedule(DrivenSequence& sequence, int32_t rows, ScheduledStep& step) {
    const int32_t end = sequence.tokens_computed + rows;
    while (static_cast<int32_t>(sequence.blocks.size()) * executor_->kv_layout().tokens_per_block <
           end) {
      sequence.blocks.push_back(free_.back());
      free_.pop_back();
    }
    step.Add({.id = sequence.id,
              .tokens_computed = sequence.tokens_computed,
              .tokens = rows,
              .blocks_replaced = std::exchange(sequence.replaced, false),
              .sample = end == static_cast<int32_t>(sequence.tokens.size())},
             std::span(sequence.blocks).subspan(sequence.blocks_sent));
    sequence.blocks_sent = sequence.blocks.size();
  }

  int64_t next_step_id() { return ++last_step_; }

 private:
  void Take(SequenceResult& result, DrivenSequence& sequence, int32_t rows) {
    EXPECT_EQ(result.id, sequence.id);
    sequence.status = result.status;
    if (!result.status.ok()) return;
    sequence.tokens_computed += rows;
    if (result.token) sequence.tokens.push_back(*result.token);
    if (result.logprobs) sequence.logprobs.push_back(*std::move(result.logprobs));
    for (TokenLogprobs& logprobs : result.prompt_logprobs) {
      sequence.prompt_logprobs.push_back(std::move(logprobs));
    }
  }

  std::unique_ptr<LocalExecutor> executor_;
  std::vector<BlockId> free_;
  std::vector<SequenceId> ended_;
  uint64_t last_id_ = 0;
  int64_t last_step_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t notified_ = 0;
  int64_t taken_ = 0;
};

inline bool operator==(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob;
}
inline bool operator==(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.chosen == b.chosen && a.top == b.top;
}

}  // namespace polysil
