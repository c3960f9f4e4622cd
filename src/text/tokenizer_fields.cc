#include "text/tokenizer_fields.h"

namespace polysil {

StatusOr<TokenizerFields> TokenizerFields::Of(const boost::json::value& value, std::string where) {
  if (!value.is_object()) return InvalidArgument("{} is not an object", where);
  return TokenizerFields(value.get_object(), std::move(where));
}

Status TokenizerFields::WrongType(std::string_view name, std::string_view wanted) const {
  return InvalidArgument("{}.{} is not {}", where_, name, wanted);
}

const boost::json::value* TokenizerFields::Find(std::string_view name) const {
  const boost::json::value* const value = object_->if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

StatusOr<const boost::json::value*> TokenizerFields::Required(std::string_view name) const {
  const boost::json::value* const value = Find(name);
  if (value == nullptr) return InvalidArgument("{}.{} is missing", where_, name);
  return value;
}

StatusOr<std::string> TokenizerFields::String(std::string_view name) const {
  ASSIGN_OR_RETURN(const boost::json::value* value, Required(name));
  if (!value->is_string()) return WrongType(name, "a string");
  return std::string(StringView(value->get_string()));
}

StatusOr<std::optional<std::string>> TokenizerFields::OptionalString(std::string_view name) const {
  if (Find(name) == nullptr) return std::optional<std::string>();
  ASSIGN_OR_RETURN(std::string text, String(name));
  return std::optional(std::move(text));
}

StatusOr<bool> TokenizerFields::Bool(std::string_view name, bool if_absent) const {
  ASSIGN_OR_RETURN(const std::optional<bool> value, OptionalBool(name));
  return value.value_or(if_absent);
}

StatusOr<std::optional<bool>> TokenizerFields::OptionalBool(std::string_view name) const {
  const boost::json::value* const value = Find(name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return WrongType(name, "true or false");
  return std::optional(value->get_bool());
}

StatusOr<int64_t> TokenizerFields::Int(std::string_view name, int64_t min, int64_t max) const {
  ASSIGN_OR_RETURN(const boost::json::value* value, Required(name));
  if (!value->is_int64() || value->get_int64() < min || value->get_int64() > max) {
    return InvalidArgument("{}.{} is not an integer from {} to {}", where_, name, min, max);
  }
  return value->get_int64();
}

StatusOr<const boost::json::array*> TokenizerFields::Array(std::string_view name) const {
  ASSIGN_OR_RETURN(const boost::json::value* value, Required(name));
  if (!value->is_array()) return WrongType(name, "an array");
  return &value->get_array();
}

}  // namespace polysil
