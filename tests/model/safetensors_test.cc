// The safetensors header against files made wrong on purpose (the cases SFT-* of the field).
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace polysil {
namespace {

using ::testing::HasSubstr;

template <typename T>
std::string Raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

std::string File(const std::string& header, const std::string& data = "") {
  return Raw<uint64_t>(header.size()) + header + data;
}

std::string Refusal(const std::string& file) {
  // A copy of exactly this size, so that a sanitizer sees a read beyond it.
  const std::vector<char> exact(file.begin(), file.end());
  const auto parsed = ParseSafetensors(std::as_bytes(std::span(exact)));
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  return Message(parsed.status());
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const std::string file = File(R"({"__metadata__":{"format":"pt"},)"
                                R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                                R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                R"("c":{"data_offsets":[16,16],"shape":[2,0],"dtype":"I64"}})",
                                std::string(4, 'a') + std::string(12, 'b'));
  const auto parsed = ParseSafetensors(std::as_bytes(std::span(file.data(), file.size())));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->size(), 3U);
  EXPECT_EQ((*parsed)[0].name, "a");
  EXPECT_TRUE((*parsed)[0].shape.empty());
  EXPECT_EQ((*parsed)[1].name, "b");
  EXPECT_EQ((*parsed)[1].dtype, DType::kBF16);
  EXPECT_EQ((*parsed)[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp((*parsed)[1].data.data(), "bbbbbbbbbbbb", 12), 0);
  EXPECT_FALSE((*parsed)[2].dtype.has_value());
  EXPECT_TRUE((*parsed)[2].data.empty());
}

TEST(Safetensors, HeaderLength) {
  const std::string rest = "{}" + std::string(64, ' ');
  EXPECT_EQ(Refusal(Raw<uint64_t>(66) + rest), "");
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{67}, uint64_t{74}, uint64_t{100'000'001},
        uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 4, uint64_t{0xFFFFFFFF0000003C}}) {
    EXPECT_NE(Refusal(Raw(length) + rest), "") << length;
  }
}

TEST(Safetensors, ShortFiles) {
  for (size_t size = 0; size <= 8; ++size) {
    EXPECT_NE(Refusal(Raw<uint64_t>(2).substr(0, size)), "") << size;
  }
}

TEST(Safetensors, HeaderText) {
  EXPECT_EQ(Refusal(File("{}")), "");
  EXPECT_EQ(Refusal(File("{}\r \t\n")), "") << "padded";
  for (const std::string& header : {
           std::string("\xff"),
           std::string("{"),
           std::string("[]"),
           std::string("}"),
           std::string(" {}"),
           std::string("{} x"),
           std::string("{}{}"),
           std::string("{\"a\":1}"),
           std::string("{\"a\":\"b\"}"),
           std::string("{\"a\":null}"),
           std::string("{\"a\":[]}"),
           std::string("{\"a\":{}}"),
           std::string("{\"__metadata__\":5}"),
           std::string("{\"__metadata__\":{\"a\":1}}"),
           std::string("{\"__metadata__\":{\"a\":{}}}"),
           std::string("{\"\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]}}"),
           std::string("{\"a\xff\":1}"),
           std::string(100000, '['),
       }) {
    EXPECT_NE(Refusal(File(header)), "") << header.substr(0, 60);
  }
  std::string nested = "{\"a\":";
  for (int i = 0; i < 100000; ++i) nested += "{\"a\":";
  EXPECT_NE(Refusal(File(nested)), "");
}

std::string One(const std::string& entry, size_t data = 16) {
  return File("{\"t\":{" + entry + "}}", std::string(data, '\0'));
}

TEST(Safetensors, Entries) {
  EXPECT_EQ(Refusal(One(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])")), "");
  for (const char* entry : {
           R"("dtype":"F32","shape":[4])",
           R"("dtype":"F32","data_offsets":[0,16])",
           R"("shape":[4],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[4],"data_offsets":[0,16],"extra":1)",
           R"("dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[4],"data_offsets":[0,16],"data_offsets":[0,16])",
           R"("dtype":5,"shape":[4],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":4,"data_offsets":[0,16])",
           R"("dtype":"F32","shape":["4"],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[[4]],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[{}],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[1e308],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[true],"data_offsets":[0,16])",
           R"("dtype":"F32","shape":[4],"data_offsets":[16])",
           R"("dtype":"F32","shape":[4],"data_offsets":[0,8,16])",
           R"("dtype":"F32","shape":[4],"data_offsets":[16,0])",
           R"("dtype":"F32","shape":[4],"data_offsets":[])",
           R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16])",
       }) {
    EXPECT_NE(Refusal(One(entry)), "") << entry;
  }
}

