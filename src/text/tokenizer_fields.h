// TokenizerFields: reads the fields of one object of a tokenizer file, whose author is not trusted:
// a field of the wrong type is INVALID_ARGUMENT that names it. Borrows the object.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "polysil/base/status.h"

namespace polysil {

inline std::string_view StringView(const boost::json::string& text) {
  return {text.data(), text.size()};
}

class TokenizerFields final {
 public:
  // `where` names the object in messages. Fails if `value` is no object.
  static StatusOr<TokenizerFields> Of(const boost::json::value& value, std::string where);

  // A field that is absent counts as null.
  const boost::json::value* Find(std::string_view name) const;  // nullptr for null
  StatusOr<const boost::json::value*> Required(std::string_view name) const;

  StatusOr<std::string> String(std::string_view name) const;
  StatusOr<std::optional<std::string>> OptionalString(std::string_view name) const;
  StatusOr<bool> Bool(std::string_view name, bool if_absent) const;
  StatusOr<std::optional<bool>> OptionalBool(std::string_view name) const;
  StatusOr<int64_t> Int(std::string_view name, int64_t min, int64_t max) const;
  StatusOr<const boost::json::array*> Array(std::string_view name) const;

  const std::string& where() const { return where_; }

 private:
  TokenizerFields(const boost::json::object& object, std::string where)
      : object_(&object), where_(std::move(where)) {}
  Status WrongType(std::string_view name, std::string_view wanted) const;

  const boost::json::object* object_;
  std::string where_;
};

}  // namespace polysil
