// LoadPrompts: what the clients of a load say: from a file, from a trace, or random words. A
// function of its inputs and the index of a session, so that two servers get the same. Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/load_options.h"
#include "polysil/base/status.h"
#include "sim/trace.h"

namespace polysil {

// One client's conversation: what it says, turn by turn, and how long each answer is to be.
struct LoadSession {
  std::string system;  // before everything; may be empty
  std::vector<std::string> turns;
  int32_t output_tokens = 0;
};

// The first `turns_max` turns of each line of JSONL with "turns", "prompt" or "text".
// INVALID_ARGUMENT names the line that is none.
StatusOr<std::vector<std::vector<std::string>>> ReadPrompts(const std::string& path,
                                                            int32_t turns_max);

class LoadPrompts final {
 public:
  // Reads the files that the options name.
  static StatusOr<LoadPrompts> Create(const LoadOptions& options);

  // Words that nearly every vocabulary has as one token each, behind a blank.
  static std::string CommonWords(int64_t words, uint64_t seed);

  // Whether lengths in tokens are made of words, so that SetWordsPerToken matters.
  bool made_of_words() const { return conversations_.empty() || prefix_tokens_ > 0; }
  void SetWordsPerToken(double words) { words_per_token_ = words; }

  LoadSession Session(int64_t index) const;
  // In order of arrival; empty without a trace.
  const std::vector<TraceRequest>& trace() const { return trace_; }

 private:
  LoadPrompts() = default;
  std::string Words(int64_t tokens, uint64_t seed) const;
  std::string TraceText(const TraceRequest& request) const;

  std::vector<std::vector<std::string>> conversations_;
  std::vector<TraceRequest> trace_;
  uint64_t seed_ = 0;
  int32_t input_tokens_ = 0;
  int32_t prefix_tokens_ = 0;
  int32_t turns_ = 1;
  int32_t output_tokens_ = 0;
  double words_per_token_ = 1.0;
};

}  // namespace polysil
