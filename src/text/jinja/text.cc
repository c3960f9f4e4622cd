#include "text/jinja/text.h"

#include <algorithm>

namespace polysil::jinja {

void Text::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = end;
  } else {
    untrusted_.push_back({begin, end});
  }
}

void Text::Append(std::string_view bytes, bool untrusted) {
  const size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (untrusted) Mark(begin, bytes_.size());
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  const size_t base = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  auto span = std::lower_bound(other.untrusted_.begin(), other.untrusted_.end(), begin,
                               [](const ByteSpan& s, size_t at) { return s.end <= at; });
  for (; span != other.untrusted_.end() && span->begin < end; ++span) {
    Mark(base + std::max(span->begin, begin) - begin, base + std::min(span->end, end) - begin);
  }
}

size_t Text::RunEnd(size_t at, bool* untrusted) const {
  const auto span = std::lower_bound(untrusted_.begin(), untrusted_.end(), at,
                                     [](const ByteSpan& s, size_t x) { return s.end <= x; });
  *untrusted = span != untrusted_.end() && span->begin <= at;
  if (span == untrusted_.end()) return bytes_.size();
  return *untrusted ? span->end : span->begin;
}

Text Text::Slice(size_t begin, size_t end) const {
  Text result;
  result.Append(*this, begin, end);
  return result;
}

void Text::Truncate(size_t size) {
  bytes_.resize(size);
  while (!untrusted_.empty() && untrusted_.back().begin >= size) untrusted_.pop_back();
  if (!untrusted_.empty()) untrusted_.back().end = std::min(untrusted_.back().end, size);
}

}  // namespace polysil::jinja
