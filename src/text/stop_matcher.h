// StopMatcher: finds stop strings in a stream of text pieces, across piece boundaries. Emits
// nothing that a stop could still take back and holds nothing that it cannot. One per sequence.
#pragma once

#include <array>
#include <cstdint>
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
  // An Aho-Corasick automaton. A node is a prefix of a stop; in its place the longest end of the
  // text that is a prefix of some stop, which is just what has to be held back.
  static constexpr int32_t kRoot = 0;
  struct Node {
    int32_t child = kRoot;    // the first one; kRoot: none
    int32_t sibling = kRoot;  // the next child of the same parent
    int32_t failure = kRoot;  // the longest end of this prefix that is a prefix too
    int32_t stop = -1;        // the longest stop that ends here
    int32_t depth = 0;
    uint8_t byte = 0;
  };

  Node& At(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& At(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  void AddStop(int32_t stop);
  void LinkFailures();
  int32_t Child(int32_t node, uint8_t byte) const;
  int32_t Next(int32_t node, uint8_t byte) const;

  std::vector<std::string> stops_;
  bool include_stop_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_;  // children of the root
  int32_t node_ = kRoot;           // where the text so far leads
  std::string held_;
  int matched_index_ = -1;
};

}  // namespace polysil
