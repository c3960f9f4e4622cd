#include "model/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace polysil {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr uint64_t kKeyLengthMax = 65535;  // by the specification
constexpr uint64_t kTensorNameMax = 1024;  // the specification says 64; some writers pass it
constexpr uint32_t kDimsMax = 4;
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMax = 65536;
constexpr int64_t kElementsMax = int64_t{1} << 56;

// Every type of the format by number, so that sizes can be checked even for those we cannot run.
struct FormatType {
  uint32_t number;
  std::string_view name;
  int32_t values_per_block;
  int32_t bytes_per_block;
};
constexpr std::array<FormatType, 14> kTypesNotRun = {{
    {9, "Q8_1", 32, 36},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {22, "IQ2_S", 256, 82},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
}};

std::optional<FormatType> FindFormatType(uint32_t number) {
  if (const std::optional<DType> dtype = DTypeFromGguf(number)) {
    const DTypeInfo& info = Info(*dtype);
    return FormatType{number, info.name, info.values_per_block, info.bytes_per_block};
  }
  for (const FormatType& type : kTypesNotRun) {
    if (type.number == number) return type;
  }
  return std::nullopt;
}

// Bytes of one element; 0 for strings and arrays.
size_t ElementBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool IsPrintableAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// A cursor over the file. Every read asks first whether the bytes are there: `n <= size -
// position`, which cannot wrap.
class Reader final {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  StatusOr<T> Number(std::string_view what) {
    ASSIGN_OR_RETURN(const std::span<const std::byte> raw, Bytes(sizeof(T), what));
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  StatusOr<std::span<const std::byte>> Bytes(uint64_t size, std::string_view what) {
    if (size > remaining()) {
      return InvalidArgument("the file ends at byte {}: {} at byte {} needs {} bytes, {} remain",
                             bytes_.size(), what, position_, size, remaining());
    }
    const std::span<const std::byte> out = bytes_.subspan(position_, size);
    position_ += size;
    return out;
  }

  StatusOr<std::string_view> String(std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t size, Number<uint64_t>(what));
    ASSIGN_OR_RETURN(const std::span<const std::byte> raw, Bytes(size, what));
    return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

