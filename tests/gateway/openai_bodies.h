// Short bodies for the OpenAI endpoints and the facts of their errors, for tests.
#pragma once

#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <string>

#include "gateway/http_client.h"

namespace polysil {

inline constexpr char kCompletions[] = "/v1/completions";
inline constexpr char kChat[] = "/v1/chat/completions";

inline std::string Str(const boost::json::value& value) {
  return std::string(value.as_string());
}

// {"messages":[user: hi], ...}
inline std::string Chat(const std::string& fields = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}
inline std::string Completion(const std::string& fields = "") {
  return R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}

struct ErrorFacts {
  int status = 0;
  std::string message;
  std::string type;
  std::string param;  // "" for null
  std::string code;
};

inline ErrorFacts ErrorOf(const HttpAnswer& answer) {
  const boost::json::object error = answer.Json().as_object().at("error").as_object();
  const auto text = [&](const char* key) {
    return error.at(key).is_null() ? std::string() : Str(error.at(key));
  };
  EXPECT_EQ(answer.Header("content-type"), "application/json");
  return {answer.status, text("message"), text("type"), text("param"), text("code")};
}

}  // namespace polysil
