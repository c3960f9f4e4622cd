#include "gateway/openai_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "gateway/json_writer.h"
#include "polysil/base/check.h"
#include "text/utf8.h"

namespace polysil {
namespace {

std::string_view FinishName(FinishReason reason) {
  CHECK(reason == FinishReason::kStop || reason == FinishReason::kLength, "reason {}",
        static_cast<int>(reason));
  return reason == FinishReason::kStop ? "stop" : "length";
}

void WriteIds(JsonWriter& json, std::span<const TokenId> ids) {
  json.BeginArray();
  for (const TokenId id : ids) json.Int(id);
  json.EndArray();
}

void WriteChatLogprob(JsonWriter& json, std::string_view bytes, float logprob) {
  json.Key("token").String(TokenLabel(bytes, /*chat=*/true));
  json.Key("logprob").Float(logprob);
  json.Key("bytes").BeginArray();
  for (const char c : bytes) json.Int(static_cast<unsigned char>(c));
  json.EndArray();
}

// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}
void WriteChatLogprobs(JsonWriter& json, std::span<const TextToken> tokens) {
  json.BeginObject().Key("content").BeginArray();
  for (const TextToken& token : tokens) {
    json.BeginObject();
    WriteChatLogprob(json, token.bytes, token.logprob.value_or(0.0F));
    json.Key("top_logprobs").BeginArray();
    for (const TextLogprob& top : token.top) {
      json.BeginObject();
      WriteChatLogprob(json, top.bytes, top.logprob);
      json.EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray().Key("refusal").Null().EndObject();
}

// The alternatives by their text, and the token itself if it is not among them. Two tokens may have
// the same text: the better one stays.
void WriteTopMap(JsonWriter& json, const TextToken& token) {
  std::set<std::string> seen;
  const auto write = [&](std::string_view bytes, float logprob) {
    const std::string label = TokenLabel(bytes, /*chat=*/false);
    if (seen.insert(label).second) json.Key(label).Float(logprob);
  };
  json.BeginObject();
  for (const TextLogprob& top : token.top) write(top.bytes, top.logprob);
  write(token.bytes, *token.logprob);
  json.EndObject();
}

// {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
void WriteCompletionLogprobs(JsonWriter& json, std::span<const TextToken> tokens) {
  json.BeginObject().Key("tokens").BeginArray();
  for (const TextToken& token : tokens) json.String(TokenLabel(token.bytes, /*chat=*/false));
  json.EndArray().Key("token_logprobs").BeginArray();
  for (const TextToken& token : tokens) {
    token.logprob ? json.Float(*token.logprob) : json.Null();
  }
  json.EndArray().Key("top_logprobs").BeginArray();
  for (const TextToken& token : tokens) {
    token.logprob ? WriteTopMap(json, token) : static_cast<void>(json.Null());
  }
  json.EndArray().Key("text_offset").BeginArray();
  for (const TextToken& token : tokens) json.Int(token.text_offset);
  json.EndArray().EndObject();
}

void WriteLogprobs(JsonWriter& json, bool chat, std::span<const TextToken> tokens) {
  chat ? WriteChatLogprobs(json, tokens) : WriteCompletionLogprobs(json, tokens);
}

// {"receive": 12000, ...}, and their sum.
void WriteSegments(JsonWriter& json, const LatencySegments& segments) {
  json.BeginObject();
  for (size_t i = 0; i < kLatencySegments; ++i) {
    json.Key(Name(static_cast<LatencySegment>(i))).Int(segments.ns[i]);
  }
  json.Key("sum").Int(segments.total_ns()).EndObject();
}

void WriteLatency(JsonWriter& json, const CallLatency& latency) {
  json.BeginObject().Key("first_token");
  WriteSegments(json, latency.first_token);
  json.Key("total");
  WriteSegments(json, latency.total);
  json.Key("prefill_steps").Int(latency.prefill_steps);
  json.Key("decode_steps").Int(latency.decode_steps);
  json.Key("preemptions").Int(latency.preemptions).EndObject();
}

bool IsUtf8(std::string_view bytes) {
  return WellFormedBytes(bytes) == bytes.size();
}

// The prompt's tokens, where they are shown, then the output's.
std::vector<TextToken> ShownTokens(const TextDelta& delta) {
  std::vector<TextToken> tokens = delta.echo.tokens;
  tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
  return tokens;
}

}  // namespace

std::string TokenLabel(std::string_view bytes, bool chat) {
  if (IsUtf8(bytes)) return std::string(bytes);
  std::string label = chat ? "" : "bytes:";
  for (const char c : bytes) label += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return label;
}

OpenAiReply::OpenAiReply(AnswerForm form, ReplyIdentity identity, int32_t sequences)
    : form_(form), identity_(std::move(identity)), sequences_(sequences) {}

std::string OpenAiReply::Events(const TextDelta& delta) {
  std::string out;
  const size_t index = ChoiceIndex(delta);
  const bool first = !std::exchange(ChoiceAt(index).started, true);
  const std::vector<TextToken> tokens =
      form_.logprobs ? ShownTokens(delta) : std::vector<TextToken>();
  ChunkParts parts{.tokens = tokens};
  if (form_.return_token_ids && delta.prompt_ids != nullptr) parts.prompt_ids = *delta.prompt_ids;
  if (form_.chat && first) {
    // The role comes at once, before the first character is whole.
    ChunkParts role{.prompt_ids = parts.prompt_ids, .role = true};
    AppendEvent(index, role, out);
    parts.prompt_ids = {};
  }
  const std::string text = delta.echo.text + delta.text;
  std::vector<TokenId> token_ids;
  if (form_.return_token_ids) {
    for (const TextToken& token : delta.tokens) token_ids.push_back(token.id);
  }
  parts.text = text;
  parts.token_ids = token_ids;
  if (!text.empty() || !tokens.empty() || !token_ids.empty() || !parts.prompt_ids.empty()) {
    AppendEvent(index, parts, out);
  }
  if (delta.finish) AppendEvent(index, {.finish = delta.finish}, out);
  return out;
}

std::string OpenAiReply::LastEvents(const TextUsage& usage, const CallLatency& latency) const {
  std::string out;
  if (form_.include_usage) {
    out += "data: ";
    JsonWriter json(out);
    BeginAnswer(json, /*chunk=*/true);
    json.Key("choices").BeginArray().EndArray().Key("usage");
    WriteUsage(json, usage, latency);
    json.EndObject();
    out += "\n\n";
  }
  return out += "data: [DONE]\n\n";
}

void OpenAiReply::Collect(TextDelta delta) {
  Choice& choice = ChoiceAt(ChoiceIndex(delta));
  choice.text += delta.echo.text + delta.text;
  if (form_.logprobs) {
    std::vector<TextToken> tokens = ShownTokens(delta);
    std::move(tokens.begin(), tokens.end(), std::back_inserter(choice.tokens));
  }
  if (form_.return_token_ids) {
    if (delta.prompt_ids != nullptr) choice.prompt_ids = delta.prompt_ids;
    for (const TextToken& token : delta.tokens) choice.token_ids.push_back(token.id);
  }
  if (delta.finish) choice.finish = *delta.finish;
}

std::string OpenAiReply::Whole(const TextUsage& usage, const CallLatency& latency) const {
  std::string out;
  JsonWriter json(out);
  BeginAnswer(json, /*chunk=*/false);
  json.Key("choices").BeginArray();
  for (size_t i = 0; i < choices_.size(); ++i) WriteWholeChoice(json, i);
  json.EndArray();
  if (form_.chat && choices_[0].prompt_ids != nullptr) {
    json.Key("prompt_token_ids");
    WriteIds(json, *choices_[0].prompt_ids);
  }
  json.Key("usage");
  WriteUsage(json, usage, latency);
  json.EndObject();
  return out;
}

void OpenAiReply::WriteUsage(JsonWriter& json, const TextUsage& usage,
                             const CallLatency& latency) const {
  json.BeginObject();
  json.Key("prompt_tokens").Int(usage.prompt_tokens);
  json.Key("completion_tokens").Int(usage.output_tokens);
  json.Key("total_tokens").Int(usage.prompt_tokens + usage.output_tokens);
  json.Key("prompt_tokens_details").BeginObject();
  json.Key("cached_tokens").Int(usage.prompt_tokens_cached);
  json.EndObject();
  if (form_.return_latency) {
    json.Key("latency_ns");
    WriteLatency(json, latency);
  }
  json.EndObject();
}

size_t OpenAiReply::ChoiceIndex(const TextDelta& delta) const {
  return static_cast<size_t>(delta.prompt_index) * static_cast<size_t>(sequences_) +
         static_cast<size_t>(delta.sequence_index);
}

OpenAiReply::Choice& OpenAiReply::ChoiceAt(size_t index) {
  if (index >= choices_.size()) choices_.resize(index + 1);
  return choices_[index];
}

void OpenAiReply::BeginAnswer(JsonWriter& json, bool chunk) const {
  json.BeginObject();
  json.Key("id").String(identity_.id);
  json.Key("object").String(!form_.chat ? "text_completion"
                            : chunk     ? "chat.completion.chunk"
                                        : "chat.completion");
  json.Key("created").Int(identity_.created_s);
  json.Key("model").String(identity_.model);
}

void OpenAiReply::AppendEvent(size_t index, const ChunkParts& parts, std::string& out) const {
  out += "data: ";
  JsonWriter json(out);
  BeginAnswer(json, /*chunk=*/true);
  json.Key("choices").BeginArray();
  WriteChunkChoice(json, index, parts);
  json.EndArray();
  if (form_.chat && !parts.prompt_ids.empty()) {
    json.Key("prompt_token_ids");
    WriteIds(json, parts.prompt_ids);
  }
  if (form_.include_usage) json.Key("usage").Null();
  json.EndObject();
  out += "\n\n";
}

void OpenAiReply::WriteChunkChoice(JsonWriter& json, size_t index, const ChunkParts& parts) const {
  json.BeginObject().Key("index").Int(static_cast<int64_t>(index));
  if (form_.chat) {
    json.Key("delta").BeginObject();
    if (parts.role) json.Key("role").String("assistant");
    if (!parts.finish) json.Key("content").String(parts.text);
    json.EndObject();
  } else {
    json.Key("text").String(parts.text);
  }
  json.Key("logprobs");
  parts.tokens.empty() ? static_cast<void>(json.Null())
                       : WriteLogprobs(json, form_.chat, parts.tokens);
  json.Key("finish_reason");
  parts.finish ? json.String(FinishName(*parts.finish)) : json.Null();
  if (!form_.chat && !parts.prompt_ids.empty()) {
    json.Key("prompt_token_ids");
    WriteIds(json, parts.prompt_ids);
  }
  if (!parts.token_ids.empty()) {
    json.Key("token_ids");
    WriteIds(json, parts.token_ids);
  }
  json.EndObject();
}

void OpenAiReply::WriteWholeChoice(JsonWriter& json, size_t index) const {
  const Choice& choice = choices_[index];
  json.BeginObject().Key("index").Int(static_cast<int64_t>(index));
  if (form_.chat) {
    json.Key("message").BeginObject();
    json.Key("role").String("assistant").Key("content").String(choice.text);
    json.Key("refusal").Null().EndObject();
  } else {
    json.Key("text").String(choice.text);
  }
  json.Key("logprobs");
  form_.logprobs ? WriteLogprobs(json, form_.chat, choice.tokens) : static_cast<void>(json.Null());
  json.Key("finish_reason").String(FinishName(choice.finish));
  if (form_.return_token_ids) {
    if (!form_.chat && choice.prompt_ids != nullptr) {
      json.Key("prompt_token_ids");
      WriteIds(json, *choice.prompt_ids);
    }
    json.Key("token_ids");
    WriteIds(json, choice.token_ids);
  }
  json.EndObject();
}

}  // namespace polysil