TEST(Safetensors, DuplicateNames) {
  EXPECT_THAT(Refusal(File(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                           std::string(8, '\0'))),
              HasSubstr("\"t\" is given twice"));
}

TEST(Safetensors, OverlapsAndGaps) {
  const auto two = [](const char* first, const char* second, size_t data) {
    return File(std::string(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)") + first +
                    R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}",
                std::string(data, '\0'));
  };
  EXPECT_EQ(Refusal(two("[0,4]", "[4,8]", 8)), "");
  EXPECT_EQ(Refusal(two("[4,8]", "[0,4]", 8)), "");
  EXPECT_NE(Refusal(two("[0,4]", "[0,4]", 4)), "") << "shared";
  EXPECT_NE(Refusal(two("[0,4]", "[2,6]", 6)), "") << "overlapping";
  EXPECT_NE(Refusal(two("[0,4]", "[8,12]", 12)), "") << "a gap";
  EXPECT_NE(Refusal(two("[4,8]", "[8,12]", 12)), "") << "a gap in front";
  EXPECT_NE(Refusal(two("[0,4]", "[4,8]", 9)), "") << "more behind";
  EXPECT_NE(Refusal(two("[0,4]", "[4,8]", 7)), "") << "less";
  std::string many = "{";
  for (int i = 0; i < 10; ++i) {
    many += (i > 0 ? ",\"" : "\"") + std::to_string(i) +
            R"(":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
  }
  EXPECT_NE(Refusal(File(many + "}", std::string(16, '\0'))), "");
  EXPECT_NE(Refusal(File("{}", "x")), "");
}

TEST(Safetensors, ShapesAgainstRanges) {
  EXPECT_NE(Refusal(One(R"("dtype":"I32","shape":[2,2],"data_offsets":[0,4])", 4)), "");
  EXPECT_NE(Refusal(One(R"("dtype":"F32","shape":[32,8],"data_offsets":[0,65536])", 65536)), "");
  EXPECT_NE(Refusal(One(R"("dtype":"F32","shape":[1048576],"data_offsets":[0,4194304])", 4)), "");
  for (const char* shape :
       {"[2,18446744073709551614]", "[2,9223372036854775807]", "[4294967296,4294967296]",
        "[9223372036854775807,9223372036854775807,0]", "[4611686018427387904,4]"}) {
    EXPECT_NE(Refusal(One(std::string(R"("dtype":"F32","shape":)") + shape +
                          R"(,"data_offsets":[0,16])")),
              "")
        << shape;
  }
}

TEST(Safetensors, UnknownTypes) {
  for (const char* dtype : {"F4", "", "q8", "f32", "F320"}) {
    EXPECT_THAT(Refusal(One(std::string(R"("dtype":")") + dtype +
                            R"(","shape":[4],"data_offsets":[0,16])")),
                HasSubstr("dtype"));
  }
  // The range is checked first.
  EXPECT_THAT(Refusal(One(R"("dtype":"F4","shape":[4],"data_offsets":[0,9223372036854775807])")),
              HasSubstr("data_offsets"));
}

TEST(Safetensors, PointersAreNamed) {
  EXPECT_THAT(Refusal("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"),
              HasSubstr("Git LFS"));
}

TEST(Safetensors, CutAnywhereItIsRefused) {
  const std::string file = One(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])");
  ASSERT_EQ(Refusal(file), "");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(Refusal(file.substr(0, size)), "") << size;
  }
}

TEST(Safetensors, EveryChangedByteIsReadOrRefused) {
  const std::string file =
      File(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
           R"("b":{"dtype":"F16","shape":[4],"data_offsets":[8,16]}})",
           std::string(16, '\0'));
  int refused = 0;
  for (size_t place = 0; place + 16 < file.size(); ++place) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[place] = static_cast<char>(value);
      if (!Refusal(changed).empty()) ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace polysil
