#include "sim/trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <limits>
#include <utility>

#include "engine/engine_core.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

namespace json = boost::json;

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kTokensMax = 1 << 24;
// A year: far above any trace, far below overflow.
constexpr int64_t kTimestampMsMax = int64_t{366} * 24 * 3600 * 1000;
constexpr size_t kRequestsMax = 10'000'000;

StatusOr<int64_t> IntegerField(const json::object& line, const char* name, int64_t low,
                               int64_t high) {
  const json::value* value = line.if_contains(name);
  if (value == nullptr || !value->is_int64()) return InvalidArgument("{} is no integer", name);
  const int64_t number = value->get_int64();
  if (number < low || number > high) {
    return InvalidArgument("{} is {}, must lie in [{}, {}]", name, number, low, high);
  }
  return number;
}

Status ReadBlockIds(const json::object& line, TraceRequest& request) {
  const json::value* ids = line.if_contains("hash_ids");
  if (ids == nullptr || !ids->is_array()) return InvalidArgument("hash_ids is no list");
  const int64_t blocks =
      (int64_t{request.prompt_tokens} + kTraceTokensPerBlock - 1) / kTraceTokensPerBlock;
  if (static_cast<int64_t>(ids->get_array().size()) != blocks) {
    return InvalidArgument("hash_ids has {} ids, {} tokens are {} blocks of {}",
                           ids->get_array().size(), request.prompt_tokens, blocks,
                           kTraceTokensPerBlock);
  }
  request.block_ids.reserve(ids->get_array().size());
  for (const json::value& id : ids->get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 ||
        id.get_int64() > std::numeric_limits<uint32_t>::max()) {
      return InvalidArgument("hash_ids holds {}, ids are integers in [0, 2^32)",
                             json::serialize(id));
    }
    request.block_ids.push_back(static_cast<uint32_t>(id.get_int64()));
  }
  return OkStatus();
}

StatusOr<TraceRequest> ParseLine(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error) return InvalidArgument("it is no JSON ({})", error.message());
  if (!value.is_object()) return InvalidArgument("it is no JSON object");
  const json::object& line = value.get_object();
  ASSIGN_OR_RETURN(const int64_t timestamp_ms, IntegerField(line, "timestamp", 0, kTimestampMsMax));
  ASSIGN_OR_RETURN(const int64_t prompt, IntegerField(line, "input_length", 1, kTokensMax));
  ASSIGN_OR_RETURN(const int64_t output, IntegerField(line, "output_length", 1, kTokensMax));
  TraceRequest request{.arrival_ns = timestamp_ms * kNsPerMs,
                       .prompt_tokens = static_cast<int32_t>(prompt),
                       .output_tokens = static_cast<int32_t>(output)};
  RETURN_IF_ERROR(ReadBlockIds(line, request));
  return request;
}

}  // namespace

StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open()) return NotFound("trace {} cannot be opened", path);
  std::vector<TraceRequest> requests;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    StatusOr<TraceRequest> request = ParseLine(line);
    if (!request.ok()) {
      return InvalidArgument("trace {}, line {}: {}", path, number, Message(request.status()));
    }
    requests.push_back(*std::move(request));
    if (requests.size() > kRequestsMax) {
      return InvalidArgument("trace {} has more than {} requests", path, kRequestsMax);
    }
  }
  if (file.bad()) return InvalidArgument("trace {} cannot be read to its end", path);
  if (requests.empty()) return InvalidArgument("trace {} has no request", path);
  std::ranges::stable_sort(requests, {}, &TraceRequest::arrival_ns);
  return requests;
}

std::vector<TokenId> TracePrompt(const TraceRequest& request) {
  std::vector<TokenId> prompt(static_cast<size_t>(request.prompt_tokens));
  for (size_t i = 0; i < request.block_ids.size(); ++i) {
    const uint32_t id = request.block_ids[i];
    const std::span<TokenId> block =
        std::span(prompt)
            .subspan(i * kTraceTokensPerBlock)
            .first(
                std::min<size_t>(kTraceTokensPerBlock, prompt.size() - i * kTraceTokensPerBlock));
    for (size_t token = 0; token < block.size(); ++token) {
      const uint32_t mixed = (id + static_cast<uint32_t>(token)) * 0x9E3779B1U;
      block[token] = static_cast<TokenId>(mixed >> 15);
    }
    // The id itself, so that no two blocks are equal by chance.
    block[0] = static_cast<TokenId>(id & 0xFFFFU);
    if (block.size() > 1) block[1] = static_cast<TokenId>(id >> 16);
  }
  return prompt;
}

int64_t TraceWorkload::next_ns() const {
  return next_ < requests_.size() ? requests_[next_].arrival_ns : kNever;
}

SimCall TraceWorkload::Take() {
  CHECK(next_ < requests_.size(), "no call is left");
  const TraceRequest& request = requests_[next_++];
  SimCall call;
  call.request = std::make_shared<Request>();
  call.request->prompt = TracePrompt(request);
  call.request->sampling.tokens_max = request.output_tokens;
  call.request->sampling.seed = next_;
  return call;
}

}  // namespace polysil
