// JsonWriter: appends JSON to a string, in order, without a tree. Always valid UTF-8 and strict
// JSON: no NaN, no Infinity. The caller opens and closes in pairs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace polysil {

// Appends `text` quoted. Ill-formed UTF-8 becomes U+FFFD. Line breaks that some readers of event
// streams know besides \n (U+0085, U+2028, U+2029) are escaped too.
void AppendJsonString(std::string_view text, std::string& out);

class JsonWriter final {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view name);
  JsonWriter& String(std::string_view text);
  JsonWriter& Int(int64_t value);
  // A log-probability or the like: minus infinity is -9999, as other servers write it.
  JsonWriter& Float(float value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  // A value that is JSON already.
  JsonWriter& Raw(std::string_view json);

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Separate();

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace polysil
