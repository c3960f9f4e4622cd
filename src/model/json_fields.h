// JsonFields: typed reading of a parsed JSON object, with errors that name key and value. Null
// counts as absent. Borrows the object. Not a parser.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "polysil/base/status.h"

namespace polysil {

// A JSON object of bounded depth; INVALID_ARGUMENT naming `what` for anything else.
StatusOr<boost::json::object> ParseJsonObject(std::string_view text, std::string_view what);

// The value as JSON text of at most 64 bytes, for people.
std::string ShortJson(const boost::json::value& value);

class JsonFields final {
 public:
  // `path` precedes keys in messages: "" or "rope_scaling.".
  explicit JsonFields(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  std::string Path(std::string_view key) const { return path_ + std::string(key); }
  // Null where absent or null.
  const boost::json::value* Find(std::string_view key) const;
  bool IsNull(std::string_view key) const;  // there, and null
  StatusOr<std::optional<int64_t>> Int(std::string_view key, int64_t least, int64_t most) const;
  StatusOr<int32_t> RequiredInt(std::string_view key, int32_t most) const;  // 1 to `most`
  StatusOr<std::optional<double>> Number(std::string_view key) const;       // finite
  StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  StatusOr<std::optional<std::string>> String(std::string_view key) const;
  StatusOr<const boost::json::object*> Object(std::string_view key) const;  // null where absent
  StatusOr<const boost::json::array*> Array(std::string_view key) const;    // null where absent

 private:
  Status Wrong(std::string_view key, std::string_view wanted) const;

  const boost::json::object& object_;
  std::string path_;
};

}  // namespace polysil
