// What Python's str methods do, on Text: search, split, strip, replace, pad. All take linear time.
// Pure functions; sizes are checked by the callers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/text.h"

namespace polysil::jinja {

// The first occurrence at or after `from`; npos where there is none. Linear in the worst case,
// which std::string::find is not.
size_t FindBytes(std::string_view text, std::string_view part, size_t from = 0);
size_t FindLastBytes(std::string_view text, std::string_view part);
// Occurrences that do not overlap; of an empty part one more than there are code points.
size_t CountOccurrences(std::string_view text, std::string_view part);

// strip(): whitespace, or the code points of `characters`.
Text Strip(const Text& text, std::optional<std::string_view> characters, bool left, bool right);
// split() and rsplit() on a separator that is not empty; `splits_max` < 0: no limit.
std::vector<Text> Split(const Text& text, std::string_view separator, int64_t splits_max);
std::vector<Text> SplitFromRight(const Text& text, std::string_view separator, int64_t splits_max);
// On runs of whitespace.
std::vector<Text> SplitSpace(const Text& text, int64_t splits_max);
std::vector<Text> SplitSpaceFromRight(const Text& text, int64_t splits_max);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
// `count` < 0: all. An empty `old` stands before every code point and at the end.
Text Replace(const Text& text, std::string_view old, const Text& replacement, int64_t count);
// An upper bound of the size of the result.
size_t ReplaceSize(const Text& text, std::string_view old, size_t replacement_size, int64_t count);

}  // namespace polysil::jinja
