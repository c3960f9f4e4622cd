// Every weight type against tests/data/kernels/quants.jsonl: raw blocks with their exact values.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/half.h"
#include "kernels/kernels.h"

namespace polysil::kernels {
namespace {

struct GoldenQuants {
  std::string type;
  int32_t values_per_block = 0;
  int32_t bytes_per_block = 0;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

// The text after "name": up to the end of the value; the lines are flat and have no escapes.
std::string Field(const std::string& line, std::string_view name) {
  const std::string key = "\"" + std::string(name) + "\": ";
  const size_t found = line.find(key);
  if (found == std::string::npos) return {};
  const size_t begin = found + key.size();
  if (line[begin] == '"') return line.substr(begin + 1, line.find('"', begin + 1) - begin - 1);
  return line.substr(begin, line.find_first_of(",}", begin) - begin);
}

std::vector<std::byte> DecodeBase64(std::string_view text) {
  std::vector<std::byte> bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z')
      value = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = static_cast<uint32_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9')
      value = static_cast<uint32_t>(c - '0') + 52;
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else
      break;
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<std::byte>(bits >> count & 0xFFU));
    }
  }
  return bytes;
}

const std::map<std::string, WeightType>& TypesByName() {
  static const std::map<std::string, WeightType> types = {
      {"F32", WeightType::kF32},       {"F16", WeightType::kF16},
      {"BF16", WeightType::kBF16},     {"Q8_0", WeightType::kQ8_0},
      {"Q4_0", WeightType::kQ4_0},     {"Q4_1", WeightType::kQ4_1},
      {"Q5_0", WeightType::kQ5_0},     {"Q5_1", WeightType::kQ5_1},
      {"Q2_K", WeightType::kQ2_K},     {"Q3_K", WeightType::kQ3_K},
      {"Q4_K", WeightType::kQ4_K},     {"Q5_K", WeightType::kQ5_K},
      {"Q6_K", WeightType::kQ6_K},     {"IQ4_NL", WeightType::kIQ4_NL},
      {"IQ4_XS", WeightType::kIQ4_XS}, {"IQ3_S", WeightType::kIQ3_S},
      {"IQ2_XS", WeightType::kIQ2_XS}, {"MXFP4", WeightType::kMXFP4},
  };
  return types;
}

// Every line of the file; empty when it cannot be read.
std::vector<GoldenQuants> ReadGoldenQuants(const std::string& path) {
  std::vector<GoldenQuants> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    GoldenQuants golden;
    golden.type = Field(line, "type");
    golden.values_per_block = std::stoi(Field(line, "values_per_block"));
    golden.bytes_per_block = std::stoi(Field(line, "bytes_per_block"));
    golden.blocks = DecodeBase64(Field(line, "data"));
    const std::vector<std::byte> values = DecodeBase64(Field(line, "values"));
    golden.values.resize(values.size() / sizeof(float));
    std::memcpy(golden.values.data(), values.data(), golden.values.size() * sizeof(float));
    all.push_back(std::move(golden));
  }
  return all;
}

void ExpectExact(const GoldenQuants& golden) {
  const WeightType type = TypesByName().at(golden.type);
  EXPECT_EQ(BlockOf(type).values, golden.values_per_block);
  EXPECT_EQ(BlockOf(type).bytes, golden.bytes_per_block);
  std::vector<float> values(golden.values.size());
  Dequantise(type, golden.blocks.data(), static_cast<int64_t>(values.size()), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(golden.values[i]))
        << golden.type << " value " << i << " is " << values[i] << ", not " << golden.values[i];
  }
}

TEST(Dequantise, EveryTypeIsBitExact) {
  const auto all = ReadGoldenQuants(POLYSIL_SOURCE_DIR "/tests/data/kernels/quants.jsonl");
  ASSERT_EQ(all.size(), static_cast<size_t>(kWeightTypes));
  for (const GoldenQuants& golden : all) {
    ASSERT_FALSE(golden.values.empty()) << golden.type;
    ExpectExact(golden);
  }
}

TEST(Half, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    const bool nan = (bits & 0x7FFFU) > 0x7C00U;
    ASSERT_EQ(FloatToHalf(value), nan ? bits | 0x200U : bits) << bits;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0F + 0x1p-11F), 0x3C00);      // a tie: down to even
  EXPECT_EQ(FloatToHalf(1.0F + 3 * 0x1p-11F), 0x3C02);  // a tie: up to even
  EXPECT_EQ(FloatToHalf(1.0F + 0x1p-11F + 0x1p-20F), 0x3C01);
  EXPECT_EQ(FloatToHalf(65519.0F), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7C00);
  EXPECT_EQ(FloatToHalf(-0x1p-25F), 0x8000);  // half the smallest: to zero
  EXPECT_EQ(FloatToHalf(0x1.8p-25F), 0x0001);
  EXPECT_EQ(FloatToHalf(0x1.ff8p-15F), 0x03FF);  // the largest subnormal
  EXPECT_EQ(FloatToHalf(0x1.ffcp-15F), 0x0400);  // a tie: up to the smallest normal
}

}  // namespace
}  // namespace polysil::kernels
