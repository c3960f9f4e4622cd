// StopMatcher: finds stop strings in a stream of text pieces, across piece boundaries. Emits nothing
// that a stop could still take back and holds nothing that it cannot. One per sequence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace polysil {

class StopMatcher final {
 public:
  // stops: not empty strings. include_stop: the matched string is emitted too.
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // The text that is safe to emit now. After a match: the text before it (the earliest end of a
  // match wins, on equal ends the longest), and every later call gives nothing.
  std::string Push(std::string_view text);
  // The rest, when the sequence ends without a match.
  std::string Flush();

  bool matched() const { return matched_index_ >= 0; }
  // The stop that matched; only after matched().
  const std::string& matched_stop() const { return stops_[static_cast<size_t>(matched_index_)]; }
  // Bytes held back now.
  size_t held_bytes() const { return held_.size(); }

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  std::string held_;
  int matched_index_ = -1;
};

}  // namespace polysil
