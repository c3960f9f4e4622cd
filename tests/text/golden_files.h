// Reads the reference data of the text tests: JSON lines and the binary vocabularies.
#pragma once

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/check.h"
#include "text/tokenizer.h"

namespace polysil {

inline std::string TestData(std::string_view name) {
  return std::string(POLYSIL_SOURCE_DIR "/tests/data/text/").append(name);
}
inline std::string SharedGolden(std::string_view name) {
  return std::string(POLYSIL_SHARED_DIR "/golden/").append(name);
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), "cannot read {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::vector<boost::json::value> ReadJsonLines(const std::string& path) {
  std::istringstream text(ReadFile(path));
  std::vector<boost::json::value> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(boost::json::parse(line));
  return lines;
}

inline std::string AsString(const boost::json::value& value) {
  return std::string(value.as_string().data(), value.as_string().size());
}

inline std::vector<TokenId> AsIds(const boost::json::value& value) {
  std::vector<TokenId> ids;
  for (const auto& id : value.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

// TOKV1: a count, then each token with its length as LEB128.
inline std::vector<std::string> ReadTokenFile(const std::string& path) {
  const std::string data = ReadFile(path);
  CHECK(data.starts_with("TOKV1"), "{}", path);
  const auto byte = [&data](size_t at) { return static_cast<uint8_t>(data.at(at)); };
  const uint32_t count = byte(8) | byte(9) << 8 | byte(10) << 16 | uint32_t{byte(11)} << 24;
  std::vector<std::string> tokens;
  size_t at = 12;
  for (uint32_t i = 0; i < count; ++i) {
    size_t bytes = 0;
    for (int shift = 0;; shift += 7) {
      bytes |= size_t{byte(at) & 0x7Fu} << shift;
      if (byte(at++) < 0x80) break;
    }
    tokens.push_back(data.substr(at, bytes));
    at += bytes;
  }
  return tokens;
}

// TOKM1: a count, then pairs of three-byte ids in priority order.
inline std::vector<std::pair<TokenId, TokenId>> ReadMergeFile(const std::string& path) {
  const std::string data = ReadFile(path);
  CHECK(data.starts_with("TOKM1"), "{}", path);
  const auto id = [&data](size_t at) {
    return static_cast<uint8_t>(data.at(at)) | static_cast<uint8_t>(data.at(at + 1)) << 8 |
           static_cast<uint8_t>(data.at(at + 2)) << 16;
  };
  std::vector<std::pair<TokenId, TokenId>> merges;
  for (size_t at = 12; at < data.size(); at += 6) merges.emplace_back(id(at), id(at + 3));
  return merges;
}

// SmolLM2's vocabulary as its GGUF holds it.
inline TokenizerSpec SmolLm2Spec() {
  TokenizerSpec spec{.model = "gpt2",
                     .pre = "smollm",
                     .tokens = ReadTokenFile(TestData("smollm2/tokens.bin")),
                     .bos_id = 1,
                     .eos_id = 2,
                     .unknown_id = 0,
                     .add_bos = false,
                     .add_space_prefix = false};
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  for (size_t i = 0; i < 17; ++i) spec.types[i] = TokenType::kControl;
  for (const auto& [left, right] : ReadMergeFile(TestData("smollm2/merges.bin"))) {
    spec.merges.push_back(spec.tokens[static_cast<size_t>(left)] + " " +
                          spec.tokens[static_cast<size_t>(right)]);
  }
  return spec;
}

inline std::shared_ptr<const Tokenizer> SmolLm2() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    auto created = Tokenizer::Create(SmolLm2Spec());
    CHECK(created.ok(), "{}", Message(created.status()));
    return *std::move(created);
  }();
  return tokenizer;
}

}  // namespace polysil
