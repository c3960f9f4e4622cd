#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <exception>
#include <set>
#include <string_view>
#include <utility>

namespace polysil {
namespace {

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // by the format
constexpr size_t kDimsMax = 8;
constexpr int64_t kElementsMax = int64_t{1} << 56;

struct FormatType {
  std::string_view name;
  int64_t bytes;
  std::optional<DType> dtype;
};
constexpr std::array<FormatType, 17> kTypes = {{
    {"F32", 4, DType::kF32},
    {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},
    {"F64", 8, std::nullopt},
    {"I64", 8, std::nullopt},
    {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},
    {"I8", 1, std::nullopt},
    {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
    {"C64", 8, std::nullopt},
}};

const FormatType* FindType(std::string_view name) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const FormatType& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : found;
}

// A tensor as the header states it.
struct Entry {
  std::string name;
  std::optional<std::string> type_name;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;
};

// Receives the header's JSON piece by piece. A tree would lose that a name is given twice. The only
// shape allowed is {"name": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}, ...} and
// {"__metadata__": {"key": "text"}}.
class HeaderEvents final {
 public:
  using Error = boost::json::error_code;
  using Text = boost::json::string_view;
  static constexpr std::size_t max_array_size = -1;
  static constexpr std::size_t max_object_size = -1;
  static constexpr std::size_t max_string_size = -1;
  static constexpr std::size_t max_key_size = -1;

  const std::string& failure() const { return failure_; }
  std::vector<Entry> TakeEntries() { return std::move(entries_); }

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }

  bool on_object_begin(Error& error) {
    if (depth_ == 1 && !in_metadata_) entries_.push_back({.name = key_});
    if (depth_ >= 2) return Fail(error, "an object inside of a tensor's entry");
    ++depth_;
    return true;
  }

  bool on_object_end(std::size_t, Error& error) {
    --depth_;
    if (depth_ != 1) return true;
    const bool was_metadata = std::exchange(in_metadata_, false);
    if (was_metadata) return true;
    const Entry& entry = entries_.back();
    if (entry.type_name && entry.shape && entry.offsets) return true;
    return Fail(error, fmt::format("tensor {} lacks dtype, shape or data_offsets", entry.name));
  }

  bool on_array_begin(Error& error) {
    if (depth_ != 2 || in_metadata_ || numbers_) return Fail(error, "an array out of place");
    if (key_ == "shape" && !entries_.back().shape) {
      numbers_ = &entries_.back().shape.emplace();
    } else if (key_ == "data_offsets" && !entries_.back().offsets) {
      numbers_ = &entries_.back().offsets.emplace();
    } else {
      return Fail(error, fmt::format("tensor {}: field \"{}\" is unknown, given twice or no array",
                                     entries_.back().name, Printable(key_)));
    }
    return true;
  }

  bool on_array_end(std::size_t, Error&) {
    numbers_ = nullptr;
    return true;
  }

  bool on_key_part(Text part, std::size_t, Error&) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool on_key(Text part, std::size_t, Error& error) {
    text_.append(part.data(), part.size());
    key_ = std::exchange(text_, {});
    if (depth_ != 1) return true;
    if (!names_.insert(key_).second) {
      return Fail(error, fmt::format("\"{}\" is given twice", Printable(key_)));
    }
    in_metadata_ = key_ == "__metadata__";
    if (!in_metadata_ && (key_.empty() || Printable(key_) != key_)) {
      return Fail(error, fmt::format("tensor name \"{}\" is not printable ASCII", Printable(key_)));
    }
    return true;
  }

  bool on_string_part(Text part, std::size_t, Error&) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool on_string(Text part, std::size_t, Error& error) {
    text_.append(part.data(), part.size());
    std::string text = std::exchange(text_, {});
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ == 2 && !numbers_ && key_ == "dtype" && !entries_.back().type_name) {
      entries_.back().type_name = std::move(text);
      return true;
    }
    return Fail(error, fmt::format("a text where field \"{}\" has none", Printable(key_)));
  }

  bool on_number_part(Text, Error&) { return true; }

  bool on_int64(int64_t value, Text, Error& error) {
    if (numbers_ == nullptr || value < 0) {
      return Fail(error, fmt::format("number {} out of place", value));
    }
    if (numbers_->size() >= kDimsMax) {
      return Fail(error, fmt::format("tensor {} has more than {} dimensions", entries_.back().name,
                                     kDimsMax));
    }
    numbers_->push_back(value);
    return true;
  }

  bool on_uint64(uint64_t value, Text, Error& error) {
    return Fail(error, fmt::format("number {} is too large", value));
  }
  bool on_double(double value, Text, Error& error) {
    return Fail(error, fmt::format("number {} is not a count", value));
  }
  bool on_bool(bool, Error& error) { return Fail(error, "a bool out of place"); }
  bool on_null(Error& error) { return Fail(error, "a null out of place"); }
  bool on_comment_part(Text, Error&) { return true; }
  bool on_comment(Text, Error&) { return true; }

