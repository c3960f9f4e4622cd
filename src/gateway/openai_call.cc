#include "gateway/openai_call.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "gateway/json_body.h"

namespace polysil {
namespace {

constexpr int32_t kLogprobsMax = 20;

// What OpenAI's API or other servers know, what we do not do yet and what would change the answer:
// better refused than ignored. A value that asks for nothing (null, false, 0, "", [], {}) passes.
constexpr const char* kUnsupported[] = {"prompt_logprobs",
                                        "truncate_prompt_tokens",
                                        "use_beam_search",
                                        "suffix",
                                        "bad_words",
                                        "allowed_token_ids",
                                        "logits_processors",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "structured_outputs",
                                        "grammar",
                                        "json_schema",
                                        "chat_template",
                                        "documents",
                                        "audio",
                                        "web_search_options",
                                        "functions",
                                        "prompt_embeds"};

bool AsksForNothing(const boost::json::value& value) {
  if (const bool* boolean = value.if_bool()) return !*boolean;
  if (const int64_t* number = value.if_int64()) return *number == 0;
  if (const boost::json::string* text = value.if_string()) return text->empty();
  if (const boost::json::array* list = value.if_array()) return list->empty();
  if (const boost::json::object* object = value.if_object()) return object->empty();
  return false;
}

void RefuseUnsupported(FieldReader& fields) {
  for (const char* name : kUnsupported) {
    const boost::json::value* value = fields.Any(name);
    if (value != nullptr && !AsksForNothing(*value)) fields.Refuse(name, "is not supported yet");
  }
}

// Fields that change nothing here still have a type.
void CheckIgnored(FieldReader& fields) {
  fields.String("user");
  fields.Object("metadata");
  fields.Bool("store");
  fields.String("service_tier");
  fields.Bool("parallel_tool_calls");
  fields.String("reasoning_effort");
}

void ReadResponseFormat(FieldReader& fields) {
  boost::json::object* format = fields.Object("response_format");
  if (format == nullptr) return;
  const std::optional<std::string> type = FieldReader(*format).String("type");
  if (type != "text") {
    fields.Refuse(
        "response_format",
        "is not supported yet but for {\"type\": \"text\"}: output cannot be constrained");
  }
}

// Keys are token ids in decimal. CheckCall wants them rising and refuses doubles.
void ReadLogitBias(FieldReader& fields, SamplingParams& sampling) {
  boost::json::object* biases = fields.Object("logit_bias");
  if (biases == nullptr) return;
  FieldReader values(*biases, "logit_bias.");
  for (const auto& entry : *biases) {
    const std::string_view key(entry.key().data(), entry.key().size());
    TokenId id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (key.empty() || parsed.ec != std::errc() || parsed.ptr != key.data() + key.size()) {
      fields.Refuse("logit_bias", "must have token ids in decimal for keys");
      return;
    }
    const std::optional<float> bias = values.Float(key);
    if (!values.status().ok() || !bias) {
      fields.Refuse("logit_bias", fmt::format("of token id {} must be a number", id));
      return;
    }
    sampling.logit_bias.emplace_back(id, *bias);
  }
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end());
}

void ReadSampling(FieldReader& fields, SamplingParams& sampling) {
  sampling.temperature = fields.Float("temperature").value_or(1.0F);
  sampling.top_p = fields.Float("top_p").value_or(1.0F);
  sampling.top_k = fields.Int32("top_k").value_or(0);
  sampling.min_p = fields.Float("min_p").value_or(0.0F);
  sampling.repetition_penalty = fields.Float("repetition_penalty").value_or(1.0F);
  sampling.presence_penalty = fields.Float("presence_penalty").value_or(0.0F);
  sampling.frequency_penalty = fields.Float("frequency_penalty").value_or(0.0F);
  sampling.tokens_min = fields.Int32("min_tokens").value_or(0);
  ReadLogitBias(fields, sampling);
}

// [{"tokens": 512, "seconds": 600}, ...]; an addition of ours.
void ReadRetention(FieldReader& fields, std::vector<KeepPrefix>& keep) {
  boost::json::array* entries = fields.Array("cache_retention");
  if (entries == nullptr) return;
  for (boost::json::value& entry : *entries) {
    if (!entry.is_object()) {
      fields.Refuse("cache_retention", "must be a list of {\"tokens\": ..., \"seconds\": ...}");
      return;
    }
    FieldReader values(entry.get_object(), "cache_retention.");
    KeepPrefix& prefix = keep.emplace_back();
    prefix.tokens = values.Int32("tokens");
    const std::optional<float> seconds = values.Float("seconds");
    if (!values.status().ok() || !seconds) {
      fields.Refuse("cache_retention", "must have a number of seconds, and a whole one of tokens");
      return;
    }
    prefix.seconds = *seconds;
  }
}

// It is part of the usage.
void CheckLatencyShown(FieldReader& fields, const AnswerForm& form) {
  if (form.return_latency && form.stream && !form.include_usage) {
    fields.Refuse("return_latency", "with stream needs stream_options.include_usage");
  }
}

void ReadStreaming(FieldReader& fields, AnswerForm& form) {
  form.stream = fields.Bool("stream").value_or(false);
  boost::json::object* options = fields.Object("stream_options");
  form.return_latency = fields.Bool("return_latency").value_or(false);
  if (options == nullptr) return CheckLatencyShown(fields, form);
  if (!form.stream) fields.Refuse("stream_options", "is only allowed with stream: true");
  const boost::json::value* usage = options->if_contains("include_usage");
  if (usage != nullptr && usage->is_bool()) {
    form.include_usage = usage->get_bool();
  } else if (usage != nullptr && !usage->is_null()) {
    fields.Refuse("stream_options.include_usage", "must be true or false");
  }
  CheckLatencyShown(fields, form);
}

// An addition of ours: the deadline that gRPC has.
void ReadTimeout(FieldReader& fields, TextCall& call) {
  constexpr float kSecondsMax = 86'400.0F;
  const std::optional<float> seconds = fields.Float("timeout_seconds");
  if (!seconds) return;
  if (*seconds > 0.0F && *seconds <= kSecondsMax) {
    call.timeout_ns = static_cast<int64_t>(double{*seconds} * 1e9);
  } else {
    fields.Refuse("timeout_seconds",
                  fmt::format("is {}; it must be above 0 and at most {}", *seconds, kSecondsMax));
  }
}

// What both endpoints share.
void ReadCommon(FieldReader& fields, OpenAiCall& result) {
  TextCall& call = result.call;
  call.model = fields.String("model");
  ReadSampling(fields, call.sampling);
  ReadStreaming(fields, result.form);
  call.seed = fields.Bits64("seed");
  call.sequences = fields.Int64("n").value_or(1);
  call.priority = fields.Int64("priority").value_or(0);
  ReadTimeout(fields, call);
  call.stop.strings = fields.Strings("stop");
  call.stop.token_ids = fields.TokenIds("stop_token_ids");
  call.stop.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  call.stop.include_in_text = fields.Bool("include_stop_str_in_output").value_or(false);
  call.skip_control = fields.Bool("skip_special_tokens").value_or(true);
  result.form.return_token_ids = fields.Bool("return_token_ids").value_or(false);
  ReadRetention(fields, call.keep);
  ReadResponseFormat(fields);
  RefuseUnsupported(fields);
  CheckIgnored(fields);
}

std::string_view View(const boost::json::string& string) {
  return {string.data(), string.size()};
}

// A text, a list of texts, a list of token ids, a list of such lists.
Status ReadPrompts(FieldReader& fields, std::vector<TextPrompt>& prompts) {
  constexpr char kShapes[] =
      "must be a string, a list of strings, a list of token ids or a list of lists of token ids";
  boost::json::value* value = fields.Any("prompt");
  if (value == nullptr) {
    fields.Refuse("prompt", "is required");
    return OkStatus();
  }
  if (value->is_string()) {
    prompts.emplace_back(std::string(View(value->get_string())));
    return OkStatus();
  }
  const boost::json::array* list = value->if_array();
  if (list == nullptr) {
    fields.Refuse("prompt", kShapes);
    return OkStatus();
  }
  if (list->empty()) return OkStatus();  // CheckCall refuses it
  if ((*list)[0].is_number()) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, ReadTokenIds(*list, "prompt"));
    prompts.emplace_back(std::move(ids));
    return OkStatus();
  }
  const bool texts = (*list)[0].is_string();
  for (const boost::json::value& entry : *list) {
    if (texts ? !entry.is_string() : !entry.is_array()) {
      fields.Refuse("prompt", kShapes);
      return OkStatus();
    }
    if (texts) {
      prompts.emplace_back(std::string(View(entry.get_string())));
    } else {
      ASSIGN_OR_RETURN(std::vector<TokenId> ids, ReadTokenIds(entry.get_array(), "prompt"));
      prompts.emplace_back(std::move(ids));
    }
  }
  return OkStatus();
}