  StatusOr<GgufType> Type(std::string_view key) {
    ASSIGN_OR_RETURN(const uint32_t number, Number<uint32_t>("a value type"));
    if (number > static_cast<uint32_t>(GgufType::kFloat64)) {
      return InvalidArgument("key {} has value type {}, which the format does not know", key,
                             number);
    }
    return static_cast<GgufType>(number);
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

StatusOr<bool> BoolFrom(std::byte raw, std::string_view key) {
  if (raw > std::byte{1}) {
    return InvalidArgument("key {} is a bool of value {}", key, std::to_integer<int>(raw));
  }
  return raw == std::byte{1};
}

StatusOr<GgufArray> ReadArray(Reader& reader, std::string_view key) {
  GgufArray array;
  ASSIGN_OR_RETURN(array.type, reader.Type(key));
  ASSIGN_OR_RETURN(const uint64_t size, reader.Number<uint64_t>("an array length"));
  if (array.type == GgufType::kArray) {
    return InvalidArgument("key {} is an array of arrays, which no model uses", key);
  }
  // A string takes 8 bytes at least, for its length.
  const uint64_t element_bytes = array.type == GgufType::kString ? 8 : ElementBytes(array.type);
  if (size > reader.remaining() / element_bytes) {
    return InvalidArgument("key {} is an array of {} elements, but only {} bytes remain", key, size,
                           reader.remaining());
  }
  array.size = static_cast<int64_t>(size);
  if (array.type == GgufType::kString) {
    array.strings.reserve(size);
    for (uint64_t i = 0; i < size; ++i) {
      ASSIGN_OR_RETURN(const std::string_view text, reader.String(key));
      array.strings.push_back(text);
    }
    return array;
  }
  ASSIGN_OR_RETURN(array.numbers, reader.Bytes(size * element_bytes, key));
  if (array.type == GgufType::kBool) {
    for (const std::byte raw : array.numbers) RETURN_IF_ERROR(BoolFrom(raw, key).status());
  }
  return array;
}

template <typename Stored, typename Wide>
StatusOr<GgufValue> ReadNumber(Reader& reader, GgufType type, std::string_view key) {
  ASSIGN_OR_RETURN(const Stored number, reader.Number<Stored>(key));
  return GgufValue{type, static_cast<Wide>(number)};
}

StatusOr<GgufValue> ReadValue(Reader& reader, std::string_view key) {
  ASSIGN_OR_RETURN(const GgufType type, reader.Type(key));
  switch (type) {
    case GgufType::kUint8:
      return ReadNumber<uint8_t, uint64_t>(reader, type, key);
    case GgufType::kInt8:
      return ReadNumber<int8_t, int64_t>(reader, type, key);
    case GgufType::kUint16:
      return ReadNumber<uint16_t, uint64_t>(reader, type, key);
    case GgufType::kInt16:
      return ReadNumber<int16_t, int64_t>(reader, type, key);
    case GgufType::kUint32:
      return ReadNumber<uint32_t, uint64_t>(reader, type, key);
    case GgufType::kInt32:
      return ReadNumber<int32_t, int64_t>(reader, type, key);
    case GgufType::kFloat32:
      return ReadNumber<float, double>(reader, type, key);
    case GgufType::kUint64:
      return ReadNumber<uint64_t, uint64_t>(reader, type, key);
    case GgufType::kInt64:
      return ReadNumber<int64_t, int64_t>(reader, type, key);
    case GgufType::kFloat64:
      return ReadNumber<double, double>(reader, type, key);
    case GgufType::kBool: {
      ASSIGN_OR_RETURN(const std::byte raw, reader.Number<std::byte>(key));
      ASSIGN_OR_RETURN(const bool value, BoolFrom(raw, key));
      return GgufValue{type, value};
    }
    case GgufType::kString: {
      ASSIGN_OR_RETURN(const std::string_view text, reader.String(key));
      return GgufValue{type, text};
    }
    case GgufType::kArray: {
      ASSIGN_OR_RETURN(GgufArray array, ReadArray(reader, key));
      return GgufValue{type, std::move(array)};
    }
  }
  return InvalidArgument("key {} has no value", key);
}

StatusOr<uint32_t> ReadVersion(Reader& reader) {
  ASSIGN_OR_RETURN(const std::span<const std::byte> magic, reader.Bytes(4, "the magic number"));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    return InvalidArgument("the file does not begin with \"GGUF\"");
  }
  ASSIGN_OR_RETURN(const uint32_t version, reader.Number<uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if (version != 0 && (version & 0xffffU) == 0) {
    return InvalidArgument(
        "the file is big-endian (version bytes 0x{:08x}); only little-endian "
        "GGUF is read",
        version);
  }
  return InvalidArgument("the file is GGUF version {}; versions 2 and 3 are read", version);
}

StatusOr<std::map<std::string_view, GgufValue>> ReadMetadata(Reader& reader, uint64_t count) {
  std::map<std::string_view, GgufValue> metadata;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, reader.String("a metadata key"));
    if (key.empty() || key.size() > kKeyLengthMax || !IsPrintableAscii(key)) {
      return InvalidArgument("metadata key {} is not 1 to {} printable ASCII characters", i,
                             kKeyLengthMax);
    }
    ASSIGN_OR_RETURN(GgufValue value, ReadValue(reader, key));
    if (!metadata.emplace(key, std::move(value)).second) {
      return InvalidArgument("metadata key {} is given twice", key);
    }
  }
  return metadata;
}

// A tensor before its data is known to be there.
struct TensorHead {
  GgufTensor tensor;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

Status ReadDims(Reader& reader, GgufTensor& tensor) {
  ASSIGN_OR_RETURN(const uint32_t dims, reader.Number<uint32_t>("a tensor's dimensions"));
  if (dims < 1 || dims > kDimsMax) {
    return InvalidArgument("tensor {} has {} dimensions; 1 to {} are read", tensor.name, dims,
                           kDimsMax);
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t dim, reader.Number<uint64_t>("a tensor's shape"));
    if (dim > static_cast<uint64_t>(kElementsMax) ||
        (dim > 0 && elements > kElementsMax / static_cast<int64_t>(dim))) {
      return InvalidArgument("tensor {} has too many elements: dimension {} is {}", tensor.name, i,
                             dim);
    }
    elements *= static_cast<int64_t>(dim);
    tensor.dims.push_back(static_cast<int64_t>(dim));
  }
  return OkStatus();
}

StatusOr<TensorHead> ReadTensorHead(Reader& reader) {
  TensorHead head;
  GgufTensor& tensor = head.tensor;
  ASSIGN_OR_RETURN(tensor.name, reader.String("a tensor name"));
  if (tensor.name.empty() || tensor.name.size() > kTensorNameMax ||
      !IsPrintableAscii(tensor.name)) {
    return InvalidArgument("a tensor name before byte {} is not 1 to {} printable ASCII characters",
                           reader.position(), kTensorNameMax);
  }
  RETURN_IF_ERROR(ReadDims(reader, tensor));
  ASSIGN_OR_RETURN(tensor.ggml_type, reader.Number<uint32_t>("a tensor's type"));
  ASSIGN_OR_RETURN(head.offset, reader.Number<uint64_t>("a tensor's offset"));
  const std::optional<FormatType> type = FindFormatType(tensor.ggml_type);
  if (!type) {
    return InvalidArgument("tensor {} has type {}, which is not a known GGUF type", tensor.name,
                           tensor.ggml_type);
  }
  tensor.type_name = type->name;
  tensor.dtype = DTypeFromGguf(tensor.ggml_type);
  if (tensor.dims[0] % type->values_per_block != 0) {
    return InvalidArgument("tensor {} of type {} has rows of {} values, not a multiple of {}",
                           tensor.name, type->name, tensor.dims[0], type->values_per_block);
  }
  uint64_t elements = 1;
  for (const int64_t dim : tensor.dims) elements *= static_cast<uint64_t>(dim);
  // At most 2^56 elements of 8 bytes: below 2^60.
  head.bytes = elements / type->values_per_block * type->bytes_per_block;
  return head;
}

// Tensors follow each other in the order listed, each begun at the alignment; nothing overlaps.
Status PlaceTensors(std::span<const std::byte> bytes, uint64_t data_begin, uint64_t alignment,
                    std::vector<TensorHead>& heads) {
  uint64_t offset_expected = 0;
  for (TensorHead& head : heads) {
    const GgufTensor& tensor = head.tensor;
    if (head.offset != offset_expected) {
      return InvalidArgument("tensor {} has offset {}; after the tensors before it, it must be {}",
                             tensor.name, head.offset, offset_expected);
    }
    const uint64_t data_bytes = bytes.size() > data_begin ? bytes.size() - data_begin : 0;
    if (head.offset > data_bytes || head.bytes > data_bytes - head.offset) {
      if (head.bytes > 0) {
        return InvalidArgument("the file ends at byte {}: tensor {} needs {} bytes at byte {}",
                               bytes.size(), tensor.name, head.bytes, data_begin + head.offset);
      }
    } else {
      head.tensor.data = bytes.subspan(data_begin + head.offset, head.bytes);
    }
    // No wrap: the end lies in the file, and the alignment is small.
    offset_expected = (head.offset + head.bytes + alignment - 1) / alignment * alignment;
  }
  return OkStatus();
}

StatusOr<uint64_t> AlignmentOf(const GgufFile& file) {
  const GgufValue* value = file.Find("general.alignment");
  if (value == nullptr) return kAlignmentDefault;
  if (value->type != GgufType::kUint32) {
    return InvalidArgument("general.alignment is a {}, not a uint32", Name(value->type));
  }
  const uint64_t alignment = std::get<uint64_t>(value->value);
  if (!std::has_single_bit(alignment) || alignment > kAlignmentMax) {
    return InvalidArgument("general.alignment is {}, not a power of two up to {}", alignment,
                           kAlignmentMax);
  }
  return alignment;
}

Status WrongType(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return InvalidArgument("{} is a {}, not {}", key, Name(value.type), wanted);
}

std::string Shortened(std::string_view text, size_t length_max) {
  std::string out;
  for (const char c : text.substr(0, length_max)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  // Do not end in the middle of a UTF-8 character.
  if (text.size() > length_max) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0U) == 0x80U)
      out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0U) out.pop_back();
    out += "...";
  }
  return out;
}

}  // namespace

