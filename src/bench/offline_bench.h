// OfflineBench: how fast an engine computes prompts and tokens with nothing around it: the path of
// serving without text and network. Rows are those of llama-bench. It drives the engine from the
// calling thread and reads the clock on the engine's output thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "bench/model_work.h"
#include "polysil/base/clock.h"
#include "polysil/base/status.h"
#include "polysil/engine/engine.h"

namespace polysil {

// Which rows. A 0 among prompts, generates or streams asks for none.
struct OfflineOptions {
  std::vector<int32_t> prompts = {512, 2048};     // tokens of the prompt rows
  std::vector<int32_t> generates = {128};         // tokens of the generation rows
  std::vector<int32_t> depths = {0, 1500, 6000};  // tokens before either
  std::vector<int32_t> streams = {1, 4, 8, 16, 32};
  int32_t stream_prompt = 128;  // tokens of each stream's prompt
  int32_t repetitions = 5;
};

// What one row measures: a prompt of `tokens` behind `depth` others; or, with streams, that many
// generating `tokens` each behind a prompt of `depth` tokens.
struct OfflineRow {
  int32_t tokens = 0;
  int32_t depth = 0;
  int32_t streams = 0;      // 0: a prompt
  bool own_prompt = false;  // each stream's prompt is new, not the one all rows of this depth share
  std::string Name() const;  // "pp512", "tg128 @ 1500", "tg128 x 8 @ 128"
};

// The rows that options ask for. INVALID_ARGUMENT: one can never run under these limits.
StatusOr<std::vector<OfflineRow>> PlanRows(const OfflineOptions& options,
                                           const RequestLimits& limits);

struct OfflineResult {
  OfflineRow row;
  std::vector<double> rates;  // tokens a second, of each repetition in order
  Work work;                  // of the whole prompt, or of one step of all streams
  double work_tokens = 0.0;   // that it yields

  double Median() const;
  double Min() const;
  double Max() const;
  // Tokens a second that the machine could reach.
  double BoundRate(const CpuBounds& bounds) const;
};

class OfflineBench final {
 public:
  OfflineBench(Engine& engine, const ModelWork& work, const Clock& clock)
      : engine_(engine), work_(work), clock_(clock) {}

  // One round of all rows that is not counted, then `repetitions` rounds, so that a slow moment of
  // the machine does not fall on one row alone. `progress` hears of each row before it runs,
  // `between_rounds` is called before each counted round.
  StatusOr<std::vector<OfflineResult>> Run(const std::vector<OfflineRow>& rows, int32_t repetitions,
                                           const std::function<void(const std::string&)>& progress,
                                           const std::function<Status()>& between_rounds);

 private:
  struct Stream;

  std::vector<TokenId> FreshTokens(int32_t count);
  // The first `depth` tokens of the text that all rows at a depth continue.
  std::vector<TokenId> SharedTokens(int32_t depth) const;
  StatusOr<std::vector<std::shared_ptr<Stream>>> RunStreams(std::vector<Request> requests);
  StatusOr<double> MeasurePrompt(const OfflineRow& row);
  StatusOr<double> MeasureStreams(const OfflineRow& row);
  // None: there was no moment in which all streams were seen at work.
  StatusOr<std::optional<double>> TryStreams(const OfflineRow& row);

  Engine& engine_;
  const ModelWork& work_;
  const Clock& clock_;
  Random random_{1};
};

}  // namespace polysil