void ReadEncoding(FieldReader& fields, PromptEncoding& encoding) {
  encoding.add_bos = fields.Bool("add_special_tokens").value_or(true);
  encoding.parse_control_tokens = fields.Bool("parse_special").value_or(false);
}

// Whether tools go into the prompt. We render them; we do not parse or force calls yet.
bool WantsTools(FieldReader& fields) {
  const boost::json::value* choice = fields.Any("tool_choice");
  if (choice == nullptr) return true;
  if (const boost::json::string* word = choice->if_string()) {
    if (View(*word) == "none") return false;
    if (View(*word) == "auto") return true;
    fields.Refuse("tool_choice",
                  View(*word) == "required"
                      ? "\"required\" is not supported yet: output cannot be constrained"
                      : "must be \"none\" or \"auto\"");
  } else if (choice->is_object()) {
    fields.Refuse("tool_choice",
                  "with a named tool is not supported yet: output cannot be constrained");
  } else {
    fields.Refuse("tool_choice", "must be \"none\" or \"auto\"");
  }
  return false;
}

ChatInput ReadChat(FieldReader& fields) {
  ChatInput chat;
  if (boost::json::array* messages = fields.Array("messages")) {
    chat.messages = std::move(*messages);
  } else {
    fields.Refuse("messages", "is required");
  }
  const bool wants_tools = WantsTools(fields);
  boost::json::array* tools = fields.Array("tools");
  if (tools != nullptr && wants_tools) chat.tools = std::move(*tools);
  if (boost::json::object* kwargs = fields.Object("chat_template_kwargs")) {
    chat.kwargs = std::move(*kwargs);
  }
  chat.continue_final_message = fields.Bool("continue_final_message").value_or(false);
  chat.add_generation_prompt =
      fields.Bool("add_generation_prompt").value_or(!chat.continue_final_message);
  return chat;
}

