// The two spelling rules that SentencePiece vocabularies share: a mark for the space, and "<0xNN>"
// for a byte. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace polysil {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Every mark as a space.
std::string SpaceMarksToSpaces(std::string_view spelling);

// The byte of "<0x41>"; hexadecimal digits of either case.
std::optional<uint8_t> ParseByteToken(std::string_view spelling);

// `text` with every `from` (not empty) replaced.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace polysil