std::string_view Name(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames = {
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<size_t>(type)];
}

std::string ToText(const GgufValue& value, size_t length_max) {
  if (const auto* number = std::get_if<uint64_t>(&value.value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<int64_t>(&value.value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value.value)) return fmt::format("{:.9g}", *number);
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string_view>(&value.value)) {
    return Shortened(*text, length_max);
  }
  const auto& array = std::get<GgufArray>(value.value);
  return fmt::format("[{} x {}]", Name(array.type), array.size);
}

StatusOr<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  GgufFile file;
  Reader reader(bytes);
  ASSIGN_OR_RETURN(file.version_, ReadVersion(reader));
  ASSIGN_OR_RETURN(const uint64_t tensors, reader.Number<uint64_t>("the number of tensors"));
  ASSIGN_OR_RETURN(const uint64_t keys, reader.Number<uint64_t>("the number of metadata keys"));
  // The least a key (length, one letter, type, one byte) and a tensor (length, one letter,
  // dimensions, one size, type, offset) can take.
  constexpr uint64_t kKeyBytesMin = 8 + 1 + 4 + 1;
  constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;
  if (keys > reader.remaining() / kKeyBytesMin) {
    return InvalidArgument("the file claims {} metadata keys, but only {} bytes follow", keys,
                           reader.remaining());
  }
  if (tensors > reader.remaining() / kTensorBytesMin) {
    return InvalidArgument("the file claims {} tensors, but only {} bytes follow", tensors,
                           reader.remaining());
  }
  ASSIGN_OR_RETURN(file.metadata_, ReadMetadata(reader, keys));
  ASSIGN_OR_RETURN(const uint64_t alignment, AlignmentOf(file));
  std::vector<TensorHead> heads;
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    ASSIGN_OR_RETURN(TensorHead head, ReadTensorHead(reader));
    if (!names.insert(head.tensor.name).second) {
      return InvalidArgument("tensor {} is listed twice", head.tensor.name);
    }
    heads.push_back(std::move(head));
  }
  const uint64_t data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  RETURN_IF_ERROR(PlaceTensors(bytes, data_begin, alignment, heads));
  for (TensorHead& head : heads) file.tensors_.push_back(std::move(head.tensor));
  return file;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

StatusOr<std::optional<int64_t>> GgufFile::FindInt(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(&value->value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value->value)) {
    if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return InvalidArgument("{} is {}, which is too large", key, *number);
    }
    return static_cast<int64_t>(*number);
  }
  return WrongType(key, *value, "an integer");
}

StatusOr<std::optional<double>> GgufFile::FindFloat(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value->value)) return *number;
  return WrongType(key, *value, "a float");
}

StatusOr<std::optional<bool>> GgufFile::FindBool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(&value->value)) return *flag;
  return WrongType(key, *value, "a bool");
}

StatusOr<std::optional<std::string_view>> GgufFile::FindString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string_view>(&value->value)) return *text;
  return WrongType(key, *value, "a string");
}

StatusOr<const GgufArray*> GgufFile::FindArray(std::string_view key, GgufType type) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr) return WrongType(key, *value, "an array");
  if (array->type != type) {
    return InvalidArgument("{} is an array of {}, not of {}", key, Name(array->type), Name(type));
  }
  return array;
}

}  // namespace polysil