void ReadChatLogprobs(FieldReader& fields, OpenAiCall& result) {
  result.form.logprobs = fields.Bool("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.Int("top_logprobs", 0, kLogprobsMax);
  if (!result.form.logprobs && top.value_or(0) > 0) {
    fields.Refuse("top_logprobs", "is only allowed with logprobs: true");
  }
  if (result.form.logprobs) {
    result.call.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  }
}

std::optional<int32_t> ReadTokensMax(FieldReader& fields, std::string_view name) {
  const std::optional<int32_t> tokens = fields.Int32(name);
  if (tokens && *tokens < 1)
    fields.Refuse(name, fmt::format("is {}; it must be at least 1", *tokens));
  return tokens;
}

void ReadModalities(FieldReader& fields) {
  for (const std::string& modality : fields.Strings("modalities")) {
    if (modality != "text") fields.Refuse("modalities", "may be [\"text\"] only");
  }
}

}  // namespace

StatusOr<OpenAiCall> ReadCompletionCall(boost::json::object body) {
  FieldReader fields(body);
  OpenAiCall result;
  RETURN_IF_ERROR(ReadPrompts(fields, result.call.prompts));
  ReadCommon(fields, result);
  ReadEncoding(fields, result.call.encoding);
  result.call.tokens_max = fields.Int32("max_tokens").value_or(16);
  result.call.echo = fields.Bool("echo").value_or(false);
  const std::optional<int64_t> logprobs = fields.Int("logprobs", 0, kLogprobsMax);
  result.form.logprobs = logprobs.has_value();
  if (logprobs) result.call.sampling.logprobs = static_cast<int32_t>(*logprobs);
  const std::optional<int32_t> best_of = fields.Int32("best_of");
  if (best_of && *best_of != result.call.sequences) {
    fields.Refuse("best_of", "is not supported but for the value of n");
  }
  RETURN_IF_ERROR(fields.status());
  return result;
}

StatusOr<OpenAiCall> ReadChatCall(boost::json::object body) {
  FieldReader fields(body);
  OpenAiCall result;
  result.form.chat = true;
  result.call.prompts.emplace_back(ReadChat(fields));
  ReadCommon(fields, result);
  const std::optional<int32_t> old_max = ReadTokensMax(fields, "max_tokens");
  const std::optional<int32_t> new_max = ReadTokensMax(fields, "max_completion_tokens");
  result.call.tokens_max = new_max ? new_max : old_max;
  ReadChatLogprobs(fields, result);
  ReadModalities(fields);
  if (fields.Bool("echo").value_or(false)) fields.Refuse("echo", "is not for chat");
  const boost::json::value* function_call = fields.Any("function_call");
  if (function_call != nullptr) fields.Refuse("function_call", "is not supported; use tools");
  RETURN_IF_ERROR(fields.status());
  return result;
}

StatusOr<TokenizeCall> ReadTokenizeCall(boost::json::object body) {
  FieldReader fields(body);
  TokenizeCall result;
  result.model = fields.String("model");
  if (fields.Any("messages") != nullptr) {
    if (fields.Any("prompt") != nullptr) fields.Refuse("prompt", "and messages exclude each other");
    result.prompt = ReadChat(fields);
    RefuseUnsupported(fields);
  } else {
    std::optional<std::string> prompt = fields.String("prompt");
    if (!prompt) fields.Refuse("prompt", "is required, or messages");
    result.prompt = std::move(prompt).value_or("");
  }
  ReadEncoding(fields, result.encoding);
  result.return_tokens = fields.Bool("return_token_strs").value_or(false);
  RETURN_IF_ERROR(fields.status());
  return result;
}

StatusOr<DetokenizeCall> ReadDetokenizeCall(boost::json::object body) {
  FieldReader fields(body);
  DetokenizeCall result;
  result.model = fields.String("model");
  if (fields.Array("tokens") == nullptr) fields.Refuse("tokens", "is required");
  result.ids = fields.TokenIds("tokens");
  result.skip_control = fields.Bool("skip_special_tokens").value_or(false);
  RETURN_IF_ERROR(fields.status());
  return result;
}

}  // namespace polysil
