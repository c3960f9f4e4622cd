#include "text/jinja/text_operations.h"

#include <string.h>

#include <algorithm>

#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

size_t PreviousCodePoint(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at + DecodeAt(text, at).bytes == end ? at : end - 1;
}

class CharacterSet final {
 public:
  explicit CharacterSet(std::optional<std::string_view> characters) {
    if (!characters) return;
    space_ = false;
    for (size_t at = 0; at < characters->size();) {
      const CodePoint c = DecodeAt(*characters, at);
      set_.push_back(c.value);
      at += c.bytes;
    }
    std::sort(set_.begin(), set_.end());
  }
  bool Has(uint32_t c) const {
    return space_ ? IsSpace(c) : std::binary_search(set_.begin(), set_.end(), c);
  }

 private:
  bool space_ = true;
  std::vector<uint32_t> set_;
};

size_t SkipSpaceForward(std::string_view text, size_t at, bool space) {
  while (at < text.size()) {
    const CodePoint c = DecodeAt(text, at);
    if (IsSpace(c.value) != space) break;
    at += c.bytes;
  }
  return at;
}

size_t SkipSpaceBackward(std::string_view text, size_t end, bool space) {
  while (end > 0) {
    const size_t at = PreviousCodePoint(text, end);
    if (IsSpace(DecodeAt(text, at).value) != space) break;
    end = at;
  }
  return end;
}

}  // namespace

size_t FindBytes(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLastBytes(std::string_view text, std::string_view part) {
  const std::string backwards(text.rbegin(), text.rend());
  const std::string part_backwards(part.rbegin(), part.rend());
  const size_t found = FindBytes(backwards, part_backwards);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

size_t CountOccurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return CountCodePoints(text) + 1;
  size_t count = 0;
  for (size_t at = FindBytes(text, part); at != std::string_view::npos;
       at = FindBytes(text, part, at + part.size())) {
    ++count;
  }
  return count;
}

Text Strip(const Text& text, std::optional<std::string_view> characters, bool left, bool right) {
  const CharacterSet set(characters);
  const std::string_view bytes = text.view();
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    const CodePoint c = DecodeAt(bytes, begin);
    if (!set.Has(c.value)) break;
    begin += c.bytes;
  }
  while (right && end > begin) {
    const size_t at = PreviousCodePoint(bytes, end);
    if (!set.Has(DecodeAt(bytes, at).value)) break;
    end = at;
  }
  return text.Slice(begin, std::max(begin, end));
}

std::vector<Text> Split(const Text& text, std::string_view separator, int64_t splits_max) {
  std::vector<Text> parts;
  size_t begin = 0;
  for (; splits_max != 0; --splits_max) {
    const size_t at = FindBytes(text.view(), separator, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.Slice(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(text.Slice(begin, text.size()));
  return parts;
}

std::vector<Text> SplitFromRight(const Text& text, std::string_view separator, int64_t splits_max) {
  // Matches are found from the right, on the text and separator turned around.
  const std::string backwards(text.view().rbegin(), text.view().rend());
  const std::string turned(separator.rbegin(), separator.rend());
  std::vector<Text> parts;
  size_t begin = 0;
  for (; splits_max != 0; --splits_max) {
    const size_t at = FindBytes(backwards, turned, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.Slice(text.size() - at, text.size() - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.Slice(0, text.size() - begin));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitSpace(const Text& text, int64_t splits_max) {
  std::vector<Text> parts;
  size_t at = SkipSpaceForward(text.view(), 0, true);
  for (; at < text.size(); --splits_max) {
    if (splits_max == 0) {
      parts.push_back(text.Slice(at, text.size()));
      break;
    }
    const size_t end = SkipSpaceForward(text.view(), at, false);
    parts.push_back(text.Slice(at, end));
    at = SkipSpaceForward(text.view(), end, true);
  }
  return parts;
}

std::vector<Text> SplitSpaceFromRight(const Text& text, int64_t splits_max) {
  std::vector<Text> parts;
  size_t end = SkipSpaceBackward(text.view(), text.size(), true);
  for (; end > 0; --splits_max) {
    if (splits_max == 0) {
      parts.push_back(text.Slice(0, end));
      break;
    }
    const size_t begin = SkipSpaceBackward(text.view(), end, false);
    parts.push_back(text.Slice(begin, end));
    end = SkipSpaceBackward(text.view(), begin, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = DecodeAt(bytes, at);
    size_t next = at + c.bytes;
    if (IsLineBreak(c.value)) {
      if (c.value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.Slice(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

Text Replace(const Text& text, std::string_view old, const Text& replacement, int64_t count) {
  Text result;
  size_t at = 0;
  if (old.empty()) {
    for (; count != 0; --count) {
      result.Append(replacement);
      if (at >= text.size()) break;
      const size_t end = at + DecodeAt(text.view(), at).bytes;
      result.Append(text, at, end);
      at = end;
    }
  } else {
    for (; count != 0; --count) {
      const size_t found = FindBytes(text.view(), old, at);
      if (found == std::string_view::npos) break;
      result.Append(text, at, found);
      result.Append(replacement);
      at = found + old.size();
    }
  }
  result.Append(text, at, text.size());
  return result;
}

size_t ReplaceSize(const Text& text, std::string_view old, size_t replacement_size, int64_t count) {
  size_t times = CountOccurrences(text.view(), old);
  if (count >= 0) times = std::min(times, static_cast<size_t>(count));
  size_t added = 0;
  if (__builtin_mul_overflow(times, replacement_size, &added)) return SIZE_MAX / 2;
  return std::min(SIZE_MAX / 2, text.size() + added);
}

}  // namespace polysil::jinja
