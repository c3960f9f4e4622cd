// ModelRunner: one step on one device. Keeps what the engine sends only once (tokens, block tables,
// sampling parameters), applies a ScheduledStep's differences to it, runs the Decoder and the
// Sampler, and says what came out. Decides nothing about who runs. Owned by Worker, on the worker
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "exec/sampler.h"
#include "exec/token_counts.h"
#include "model/decoder.h"
#include "polysil/base/clock.h"
#include "polysil/base/status.h"
#include "polysil/core/kv_layout.h"
#include "polysil/core/step.h"
#include "polysil/device/backend.h"

namespace polysil {

struct ModelRunnerOptions {
  StepLimits limits;
  int32_t kv_blocks = 0;
  KvLayout kv_layout;
};

class ModelRunner final {
 public:
  // Loads the weights, which the device copies, and allocates the KV pool.
  static StatusOr<std::unique_ptr<ModelRunner>> Create(std::unique_ptr<Device> device,
                                                       const ModelSpec& spec,
                                                       const ModelWeights& weights,
                                                       const ModelRunnerOptions& options);
  ~ModelRunner();
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  // Never throws. A step that breaks the protocol changes nothing but by its `ended` and `started`.
  // Of a step that failed while it ran, and of a row that failed, no sequence can go on: where
  // later steps run it, because they were on their way, its rows fail alone. Gives the step back.
  StepResult Run(ScheduledStep step);

  // What copying one block from the host tier costs, in rows of a prefill: both are timed, in
  // blocks that nobody uses yet. Only with a host tier, and before the first Run.
  double MeasureBlockCopyRows();

  // Called within Run after each operation. Set before the first Run.
  void SetHeartbeat(std::function<void()> beat) { decoder_->SetHeartbeat(std::move(beat)); }

 private:
  struct Sequence {
    SequenceStart start;
    Status refused;  // why no row of it can run: values out of range, or one failed before
    std::vector<TokenId> tokens;        // prompt and output, as far as known
    std::vector<BlockId> blocks;        // covers the positions computed
    std::optional<TokenCounts> counts;  // where a penalty is set
    // [p]: of the prompt's token p; unset where not computed yet. Empty unless asked for. Kept, so
    // that a recomputation need not do them again.
    std::vector<std::optional<TokenLogprobs>> prompt_logprobs;
  };
  // One row of logits that somebody waits for.
  struct LogitRow {
    int32_t row = 0;          // of the batch
    size_t result_index = 0;  // of the step
    int32_t position = 0;     // of the token that these logits predict
    bool sample = false;      // else: a prompt log-probability
  };

  ModelRunner(std::unique_ptr<Device> device, const ModelSpec& spec,
              const ModelRunnerOptions& options);
  Status Load(const ModelWeights& weights);

  void Apply(const ScheduledStep& step);
  void Start(const SequenceStart& start);
  void EndSequencesOf(const ScheduledStep& step, const Status& reason);
  Status CheckStep(const ScheduledStep& step);
  Status CheckCopy(const KvCopy& copy) const;
  Status CheckSequence(const ScheduledStep& step, const ScheduledSequence& scheduled,
                       const Sequence& sequence) const;
  void RunCopies(const ScheduledStep& step);
  std::byte* BytesOf(const KvPlace& place);
  void ExtendBlocks(const ScheduledStep& step);
  Status Compute(const ScheduledStep& step, StepResult& result);
  void BuildBatch(const ScheduledStep& step, StepResult& result);
  void WantLogits(const ScheduledSequence& scheduled, const Sequence& sequence, int32_t row_begin,
                  size_t result_index);
  void RunLogitRows(StepResult& result);
  Status UseLogits(const LogitRow& wanted, std::span<const float> logits, SequenceResult& result);
  void Finish(const ScheduledStep& step, StepResult& result);
  Status DeliverPromptLogprobs(const ScheduledSequence& scheduled, const Sequence& sequence,
                               SequenceResult& result) const;

  const std::unique_ptr<Device> device_;
  const ModelSpec spec_;
  const ModelRunnerOptions options_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DeviceBuffer> kv_memory_;
  std::unique_ptr<DeviceBuffer> kv_host_memory_;  // of the host tier; null: there is none
  KvPool kv_pool_;
  Sampler sampler_;
  SteadyClock clock_;
  std::map<SequenceId, Sequence> sequences_;
  // Of the step at hand; kept to save allocations.
  std::vector<SequenceId> ids_;
  std::vector<Sequence*> batch_;  // one per sequence of the step
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<AttentionSequence> attention_;
  std::vector<LogitRow> logit_rows_;
  std::vector<int32_t> rows_;
};

}  // namespace polysil
