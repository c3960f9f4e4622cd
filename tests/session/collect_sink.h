// CollectSink: keeps the news of a call, for tests.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/text_call.h"

namespace polysil {

class CollectSink final : public TextSink {
 public:
  void OnDelta(TextDelta delta) override {
    std::lock_guard lock(mutex_);
    if (end_) ++calls_after_end_;
    deltas_.push_back(std::move(delta));
    changed_.notify_all();
  }
  void OnEnd(TextEnd end) override {
    std::lock_guard lock(mutex_);
    if (end_) ++calls_after_end_;
    end_ = std::move(end);
    changed_.notify_all();
  }

  std::vector<TextDelta> deltas() const {
    std::lock_guard lock(mutex_);
    return deltas_;
  }
  std::optional<TextEnd> end() const {
    std::lock_guard lock(mutex_);
    return end_;
  }
  // Waits for the end; its status is UNKNOWN if there is none.
  TextEnd WaitEnd() {
    std::unique_lock lock(mutex_);
    const bool ended =
        changed_.wait_for(lock, std::chrono::seconds(60), [this] { return end_.has_value(); });
    return ended ? *end_ : TextEnd{.status = MakeStatus(StatusCode::kUnknown, "no end came")};
  }
  bool WaitDeltas(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&] { return deltas_.size() >= count; });
  }
  int calls_after_end() const {
    std::lock_guard lock(mutex_);
    return calls_after_end_;
  }

  // All text of one sequence.
  std::string Text(int32_t prompt_index = 0, int32_t sequence_index = 0) const {
    std::lock_guard lock(mutex_);
    std::string text;
    for (const TextDelta& delta : deltas_) {
      if (delta.prompt_index == prompt_index && delta.sequence_index == sequence_index) {
        text += delta.echo.text + delta.text;
      }
    }
    return text;
  }
  std::vector<TextToken> Tokens(int32_t prompt_index = 0, int32_t sequence_index = 0) const {
    std::lock_guard lock(mutex_);
    std::vector<TextToken> tokens;
    for (const TextDelta& delta : deltas_) {
      if (delta.prompt_index == prompt_index && delta.sequence_index == sequence_index) {
        tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
      }
    }
    return tokens;
  }
  // The finish of each sequence, in the order of their ends.
  std::vector<FinishReason> Finishes() const {
    std::lock_guard lock(mutex_);
    std::vector<FinishReason> finishes;
    for (const TextDelta& delta : deltas_) {
      if (delta.finish) finishes.push_back(*delta.finish);
    }
    return finishes;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TextDelta> deltas_;
  std::optional<TextEnd> end_;
  int calls_after_end_ = 0;
};

}  // namespace polysil
