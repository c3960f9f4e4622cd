// GgufFile: the structure of a GGUF file (version 2 or 3, little-endian): typed metadata and a list
// of tensors whose bytes all lie in the file. Every count, length, offset and type is checked
// before it is used, and nothing larger than the file is ever allocated. Knows no model
// (gguf_checkpoint.h does). Immutable; thread-safe to read; borrows the bytes it was parsed from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "polysil/base/status.h"
#include "polysil/core/dtype.h"

namespace polysil {

// Numbers as in the file format.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

std::string_view Name(GgufType type);

// Elements of one kind; strings are views into the file.
struct GgufArray {
  GgufType type = GgufType::kUint8;
  int64_t size = 0;
  std::span<const std::byte> numbers;     // size elements, unaligned; empty for strings
  std::vector<std::string_view> strings;  // size elements where type is kString
};

struct GgufValue {
  GgufType type = GgufType::kUint8;
  // By type: any unsigned, any signed, any float, bool, string, array.
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> value;
};

// "12", "\"llama\"", "[string x 49152]": at most length_max bytes, for people.
std::string ToText(const GgufValue& value, size_t length_max);

struct GgufTensor {
  std::string_view name;
  uint32_t ggml_type = 0;
  std::string_view type_name;  // "Q4_1"
  std::optional<DType> dtype;  // none: a type of the format that we cannot compute with
  std::vector<int64_t> dims;   // 1 to 4, the fastest first, as in the file
  std::span<const std::byte> data;
};

class GgufFile final {
 public:
  // `bytes` must outlive the file.
  static StatusOr<GgufFile> Parse(std::span<const std::byte> bytes);

  uint32_t version() const { return version_; }
  const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }
  // In the order of the file; names are unique.
  std::span<const GgufTensor> tensors() const { return tensors_; }

  const GgufValue* Find(std::string_view key) const;
  // None where the key is absent; INVALID_ARGUMENT naming key and type where it is something else.
  // FindInt takes every integer type and refuses what is outside int64_t.
  StatusOr<std::optional<int64_t>> FindInt(std::string_view key) const;
  StatusOr<std::optional<double>> FindFloat(std::string_view key) const;
  StatusOr<std::optional<bool>> FindBool(std::string_view key) const;
  StatusOr<std::optional<std::string_view>> FindString(std::string_view key) const;
  // Null where absent.
  StatusOr<const GgufArray*> FindArray(std::string_view key, GgufType type) const;

 private:
  GgufFile() = default;

  uint32_t version_ = 0;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
};

// Element `index` of an array whose elements are stored as T.
template <typename T>
T NumberAt(const GgufArray& array, int64_t index) {
  T value;
  std::memcpy(&value, array.numbers.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace polysil
