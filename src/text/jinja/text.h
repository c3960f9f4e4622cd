// Text: bytes that remember which of them came from outside the template (messages, tools, kwargs).
// Every operation of the interpreter that moves bytes moves the marks too, so that markup written
// by the template's author can be told from the same bytes written by a user. A value; not
// thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace polysil::jinja {

class Text final {
 public:
  Text() = default;
  static Text Trusted(std::string bytes) { return Text(std::move(bytes), false); }
  static Text Untrusted(std::string bytes) { return Text(std::move(bytes), true); }
  Text(std::string bytes, bool untrusted) : bytes_(std::move(bytes)) {
    if (untrusted && !bytes_.empty()) untrusted_.push_back({0, bytes_.size()});
  }

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Rising, disjoint, not touching each other, none empty.
  const std::vector<ByteSpan>& untrusted() const { return untrusted_; }
  bool any_untrusted() const { return !untrusted_.empty(); }

  void Append(std::string_view bytes, bool untrusted);
  void Append(const Text& other) { Append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, which must not be this.
  void Append(const Text& other, size_t begin, size_t end);
  // The end of the run of bytes that starts at `at` and is all marked or all not.
  size_t RunEnd(size_t at, bool* untrusted) const;
  Text Slice(size_t begin, size_t end) const;
  // Drops the bytes from `size` on.
  void Truncate(size_t size);

  // Approximate heap bytes, for memory accounting.
  size_t memory() const { return bytes_.capacity() + untrusted_.capacity() * sizeof(ByteSpan); }

 private:
  void Mark(size_t begin, size_t end);

  std::string bytes_;
  std::vector<ByteSpan> untrusted_;
};

}  // namespace polysil::jinja
