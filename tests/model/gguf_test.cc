// The GGUF parser against files made wrong on purpose (the cases GGF-* of the field).
#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "model/gguf_builder.h"

namespace polysil {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The message of the refusal; empty where the file parses.
std::string Refusal(const std::string& file) {
  // A copy of exactly this size, so that a sanitizer sees a read beyond it.
  const std::vector<std::byte> exact(Bytes(file).begin(), Bytes(file).end());
  const StatusOr<GgufFile> parsed = GgufFile::Parse(exact);
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Message(parsed.status()).empty());
  return Message(parsed.status());
}

GgufBuilder Small() {
  GgufBuilder file;
  file.String("general.architecture", "llama").U32("a.number", 7).Floats("t", {4, 3});
  return file;
}

TEST(Gguf, ReadsBackWhatWasWritten) {
  GgufBuilder file = Small();
  file.Key("k.u8", 0, Raw<uint8_t>(200))
      .Key("k.i8", 1, Raw<int8_t>(-7))
      .Key("k.u16", 2, Raw<uint16_t>(60000))
      .Key("k.i16", 3, Raw<int16_t>(-3000))
      .Key("k.i32", 5, Raw<int32_t>(-5))
      .F32("k.f32", 1.5F)
      .Bool("k.bool", true)
      .Key("k.u64", 10, Raw<uint64_t>(~uint64_t{0}))
      .Key("k.i64", 11, Raw<int64_t>(-9))
      .Key("k.f64", 12, Raw(2.25))
      .Strings("k.strings", {"x", "", "yz"})
      .Numbers<int32_t>("k.numbers", 5, {3, -4})
      .Floats("u", {2});
  const std::string bytes = file.Build();
  const StatusOr<GgufFile> parsed = GgufFile::Parse(Bytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->version(), 3U);
  EXPECT_EQ(**parsed->FindInt("k.u8"), 200);
  EXPECT_EQ(**parsed->FindInt("k.i8"), -7);
  EXPECT_EQ(**parsed->FindInt("k.u16"), 60000);
  EXPECT_EQ(**parsed->FindInt("k.i16"), -3000);
  EXPECT_EQ(**parsed->FindInt("k.i32"), -5);
  EXPECT_EQ(**parsed->FindInt("k.i64"), -9);
  EXPECT_EQ(**parsed->FindInt("a.number"), 7);
  EXPECT_EQ(**parsed->FindFloat("k.f32"), 1.5);
  EXPECT_EQ(**parsed->FindFloat("k.f64"), 2.25);
  EXPECT_TRUE(**parsed->FindBool("k.bool"));
  EXPECT_EQ(**parsed->FindString("general.architecture"), "llama");
  EXPECT_FALSE((*parsed->FindInt("absent")).has_value());
  EXPECT_THAT(Message(parsed->FindInt("k.u64").status()), HasSubstr("18446744073709551615"));
  EXPECT_THAT(Message(parsed->FindInt("k.f32").status()), HasSubstr("k.f32 is a float32"));
  EXPECT_THAT(Message(parsed->FindString("k.bool").status()), HasSubstr("k.bool is a bool"));
  const GgufArray* strings = *parsed->FindArray("k.strings", GgufType::kString);
  EXPECT_THAT(strings->strings, ::testing::ElementsAre("x", "", "yz"));
  const GgufArray* numbers = *parsed->FindArray("k.numbers", GgufType::kInt32);
  EXPECT_EQ(NumberAt<int32_t>(*numbers, 1), -4);
  EXPECT_FALSE(parsed->FindArray("k.numbers", GgufType::kUint32).ok());
  ASSERT_EQ(parsed->tensors().size(), 2U);
  EXPECT_EQ(parsed->tensors()[0].name, "t");
  EXPECT_EQ(parsed->tensors()[0].dims, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(parsed->tensors()[0].data.size(), 48U);
  EXPECT_EQ(parsed->tensors()[0].dtype, DType::kF32);
  EXPECT_EQ(std::memcmp(parsed->tensors()[1].data.data(), file.Find("u")->data.data(), 8), 0);
}

TEST(Gguf, Magic) {
  for (const char* text : {"", "G", "GGU", "FUGG", "GGML"}) {
    EXPECT_NE(Refusal(text), "") << text;
  }
  EXPECT_NE(Refusal("GGUF"), "");
  std::string file = Small().Build();
  file.replace(0, 4, "FUGG");
  EXPECT_THAT(Refusal(file), HasSubstr("GGUF"));
  EXPECT_NE(Refusal("version https://git-lfs.github.com/spec/v1\n"), "");
}

TEST(Gguf, Version) {
  for (const uint32_t version : {2U, 3U}) {
    GgufBuilder file = Small();
    file.version = version;
    EXPECT_EQ(Refusal(file.Build()), "");
  }
  for (const uint32_t version : {0U, 1U, 4U, 1000U}) {
    GgufBuilder file = Small();
    file.version = version;
    EXPECT_THAT(Refusal(file.Build()), HasSubstr("version"));
  }
  GgufBuilder swapped = Small();
  swapped.version = 0x03000000;
  EXPECT_THAT(Refusal(swapped.Build()), HasSubstr("big-endian"));
}

TEST(Gguf, Counts) {
  for (const int64_t count :
       {int64_t{1} << 31, int64_t{1} << 60, std::numeric_limits<int64_t>::max(), int64_t{4}}) {
    GgufBuilder keys = Small();
    keys.keys_claimed = count;
    EXPECT_NE(Refusal(keys.Build()), "");
    GgufBuilder tensors = Small();
    tensors.tensors_claimed = count;
    EXPECT_NE(Refusal(tensors.Build()), "");
  }
  const std::string head = "GGUF" + Raw<uint32_t>(3);
  EXPECT_NE(Refusal(head + Raw(~uint64_t{0}) + Raw<uint64_t>(0)), "");
  EXPECT_NE(Refusal(head + Raw<uint64_t>(0) + Raw(~uint64_t{0})), "");
  EXPECT_EQ(Refusal(head + Raw<uint64_t>(0) + Raw<uint64_t>(0)), "");
}

TEST(Gguf, KeysAndStrings) {
  const std::string head = "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(0) + Raw<uint64_t>(1);
  const std::string tail(64, 'x');
  for (const uint64_t length :
       {~uint64_t{0}, ~uint64_t{0} - 32, uint64_t{1} << 40, uint64_t{65}, uint64_t{64} + 1}) {
    EXPECT_NE(Refusal(head + Raw(length) + tail), "") << length;
  }
  EXPECT_NE(Refusal(head + GgufString("") + Raw<uint32_t>(0) + tail), "");
  EXPECT_NE(Refusal(head + GgufString(std::string("a\0b", 3)) + Raw<uint32_t>(0) + tail), "");
  EXPECT_NE(Refusal(head + GgufString("caf\xc3\xa9") + Raw<uint32_t>(0) + tail), "");
  EXPECT_NE(Refusal(head + GgufString("\xff") + Raw<uint32_t>(0) + tail), "");
  EXPECT_NE(Refusal(head + GgufString("a b") + Raw<uint32_t>(0) + tail), "");
  EXPECT_NE(Refusal(head + GgufString(std::string(70000, 'k')) + Raw<uint32_t>(0) + tail), "");
  EXPECT_NE(Refusal(head + GgufString("a") + Raw<uint32_t>(8) + Raw(uint64_t{1} << 40) + tail), "");
  EXPECT_EQ(Refusal(head + GgufString("a") + Raw<uint32_t>(8) + GgufString("any \xff bytes")), "");
  EXPECT_NE(Refusal(head + GgufString("a") + Raw<uint32_t>(7) + Raw<uint8_t>(2)), "") << "a bool";
}

TEST(Gguf, ATinyFileClaimingAGiantArray) {
  // 49 bytes: one key "a", an array of 2^63 strings.
  std::string file = "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(0) + Raw<uint64_t>(1) +
                     GgufString("a") + Raw<uint32_t>(9) + Raw<uint32_t>(8) + Raw(uint64_t{1} << 63);
  ASSERT_EQ(file.size(), 49U);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(Refusal(file), "");
  for (const uint32_t type : {0U, 1U, 4U, 6U, 7U, 10U, 12U}) {
    file.replace(file.size() - 12, 4, Raw(type));
    EXPECT_NE(Refusal(file), "");
  }
  // Products that wrap: 2^61 elements of 8 bytes, and one more.
  for (const uint64_t size : {uint64_t{1} << 61, (uint64_t{1} << 61) + 1, uint64_t{1} << 62}) {
    file.replace(file.size() - 12, 12, Raw<uint32_t>(10) + Raw(size));
    EXPECT_NE(Refusal(file), "");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(Gguf, UnknownValueTypes) {
  for (const uint32_t type : {13U, 255U, 0xffffffffU}) {
    GgufBuilder file = Small();
    file.Key("k", type, std::string(64, '\0'));
    EXPECT_THAT(Refusal(file.Build()), HasSubstr("value type"));
    // An element type of no size must not make an endless array.
    GgufBuilder array = Small();
    array.Key("k", 9, Raw(type) + Raw(uint64_t{1} << 60));
    EXPECT_NE(Refusal(array.Build()), "");
  }
  // Arrays of arrays of arrays...
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += Raw<uint32_t>(9) + Raw<uint64_t>(1);
  GgufBuilder file = Small();
  file.Key("k", 9, nested);
  EXPECT_THAT(Refusal(file.Build()), HasSubstr("array of arrays"));
}

TEST(Gguf, Duplicates) {
  GgufBuilder keys = Small();
  keys.AppendKey("a.number", 4, Raw<uint32_t>(8));
  EXPECT_THAT(Refusal(keys.Build()), HasSubstr("a.number is given twice"));
  GgufBuilder tensors = Small();
  tensors.Floats("t", {4});
  EXPECT_THAT(Refusal(tensors.Build()), HasSubstr("tensor t is listed twice"));
}

TEST(Gguf, Alignment) {
  for (const uint32_t alignment : {1U, 8U, 64U, 4096U}) {
    GgufBuilder file = Small();
    file.alignment = alignment;
    file.U32("general.alignment", alignment).Floats("u", {3});
    const std::string bytes = file.Build();
    const StatusOr<GgufFile> parsed = GgufFile::Parse(Bytes(bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    for (const GgufTensor& tensor : parsed->tensors()) {
      const std::string& data = file.Find(tensor.name)->data;
      ASSERT_EQ(tensor.data.size(), data.size());
      EXPECT_EQ(std::memcmp(tensor.data.data(), data.data(), data.size()), 0);
    }
  }
  for (const uint32_t alignment : {0U, 13U, 48U, 1U << 30, 1U << 31, 0xffffffffU}) {
    GgufBuilder file = Small();
    file.U32("general.alignment", alignment);
    EXPECT_THAT(Refusal(file.Build()), HasSubstr("general.alignment"));
  }
  GgufBuilder wrong_type = Small();
  wrong_type.Key("general.alignment", 5, Raw<int32_t>(32));
  EXPECT_THAT(Refusal(wrong_type.Build()), HasSubstr("general.alignment"));
  GgufBuilder twice = Small();
  twice.AppendKey("general.alignment", 4, Raw<uint32_t>(32))
      .AppendKey("general.alignment", 4, Raw<uint32_t>(64));
  EXPECT_THAT(Refusal(twice.Build()), HasSubstr("twice"));
}

TEST(Gguf, Dimensions) {
  GgufBuilder four = Small();
  four.Floats("u", {2, 3, 2, 2});
  EXPECT_EQ(Refusal(four.Build()), "");
  GgufBuilder five = Small();
  five.Floats("u", {2, 3, 2, 2, 1});
  EXPECT_THAT(Refusal(five.Build()), HasSubstr("dimensions"));
  GgufBuilder none = Small();
  none.Floats("u", {});
  EXPECT_THAT(Refusal(none.Build()), HasSubstr("dimensions"));
  // A number of dimensions that would be read past the list.
  std::string file = Small().Head();
  const size_t place = file.rfind(GgufString("t")) + 9;
  file.replace(place, 4, Raw<uint32_t>(0xffffffffU));
  EXPECT_THAT(Refusal(file + std::string(128, '\0')), HasSubstr("dimensions"));
}

TEST(Gguf, EmptyDimensionsParse) {
  GgufBuilder file = Small();
  file.Floats("u", {0}).Floats("v", {64, 0}).Floats("w", {2});
  const std::string bytes = file.Build();
  const StatusOr<GgufFile> parsed = GgufFile::Parse(Bytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->tensors()[2].data.empty());
  EXPECT_EQ(parsed->tensors()[3].data.size(), 8U);
}

TEST(Gguf, SizesThatOverflow) {
  const std::vector<std::vector<uint64_t>> shapes = {
      {(uint64_t{1} << 63) + 1, 2},
      {uint64_t{1} << 61},
      {~uint64_t{0}},
      {uint64_t{1} << 32, uint64_t{1} << 32},
      {uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16},
      {uint64_t{1} << 62, 0},  // nothing times a giant is nothing, but no size
  };
  for (const auto& dims : shapes) {
    for (const uint32_t type : {0U, 27U, 24U, 8U}) {
      GgufBuilder file = Small();
      file.Add({.name = "u", .dims = dims, .type = type, .data = std::string(64, '\0')});
      EXPECT_NE(Refusal(file.Build()), "") << dims[0] << " type " << type;
    }
  }
  // Two tensors whose sizes add up past 2^64; and one that rounding up to the alignment wraps.
  for (const uint64_t size : {uint64_t{0x7FFFFFFFFFFFFFC0}, ~uint64_t{0} - 15}) {
    GgufBuilder file = Small();
    file.Add({.name = "u", .dims = {size}, .type = 24})
        .Add({.name = "v", .dims = {size}, .type = 24});
    EXPECT_NE(Refusal(file.Build()), "");
  }
}

TEST(Gguf, TensorTypes) {
  for (const uint32_t type : {4U, 5U, 31U, 36U, 255U, 0xffffffffU}) {
    GgufBuilder file = Small();
    file.Add({.name = "u", .dims = {32}, .type = type, .data = std::string(64, '\0')});
    EXPECT_THAT(Refusal(file.Build()), HasSubstr("tensor u has type " + std::to_string(type)));
  }
  GgufBuilder odd = Small();
  odd.Add({.name = "u", .dims = {33}, .type = 2, .data = std::string(36, '\0')});
  EXPECT_THAT(Refusal(odd.Build()), HasSubstr("tensor u of type Q4_0"));
  // A type of the format that we cannot run is listed, with its size.
  GgufBuilder other = Small();
  other.Add({.name = "u", .dims = {256}, .type = 19, .data = std::string(50, '\0')});
  const std::string bytes = other.Build();
  const StatusOr<GgufFile> parsed = GgufFile::Parse(Bytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->tensors()[1].type_name, "IQ1_S");
  EXPECT_FALSE(parsed->tensors()[1].dtype.has_value());
}

TEST(Gguf, Offsets) {
  for (const int64_t offset : {int64_t{1}, int64_t{32}, int64_t{96}, int64_t{1} << 40,
                               std::numeric_limits<int64_t>::max()}) {
    GgufBuilder file = Small();
    file.Floats("u", {4});
    file.Find("u")->offset = offset;  // right would be 64
    EXPECT_THAT(Refusal(file.Build()), HasSubstr("tensor u has offset"));
  }
  GgufBuilder overlap = Small();
  overlap.Floats("u", {4});
  overlap.Find("u")->offset = 0;
  EXPECT_THAT(Refusal(overlap.Build()), HasSubstr("tensor u has offset"));
}

TEST(Gguf, CutAnywhereItIsRefused) {
  GgufBuilder builder = Small();
  builder.Strings("k", {"one", "two"}).Bool("b", true).Floats("u", {5});
  const std::string file = builder.Build();
  ASSERT_EQ(Refusal(file), "");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(Refusal(file.substr(0, size)), "") << size;
  }
}

TEST(Gguf, ALargeVocabularyIsReadQuickly) {
  std::vector<std::string> tokens(262144);
  std::vector<std::string> merges(280000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = "token" + std::to_string(i);
  for (size_t i = 0; i < merges.size(); ++i) merges[i] = "left" + std::to_string(i) + " right";
  GgufBuilder builder = Small();
  builder.Strings("tokenizer.ggml.tokens", tokens).Strings("tokenizer.ggml.merges", merges);
  const std::string file = builder.Build();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Refusal(file), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(Gguf, ValuesAsTextAreShortAndClean) {
  GgufValue value{GgufType::kString, std::string_view("line\nnext \x01 caf\xc3\xa9")};
  EXPECT_EQ(ToText(value, 100), "line\\x0anext \\x01 caf\xc3\xa9");
  EXPECT_EQ(ToText(value, 4), "line...");
  EXPECT_EQ(ToText(value, 16), "line\\x0anext \\x01 caf...") << "no half character";
  EXPECT_EQ(ToText({GgufType::kFloat32, 0.5}, 9), "0.5");
}

}  // namespace
}  // namespace polysil
