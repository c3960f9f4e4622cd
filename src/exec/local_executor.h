// LocalExecutor: the Executor over one device of this process. Limits, layout and numeric class are
// settled at creation; the steps run on a Worker thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "model/checkpoint.h"
#include "polysil/base/status.h"
#include "polysil/core/dtype.h"
#include "polysil/core/kv_layout.h"
#include "polysil/core/step.h"
#include "polysil/device/backend.h"
#include "polysil/exec/executor.h"

namespace polysil {

class Worker;

struct LocalExecutorOptions {
  StepLimits limits;
  int32_t kv_blocks = 0;
  int32_t kv_block_tokens = 16;
  DType kv_dtype = DType::kF16;  // or kF32, kI8
};

class LocalExecutor final : public Executor {
 public:
  // Loads the weights onto the device. `checkpoint` must outlive the executor: a device may read
  // weights in place. With a host tier, limits().block_copy_rows is measured.
  static StatusOr<std::unique_ptr<LocalExecutor>> Create(std::unique_ptr<Device> device,
                                                         const Checkpoint& checkpoint,
                                                         LocalExecutorOptions options);
  ~LocalExecutor() override;

  const StepLimits& limits() const override { return options_.limits; }
  const KvLayout& kv_layout() const override { return kv_layout_; }
  int32_t kv_blocks() const override { return options_.kv_blocks; }
  const NumericClass& numeric_class() const override { return numeric_class_; }
  void Submit(ScheduledStep step) override;
  std::optional<StepResult> Poll() override;
  void SetNotify(std::function<void()> notify) override;
  void SetHeartbeat(std::function<void()> beat) override;

 private:
  LocalExecutor(const LocalExecutorOptions& options, const KvLayout& kv_layout,
                NumericClass numeric_class, std::unique_ptr<Worker> worker);

  const LocalExecutorOptions options_;
  const KvLayout kv_layout_;
  const NumericClass numeric_class_;
  const std::unique_ptr<Worker> worker_;
};

}  // namespace polysil
