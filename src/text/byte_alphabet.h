// The alphabet of byte-level vocabularies: each byte has a printable character that stands for it
// in the spelling of tokens (GPT-2's table). Constant, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace polysil {

char32_t CharacterOfByte(uint8_t byte);
std::optional<uint8_t> ByteOfCharacter(char32_t code);

// The bytes that a token's spelling stands for; nothing if it has a character outside the alphabet.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

}  // namespace polysil
