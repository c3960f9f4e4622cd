#include "text/jinja/functions.h"

#include "text/jinja/operations.h"

namespace polysil::jinja {

const Value* Arguments::Keyword(std::string_view name) const {
  for (const auto& [key, value] : keyword) {
    if (key.as<String>().bytes() == name) return &value;
  }
  return nullptr;
}

const Value* ArgumentReader::Optional(std::string_view name) {
  const Value* by_name = name.empty() ? nullptr : arguments_.Keyword(name);
  if (by_name != nullptr) ++keywords_used_;
  if (position_ >= arguments_.positional.size()) return by_name;
  if (by_name != nullptr && !failed_) {
    failed_ = true;
    runtime_.Fail(std::string(function_) + "() got multiple values for argument '" +
                  std::string(name) + "'");
  }
  return &arguments_.positional[position_++];
}

const Value* ArgumentReader::Required(std::string_view name) {
  const Value* value = Optional(name);
  if (value == nullptr && !failed_) {
    failed_ = true;
    runtime_.Fail(std::string(function_) + "() missing 1 required positional argument: '" +
                  std::string(name) + "'");
  }
  return value;
}

bool ArgumentReader::OptionalBool(std::string_view name, bool otherwise) {
  const Value* value = Optional(name);
  return value == nullptr ? otherwise : Truth(*value);
}

int64_t ArgumentReader::OptionalInt(std::string_view name, int64_t otherwise) {
  const Value* value = Optional(name);
  return value == nullptr ? otherwise : ToInt(*value);
}

int64_t ArgumentReader::RequiredInt(std::string_view name) {
  const Value* value = Required(name);
  return value == nullptr ? 0 : ToInt(*value);
}

int64_t ArgumentReader::ToInt(const Value& value) {
  if (const std::optional<int64_t> number = ToInt64(value); number) return *number;
  if (value.is(Kind::kBigInt)) return IsNegative(value) ? INT64_MIN : INT64_MAX;
  if (!failed_) {
    failed_ = true;
    if (value.is_undefined()) {
      runtime_.FailUndefined(value);
    } else {
      runtime_.Fail("'" + TypeName(value) + "' object cannot be interpreted as an integer");
    }
  }
  return 0;
}

bool ArgumentReader::Done() {
  if (failed_) return false;
  if (position_ < arguments_.positional.size()) {
    return runtime_.Fail(std::string(function_) + "() takes " + std::to_string(position_) +
                         " positional arguments but " +
                         std::to_string(arguments_.positional.size()) + " were given");
  }
  if (keywords_used_ < arguments_.keyword.size()) {
    return runtime_.Fail(std::string(function_) + "() got an unexpected keyword argument");
  }
  return true;
}

}  // namespace polysil::jinja
