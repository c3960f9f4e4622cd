#include "exec/local_executor.h"

#include <utility>

#include "exec/model_runner.h"
#include "exec/worker.h"

namespace polysil {
namespace {

// Sums of 8 by 16 bits over a head fit 32.
constexpr int32_t kInt8HeadSizeMax = 512;

}  // namespace

StatusOr<std::unique_ptr<LocalExecutor>> LocalExecutor::Create(std::unique_ptr<Device> device,
                                                               const Checkpoint& checkpoint,
                                                               LocalExecutorOptions options) {
  if (options.kv_dtype != DType::kF16 && options.kv_dtype != DType::kF32 &&
      options.kv_dtype != DType::kI8) {
    return InvalidArgument("the KV cannot be kept as {}; F16, F32 and I8 can",
                           Info(options.kv_dtype).name);
  }
  if (options.limits.steps_in_flight_max < 1) {
    return InvalidArgument("steps_in_flight_max is {}, not 1 or more",
                           options.limits.steps_in_flight_max);
  }
  const ModelSpec& spec = checkpoint.spec();
  if (options.kv_dtype == DType::kI8 &&
      (spec.head_size % 2 != 0 || spec.head_size > kInt8HeadSizeMax)) {
    return InvalidArgument("the KV of heads of {} cannot be kept as I8; even ones up to {} can",
                           spec.head_size, kInt8HeadSizeMax);
  }
  const KvLayout layout{.layers = spec.layer_count(),
                        .kv_heads = spec.kv_heads,
                        .head_size = spec.head_size,
                        .tokens_per_block = options.kv_block_tokens,
                        .dtype = options.kv_dtype};
  // "cpu/q8" + weights + KV: what must agree for equal tokens.
  NumericClass numeric_class{fmt::format("{}/{}/{}", device->info().numeric_class,
                                         checkpoint.WeightTypes(), Info(options.kv_dtype).name)};
  ASSIGN_OR_RETURN(
      std::unique_ptr<ModelRunner> runner,
      ModelRunner::Create(
          std::move(device), spec, checkpoint.weights(),
          {.limits = options.limits, .kv_blocks = options.kv_blocks, .kv_layout = layout}));
  checkpoint.DropPages();
  if (options.limits.kv_host_blocks > 0) {
    options.limits.block_copy_rows = runner->MeasureBlockCopyRows();
  }
  auto worker =
      std::make_unique<Worker>(std::move(runner), "worker-0", options.limits.steps_in_flight_max);
  return std::unique_ptr<LocalExecutor>(
      new LocalExecutor(options, layout, std::move(numeric_class), std::move(worker)));
}

LocalExecutor::LocalExecutor(const LocalExecutorOptions& options, const KvLayout& kv_layout,
                             NumericClass numeric_class, std::unique_ptr<Worker> worker)
    : options_(options),
      kv_layout_(kv_layout),
      numeric_class_(std::move(numeric_class)),
      worker_(std::move(worker)) {}

LocalExecutor::~LocalExecutor() = default;

void LocalExecutor::Submit(ScheduledStep step) {
  worker_->Submit(std::move(step));
}
std::optional<StepResult> LocalExecutor::Poll() {
  return worker_->Poll();
}
void LocalExecutor::SetNotify(std::function<void()> notify) {
  worker_->SetNotify(std::move(notify));
}
void LocalExecutor::SetHeartbeat(std::function<void()> beat) {
  worker_->SetHeartbeat(std::move(beat));
}

}  // namespace polysil
