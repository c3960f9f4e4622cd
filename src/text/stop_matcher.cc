#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "polysil/base/check.h"

namespace polysil {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  root_.fill(kRoot);
  nodes_.emplace_back();
  for (size_t i = 0; i < stops_.size(); ++i) {
    CHECK(!stops_[i].empty(), "stop {} is empty", i);
    AddStop(static_cast<int32_t>(i));
  }
  LinkFailures();
}

void StopMatcher::AddStop(int32_t stop) {
  int32_t node = kRoot;
  for (const char c : stops_[static_cast<size_t>(stop)]) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t child = Child(node, byte);
    if (child == kRoot) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.sibling = At(node).child, .depth = At(node).depth + 1, .byte = byte});
      At(node).child = child;
      if (node == kRoot) root_[byte] = child;
    }
    node = child;
  }
  if (At(node).stop < 0) At(node).stop = stop;
}

// Breadth first, so that the failure of every shallower node is known.
void StopMatcher::LinkFailures() {
  std::vector<int32_t> queue = {kRoot};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t parent = queue[i];
    for (int32_t node = At(parent).child; node != kRoot; node = At(node).sibling) {
      queue.push_back(node);
      At(node).failure = parent == kRoot ? kRoot : Next(At(parent).failure, At(node).byte);
      // A stop that ends here as the end of this node's text; the node's own is longer.
      if (At(node).stop < 0) At(node).stop = At(At(node).failure).stop;
    }
  }
}

int32_t StopMatcher::Child(int32_t node, uint8_t byte) const {
  if (node == kRoot) return root_[byte];
  int32_t child = At(node).child;
  while (child != kRoot && At(child).byte != byte) child = At(child).sibling;
  return child;
}

int32_t StopMatcher::Next(int32_t node, uint8_t byte) const {
  while (true) {
    const int32_t child = Child(node, byte);
    if (child != kRoot || node == kRoot) return child;
    node = At(node).failure;
  }
}

std::string StopMatcher::Push(std::string_view text) {
  if (matched()) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    node_ = Next(node_, static_cast<uint8_t>(text[i]));
    const int32_t stop = At(node_).stop;
    if (stop < 0) continue;
    matched_index_ = stop;
    held_.append(text, 0, i + 1);
    if (!include_stop_) held_.resize(held_.size() - stops_[static_cast<size_t>(stop)].size());
    return std::exchange(held_, {});
  }
  held_ += text;
  const auto kept = static_cast<size_t>(At(node_).depth);
  std::string out = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return out;
}

std::string StopMatcher::Flush() {
  node_ = kRoot;
  return std::exchange(held_, {});
}

}  // namespace polysil
