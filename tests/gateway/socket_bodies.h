// What the tests of sockets share: bodies, and an engine that never ends by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gateway/gateway_rig.h"

namespace polysil {

inline constexpr char kChatStreamBody[] =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
inline constexpr char kChatBody[] = R"({"messages":[{"role":"user","content":"hi"}]})";

// A stream with much to read for each token.
inline constexpr char kWideStreamBody[] =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"logprobs":true,
        "top_logprobs":20})";

inline std::vector<TokenId> Endless(const Request&, int32_t) {
  return {'a'};
}

inline FakeEngineOptions EndlessEngine() {
  FakeEngineOptions options{.script = Endless};
  options.limits.context_tokens_max = 1'000'000'000;
  options.limits.kv_tokens_max = 1'000'000'000;
  return options;
}

inline std::string PostText(std::string_view path, std::string_view body) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

}  // namespace polysil
