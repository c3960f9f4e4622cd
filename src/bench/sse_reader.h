// SseReader: the events of a text/event-stream, from bytes that arrive in pieces of any size. A
// value; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace polysil {

class SseReader final {
 public:
  static constexpr size_t kEventBytesMax = 1 << 20;

  // Calls on_event(std::string_view data) for each event that `bytes` completes; `data` is valid
  // during the call. False when an event is too long: nothing more can be read.
  template <typename OnEvent>
  bool Feed(std::string_view bytes, const OnEvent& on_event) {
    while (!bytes.empty()) {
      const size_t end = bytes.find_first_of("\r\n");
      line_ += bytes.substr(0, end);
      if (line_.size() + data_.size() > kEventBytesMax) return false;
      if (end == std::string_view::npos) return true;
      // The second half of a CR LF ends no line of its own, even if it comes in the next piece.
      const bool is_half = bytes[end] == '\n' && after_return_ && end == 0 && line_.empty();
      after_return_ = bytes[end] == '\r';
      bytes.remove_prefix(end + 1);
      if (!is_half && TakeLine()) {
        on_event(std::string_view(data_));
        ClearEvent();
      }
    }
    return true;
  }

 private:
  // True when it was the empty line that ends an event with data.
  bool TakeLine();
  void ClearEvent();

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;
};

}  // namespace polysil
