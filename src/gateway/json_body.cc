#include "gateway/json_body.h"

#include <algorithm>
#include <boost/json/parser.hpp>
#include <cmath>
#include <limits>

#include "session/text_call.h"

namespace polysil {
namespace {

constexpr size_t kDepthMax = 64;

std::string_view KindName(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "a list";
    case boost::json::kind::object:
      return "an object";
  }
  return "unknown";
}

// The value as an integer, if it is one and fits.
std::optional<int64_t> Integer(const boost::json::value& value) {
  if (const int64_t* integer = value.if_int64()) return *integer;
  const double* number = value.if_double();
  // 2^53: beyond it a double does not say which integer it is.
  if (number == nullptr || std::abs(*number) > 9007199254740992.0) return std::nullopt;
  if (std::trunc(*number) != *number) return std::nullopt;
  return static_cast<int64_t>(*number);
}

bool IsNumber(const boost::json::value& value) {
  return value.is_int64() || value.is_uint64() || value.is_double();
}

std::string Text(const boost::json::value& value) {
  const boost::json::string& string = value.get_string();
  return std::string(string.data(), string.size());
}

}  // namespace

StatusOr<boost::json::object> ParseBody(std::string_view body) {
  boost::json::parse_options options;
  options.max_depth = kDepthMax;
  boost::json::parser parser({}, options);
  boost::json::error_code error;
  const size_t read = parser.write_some(body.data(), body.size(), error);
  if (error) {
    return InvalidArgument("the body is not valid JSON near byte {}: {}", read, error.message());
  }
  const size_t rest = body.find_first_not_of(" \t\r\n", read);
  if (rest != std::string_view::npos) {
    return InvalidArgument("the body is not valid JSON near byte {}: text after its end", rest);
  }
  boost::json::value value = parser.release();
  if (!value.is_object()) {
    return InvalidArgument("the body must be a JSON object, not {}", KindName(value));
  }
  return std::move(value.get_object());
}

StatusOr<std::vector<TokenId>> ReadTokenIds(const boost::json::array& list,
                                            std::string_view field) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const boost::json::value& value : list) {
    const std::optional<int64_t> id = Integer(value);
    if (!id) {
      return WithField(InvalidArgument("{}[{}] must be a token id, not {}", field, ids.size(),
                                       IsNumber(value) ? "a number like this" : KindName(value)),
                       field);
    }
    if (*id < std::numeric_limits<TokenId>::min() || *id > std::numeric_limits<TokenId>::max()) {
      return WithField(
          InvalidArgument("{}[{}] is {}, which is no token id", field, ids.size(), *id), field);
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

boost::json::value* FieldReader::Any(std::string_view name) {
  boost::json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const boost::json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (const bool* boolean = value->if_bool()) return *boolean;
  RefuseType(name, *value, "true or false");
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t min, int64_t max) {
  const boost::json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> integer = Integer(*value);
  if (integer && *integer >= min && *integer <= max) return integer;
  if (integer) {
    Refuse(name, fmt::format("is {}; it must be between {} and {}", *integer, min, max));
  } else if (IsNumber(*value)) {
    Refuse(name, fmt::format("must be an integer between {} and {}", min, max));
  } else {
    RefuseType(name, *value, "an integer");
  }
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Int64(std::string_view name) {
  const boost::json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> integer = Integer(*value);
  if (!integer) RefuseType(name, *value, "an integer of 64 bits");
  return integer;
}

std::optional<int32_t> FieldReader::Int32(std::string_view name) {
  const std::optional<int64_t> value = Int64(name);
  if (!value) return std::nullopt;
  return static_cast<int32_t>(std::clamp<int64_t>(*value, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}

std::optional<uint64_t> FieldReader::Bits64(std::string_view name) {
  const boost::json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (const uint64_t* bits = value->if_uint64()) return *bits;
  if (const std::optional<int64_t> integer = Integer(*value)) {
    return static_cast<uint64_t>(*integer);
  }
  RefuseType(name, *value, "an integer of 64 bits");
  return std::nullopt;
}

std::optional<float> FieldReader::Float(std::string_view name) {
  const boost::json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (!IsNumber(*value)) {
    RefuseType(name, *value, "a number");
    return std::nullopt;
  }
  boost::json::error_code error;
  const double number = value->to_number<double>(error);
  // Beyond a float's range a cast would be undefined.
  if (!(std::abs(number) <= std::numeric_limits<float>::max())) {
    Refuse(name, "is out of range");
    return std::nullopt;
  }
  return static_cast<float>(number);
}

std::optional<std::string> FieldReader::String(std::string_view name) {
  const boost::json::value* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return Text(*value);
  RefuseType(name, *value, "a string");
  return std::nullopt;
}

std::vector<std::string> FieldReader::Strings(std::string_view name) {
  const boost::json::value* value = Any(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {Text(*value)};
  const boost::json::array* list = value->if_array();
  if (list == nullptr) {
    RefuseType(name, *value, "a string or a list of strings");
    return {};
  }
  std::vector<std::string> strings;
  for (const boost::json::value& entry : *list) {
    if (!entry.is_string()) {
      RefuseType(name, entry, "a string or a list of strings");
      return {};
    }
    strings.push_back(Text(entry));
  }
  return strings;
}

std::vector<TokenId> FieldReader::TokenIds(std::string_view name) {
  const boost::json::array* list = Array(name);
  if (list == nullptr) return {};
  StatusOr<std::vector<TokenId>> ids = ReadTokenIds(*list, prefix_ + std::string(name));
  if (ids.ok()) return *std::move(ids);
  if (status_.ok()) status_ = ids.status();
  return {};
}

boost::json::object* FieldReader::Object(std::string_view name) {
  boost::json::value* value = Any(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) RefuseType(name, *value, "an object");
  return value->if_object();
}

boost::json::array* FieldReader::Array(std::string_view name) {
  boost::json::value* value = Any(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) RefuseType(name, *value, "a list");
  return value->if_array();
}

void FieldReader::Refuse(std::string_view name, std::string_view sentence) {
  if (!status_.ok()) return;
  const std::string field = prefix_ + std::string(name);
  status_ = WithField(InvalidArgument("{} {}", field, sentence), field);
}

void FieldReader::RefuseType(std::string_view name, const boost::json::value& value,
                             std::string_view wanted) {
  Refuse(name, IsNumber(value) ? fmt::format("must be {}", wanted)
                               : fmt::format("must be {}, not {}", wanted, KindName(value)));
}

}  // namespace polysil