 private:
  static std::string Printable(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 1024)) out += c >= 0x20 && c < 0x7f ? c : '?';
    return out;
  }

  bool Fail(Error& error, std::string message) {
    failure_ = std::move(message);
    error = boost::json::error::syntax;
    return false;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string text_;  // a key or string that comes in parts
  std::string key_;   // the last one read
  std::set<std::string> names_;
  std::vector<Entry> entries_;
  std::vector<int64_t>* numbers_ = nullptr;  // the array being read; in entries_.back()
  std::string failure_;
};

StatusOr<std::vector<Entry>> ParseHeader(std::string_view header) {
  if (header.empty() || header.front() != '{') {
    return InvalidArgument("the safetensors header does not begin with {{");
  }
  try {
    boost::json::basic_parser<HeaderEvents> parser({});
    boost::json::error_code error;
    const size_t used = parser.write_some(false, header.data(), header.size(), error);
    if (!error && used < header.size()) error = boost::json::error::extra_data;
    if (error) {
      const std::string& failure = parser.handler().failure();
      return InvalidArgument("the safetensors header is wrong at byte {}: {}", used,
                             failure.empty() ? error.message() : failure);
    }
    return parser.handler().TakeEntries();
  } catch (const std::exception& e) {
    return InvalidArgument("the safetensors header cannot be parsed: {}", e.what());
  }
}

StatusOr<SafetensorsTensor> ToTensor(Entry entry, std::span<const std::byte> data) {
  const std::vector<int64_t>& offsets = *entry.offsets;
  const auto size = static_cast<int64_t>(data.size());
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size) {
    return InvalidArgument(
        "tensor {} has data_offsets [{}], which are not a range of the {} bytes "
        "of data",
        entry.name, fmt::join(offsets, ", "), size);
  }
  const FormatType* type = FindType(*entry.type_name);
  if (type == nullptr) {
    return InvalidArgument("tensor {} has dtype \"{}\", which is not known", entry.name,
                           entry.type_name->substr(0, 32));
  }
  int64_t elements = 1;
  for (const int64_t dim : *entry.shape) {
    if (dim > 0 && elements > kElementsMax / dim) {
      return InvalidArgument("tensor {} has too many elements: one dimension is {}", entry.name,
                             dim);
    }
    elements *= dim;
  }
  if (elements * type->bytes != offsets[1] - offsets[0]) {
    return InvalidArgument("tensor {} has {} elements of {} bytes, but data_offsets hold {} bytes",
                           entry.name, elements, type->bytes, offsets[1] - offsets[0]);
  }
  return SafetensorsTensor{std::move(entry.name), std::move(*entry.type_name), type->dtype,
                           std::move(*entry.shape),
                           data.subspan(offsets[0], offsets[1] - offsets[0])};
}

Status CheckContiguous(std::span<const SafetensorsTensor> tensors,
                       std::span<const std::byte> data) {
  const std::byte* expected = data.data();
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.data.data() != expected) {
      return InvalidArgument(
          "tensor {} begins at data byte {}, not where the one before it ends, "
          "{}",
          tensor.name, tensor.data.data() - data.data(), expected - data.data());
    }
    expected += tensor.data.size();
  }
  const int64_t used = expected - data.data();
  if (used != static_cast<int64_t>(data.size())) {
    return InvalidArgument("the file has {} bytes of data, but its tensors take {}", data.size(),
                           used);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<SafetensorsTensor>> ParseSafetensors(std::span<const std::byte> bytes) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(kPointer)) {
    return InvalidArgument("the file is a Git LFS pointer, not the weights themselves");
  }
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return InvalidArgument("the file has {} bytes, too few for a safetensors file", bytes.size());
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const uint64_t remaining = bytes.size() - sizeof(header_bytes);
  if (header_bytes > remaining || header_bytes > kHeaderBytesMax) {
    return InvalidArgument(
        "the safetensors header claims {} bytes; {} remain in the file and at "
        "most {} are read",
        header_bytes, remaining, kHeaderBytesMax);
  }
  ASSIGN_OR_RETURN(std::vector<Entry> entries,
                   ParseHeader(text.substr(sizeof(header_bytes), header_bytes)));
  const std::span<const std::byte> data = bytes.subspan(sizeof(header_bytes) + header_bytes);
  std::vector<SafetensorsTensor> tensors;
  for (Entry& entry : entries) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), ToTensor(std::move(entry), data));
  }
  // By begin, then by end: an empty tensor lies before the one that begins at the same byte.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  RETURN_IF_ERROR(CheckContiguous(tensors, data));
  return tensors;
}

}  // namespace polysil
