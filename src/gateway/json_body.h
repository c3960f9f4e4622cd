// Request bodies: from bytes to a checked JSON object, and typed fields out of it. Bounded depth;
// the errors name the byte or the field. Knows no endpoint.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"

namespace polysil {

// The body as one JSON object: UTF-8, at most 64 levels deep, the last of equal keys counts.
StatusOr<boost::json::object> ParseBody(std::string_view body);

// Reads typed fields; null is as good as absent. Remembers the first field that is wrong and goes
// on, so that the caller asks for status() once, at the end.
class FieldReader final {
 public:
  // `object` outlives the reader. `prefix` comes before the names in errors: "stream_options.".
  explicit FieldReader(boost::json::object& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  std::optional<bool> Bool(std::string_view name);
  // An integral number, written as 5 or as 5.0.
  std::optional<int64_t> Int(std::string_view name, int64_t min, int64_t max);
  // Of 64 bits.
  std::optional<int64_t> Int64(std::string_view name);
  // For fields in whose range the ends of 32 bits lie: what is beyond them becomes them.
  std::optional<int32_t> Int32(std::string_view name);
  // Any integer of 64 bits, signed or not, as bits.
  std::optional<uint64_t> Bits64(std::string_view name);
  std::optional<float> Float(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  // A string or a list of strings.
  std::vector<std::string> Strings(std::string_view name);
  std::vector<TokenId> TokenIds(std::string_view name);
  boost::json::object* Object(std::string_view name);
  boost::json::array* Array(std::string_view name);
  // Whatever it is; null if absent or null.
  boost::json::value* Any(std::string_view name);

  // Refuses `name`, in this sentence. The first refusal stands.
  void Refuse(std::string_view name, std::string_view sentence);
  const Status& status() const { return status_; }

 private:
  void RefuseType(std::string_view name, const boost::json::value& value, std::string_view wanted);

  boost::json::object& object_;
  const std::string prefix_;
  Status status_;
};

// Ids of a JSON list; INVALID_ARGUMENT under `field` for what is no 32-bit integer.
StatusOr<std::vector<TokenId>> ReadTokenIds(const boost::json::array& list, std::string_view field);

}  // namespace polysil
