#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace polysil {
namespace {

// Printable Latin-1 characters stand for themselves; the other bytes get 256, 257, ... in order.
constexpr bool IsPlain(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> BuildTable() {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    table[static_cast<size_t>(byte)] = IsPlain(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return table;
}

constexpr std::array<char32_t, 256> kCharacters = BuildTable();
constexpr size_t kCodesEnd = 256 + 68;  // 68 bytes are not plain

constexpr std::array<int16_t, kCodesEnd> BuildInverse() {
  std::array<int16_t, kCodesEnd> inverse{};
  for (int16_t& byte : inverse) byte = -1;
  for (size_t byte = 0; byte < 256; ++byte) {
    inverse[kCharacters[byte]] = static_cast<int16_t>(byte);
  }
  return inverse;
}

constexpr std::array<int16_t, kCodesEnd> kBytes = BuildInverse();

}  // namespace

char32_t CharacterOfByte(uint8_t byte) {
  return kCharacters[byte];
}

std::optional<uint8_t> ByteOfCharacter(char32_t code) {
  if (code >= kCodesEnd || kBytes[code] < 0) return std::nullopt;
  return static_cast<uint8_t>(kBytes[code]);
}

std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  std::string bytes;
  for (size_t at = 0; at < spelling.size();) {
    const Utf8Char c = DecodeUtf8(spelling.substr(at));
    const auto byte = c.well_formed ? ByteOfCharacter(c.code) : std::nullopt;
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += c.bytes;
  }
  return bytes;
}

}  // namespace polysil
