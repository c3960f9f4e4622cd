// Runs a template over JSON variables without ChatTemplate: for tests of the language alone.
#pragma once

#include <boost/json/object.hpp>
#include <ctime>
#include <memory>
#include <string_view>

#include "text/jinja/parser.h"
#include "text/jinja/rendering.h"

namespace polysil {

// The moment at which every reference rendering happened, a Friday.
inline std::tm ReferenceTime() {
  std::tm time{};
  time.tm_year = 2025 - 1900;
  time.tm_mon = 3 - 1;
  time.tm_mday = 14;
  time.tm_hour = 9;
  time.tm_min = 26;
  time.tm_sec = 53;
  time.tm_wday = 5;
  time.tm_yday = 72;
  return time;
}

inline StatusOr<jinja::Text> RunTemplate(const jinja::Ast& ast,
                                         const boost::json::object& variables,
                                         jinja::Dialect dialect,
                                         const jinja::RenderLimits& limits = {}) {
  jinja::Rendering rendering(ast, dialect, limits, ReferenceTime());
  for (const auto& [name, json] : variables) {
    jinja::Value value;
    if (!jinja::FromJson(rendering.runtime(), json, true, &value)) return rendering.error();
    rendering.SetVariable({name.data(), name.size()}, std::move(value));
  }
  return rendering.Run();
}

inline StatusOr<jinja::Text> RunTemplate(std::string_view source,
                                         const boost::json::object& variables,
                                         jinja::Dialect dialect = jinja::Dialect::kReference,
                                         const jinja::RenderLimits& limits = {}) {
  ASSIGN_OR_RETURN(const std::unique_ptr<const jinja::Ast> ast, jinja::Parse(source));
  return RunTemplate(*ast, variables, dialect, limits);
}

// The bytes that came from outside, each run in brackets, e.g. "<|user|>[Hi]<|end|>".
inline std::string ShowUntrusted(const std::string& text, const std::vector<ByteSpan>& untrusted) {
  std::string shown;
  size_t at = 0;
  for (const ByteSpan& span : untrusted) {
    shown += text.substr(at, span.begin - at) + "[" +
             text.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return shown + text.substr(at);
}

}  // namespace polysil
