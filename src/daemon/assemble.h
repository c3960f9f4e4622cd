// Assembly: the one place that names concrete classes together: checkpoint, device, executor,
// engine, tokenizer, chat template, text service. What `serve`, `generate`, `chat` and `tokenize`
// run on. Owned by the command.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_thread.h"
#include "model/checkpoint.h"
#include "polysil/base/clock.h"
#include "polysil/base/status.h"
#include "polysil/core/kv_layout.h"
#include "polysil/v1/config.pb.h"
#include "session/text_service.h"
#include "text/tokenizer.h"

namespace polysil {

// The tokenizer of an opened checkpoint.
StatusOr<std::shared_ptr<const Tokenizer>> BuildTokenizer(const Checkpoint& checkpoint);

class Assembly final {
 public:
  // Opens and loads everything and starts the engine. `config` is Complete; `clock` outlives the
  // assembly.
  static StatusOr<std::unique_ptr<Assembly>> Create(const std::string& model_path,
                                                    const v1::Config& config, const Clock& clock);

  EngineThread& engine() { return *engine_; }
  TextService& text() { return *text_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const KvLayout& kv_layout() const { return kv_layout_; }
  // "AMD EPYC, AVX2, 2 threads"; for people.
  const std::string& device() const { return device_; }

 private:
  Assembly() = default;

  // Each needs those above it.
  std::unique_ptr<Checkpoint> checkpoint_;
  std::string device_;
  KvLayout kv_layout_;
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<TextService> text_;
};

}  // namespace polysil
