#include "model/json_fields.h"

#include <boost/json/parse.hpp>
#include <boost/json/serializer.hpp>
#include <cmath>
#include <exception>
#include <limits>

namespace polysil {

StatusOr<boost::json::object> ParseJsonObject(std::string_view text, std::string_view what) {
  try {
    boost::json::error_code error;
    boost::json::value value = boost::json::parse({text.data(), text.size()}, error);
    if (error) return InvalidArgument("{} is not JSON: {}", what, error.message());
    if (!value.is_object()) return InvalidArgument("{} is not a JSON object", what);
    return std::move(value.get_object());
  } catch (const std::exception& e) {
    return InvalidArgument("{} cannot be parsed: {}", what, e.what());
  }
}

std::string ShortJson(const boost::json::value& value) {
  constexpr size_t kLengthMax = 64;
  try {
    boost::json::serializer serializer;
    serializer.reset(&value);
    char buffer[kLengthMax];
    const boost::json::string_view text = serializer.read(buffer, sizeof(buffer));
    std::string out(text.data(), text.size());
    // Do not end in the middle of a UTF-8 character.
    while (!serializer.done() && !out.empty() && (out.back() & 0x80) != 0) out.pop_back();
    return serializer.done() ? out : out + "...";
  } catch (const std::exception&) {
    return "(a value that cannot be shown)";
  }
}

const boost::json::value* JsonFields::Find(std::string_view key) const {
  const boost::json::value* value = object_.if_contains({key.data(), key.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool JsonFields::IsNull(std::string_view key) const {
  const boost::json::value* value = object_.if_contains({key.data(), key.size()});
  return value != nullptr && value->is_null();
}

Status JsonFields::Wrong(std::string_view key, std::string_view wanted) const {
  return InvalidArgument("{} is {}, not {}", Path(key), ShortJson(*Find(key)), wanted);
}

StatusOr<std::optional<int64_t>> JsonFields::Int(std::string_view key, int64_t least,
                                                 int64_t most) const {
  const boost::json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  int64_t number = 0;
  if (value->is_int64()) {
    number = value->get_int64();
  } else if (value->is_double() && std::nearbyint(value->get_double()) == value->get_double() &&
             std::abs(value->get_double()) < 1e15) {  // 131072.0 is written at times
    number = static_cast<int64_t>(value->get_double());
  } else {
    return Wrong(key, "an integer");
  }
  if (number < least || number > most) return Wrong(key, fmt::format("{} to {}", least, most));
  return number;
}

StatusOr<int32_t> JsonFields::RequiredInt(std::string_view key, int32_t most) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> number, Int(key, 1, most));
  if (!number) return InvalidArgument("{} is missing", Path(key));
  return static_cast<int32_t>(*number);
}

StatusOr<std::optional<double>> JsonFields::Number(std::string_view key) const {
  const boost::json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_int64()) return static_cast<double>(value->get_int64());
  if (value->is_double() && std::isfinite(value->get_double())) return value->get_double();
  return Wrong(key, "a finite number");
}

StatusOr<std::optional<bool>> JsonFields::Bool(std::string_view key) const {
  const boost::json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) return Wrong(key, "true or false");
  return value->get_bool();
}

StatusOr<std::optional<std::string>> JsonFields::String(std::string_view key) const {
  const boost::json::value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Wrong(key, "a text");
  return std::string(value->get_string().data(), value->get_string().size());
}

StatusOr<const boost::json::object*> JsonFields::Object(std::string_view key) const {
  const boost::json::value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) return Wrong(key, "an object");
  return &value->get_object();
}

StatusOr<const boost::json::array*> JsonFields::Array(std::string_view key) const {
  const boost::json::value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) return Wrong(key, "a list");
  return &value->get_array();
}

}  // namespace polysil
