#include "server/proto_call.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <utility>

namespace polysil {
namespace {

constexpr size_t kJsonDepthMax = 64;

StatusOr<boost::json::value> ParseJson(const std::string& text, std::string_view field) {
  boost::json::parse_options options;
  options.max_depth = kJsonDepthMax;
  boost::json::error_code error;
  boost::json::value value = boost::json::parse(text, error, {}, options);
  if (!error) return value;
  return WithField(InvalidArgument("{} is not valid JSON: {}", field, error.message()), field);
}

boost::json::value ReadToolCalls(const v1::ChatMessage& message) {
  boost::json::array calls;
  for (const v1::ToolCall& call : message.tool_calls()) {
    calls.push_back({{"id", call.id()},
                     {"type", "function"},
                     {"function", {{"name", call.name()}, {"arguments", call.arguments()}}}});
  }
  return calls;
}

boost::json::object ReadMessage(const v1::ChatMessage& message) {
  boost::json::object object;
  object["role"] = message.role();
  if (message.has_content()) object["content"] = message.content();
  if (message.has_name()) object["name"] = message.name();
  if (message.has_tool_call_id()) object["tool_call_id"] = message.tool_call_id();
  if (message.has_reasoning_content()) object["reasoning_content"] = message.reasoning_content();
  if (message.tool_calls_size() > 0) object["tool_calls"] = ReadToolCalls(message);
  return object;
}

StatusOr<ChatInput> ReadChat(const v1::Chat& proto) {
  ChatInput chat;
  for (const v1::ChatMessage& message : proto.messages()) {
    chat.messages.push_back(ReadMessage(message));
  }
  if (!proto.tools_json().empty()) {
    ASSIGN_OR_RETURN(chat.tools, ParseJson(proto.tools_json(), "tools_json"));
  }
  if (!proto.chat_template_kwargs_json().empty()) {
    constexpr char kField[] = "chat_template_kwargs_json";
    ASSIGN_OR_RETURN(boost::json::value kwargs,
                     ParseJson(proto.chat_template_kwargs_json(), kField));
    if (!kwargs.is_object()) {
      return WithField(InvalidArgument("{} must be a JSON object", kField), kField);
    }
    chat.kwargs = std::move(kwargs.get_object());
  }
  chat.continue_final_message = proto.continue_final_message();
  chat.add_generation_prompt = proto.has_add_generation_prompt() ? proto.add_generation_prompt()
                                                                 : !chat.continue_final_message;
  return chat;
}

void WriteSegments(const LatencySegments& segments, v1::LatencySegments* out) {
  out->set_receive(segments[LatencySegment::kReceive]);
  out->set_tokenize(segments[LatencySegment::kTokenize]);
  out->set_queue(segments[LatencySegment::kQueue]);
  out->set_prefill(segments[LatencySegment::kPrefill]);
  out->set_decode(segments[LatencySegment::kDecode]);
  out->set_wait(segments[LatencySegment::kWait]);
  out->set_preempted(segments[LatencySegment::kPreempted]);
  out->set_detokenize(segments[LatencySegment::kDetokenize]);
  out->set_flush(segments[LatencySegment::kFlush]);
}

SamplingParams ReadSampling(const v1::GenerateRequest& request) {
  SamplingParams sampling;
  if (request.has_temperature()) sampling.temperature = request.temperature();
  if (request.has_top_p()) sampling.top_p = request.top_p();
  if (request.has_top_k()) sampling.top_k = request.top_k();
  if (request.has_min_p()) sampling.min_p = request.min_p();
  if (request.has_repetition_penalty()) sampling.repetition_penalty = request.repetition_penalty();
  if (request.has_presence_penalty()) sampling.presence_penalty = request.presence_penalty();
  if (request.has_frequency_penalty()) sampling.frequency_penalty = request.frequency_penalty();
  if (request.has_logprobs()) sampling.logprobs = request.logprobs();
  sampling.tokens_min = request.min_tokens();
  sampling.logit_bias.assign(request.logit_bias().begin(), request.logit_bias().end());
  std::sort(sampling.logit_bias.begin(), sampling.logit_bias.end());
  return sampling;
}

void WriteToken(const TextToken& token, bool with_logprobs, v1::Token* out) {
  out->set_id(token.id);
  if (!with_logprobs) return;
  out->set_text_offset(token.text_offset);
  out->set_token(token.bytes);
  if (token.logprob) out->set_logprob(*token.logprob);
  for (const TextLogprob& top : token.top) {
    v1::Logprob* entry = out->add_top();
    entry->set_id(top.id);
    entry->set_logprob(top.logprob);
    entry->set_token(top.bytes);
  }
}

void WriteHistogram(const Histogram& histogram, v1::LatencyHistogram* out) {
  for (const double bound : histogram.bounds) out->add_bounds_seconds(bound);
  for (const uint64_t count : histogram.counts) out->add_counts(count);
  out->set_sum_seconds(histogram.sum);
}

}  // namespace

StatusOr<TextCall> ReadGenerateRequest(const v1::GenerateRequest& request) {
  TextCall call;
  if (!request.model().empty()) call.model = request.model();
  ASSIGN_OR_RETURN(TextPrompt prompt, ReadPrompt(request.prompt()));
  call.prompts.push_back(std::move(prompt));
  call.encoding = ReadEncoding(request.prompt());
  call.sampling = ReadSampling(request);
  if (request.has_seed()) call.seed = request.seed();
  if (request.has_max_tokens()) call.tokens_max = request.max_tokens();
  call.stop.strings.assign(request.stop().begin(), request.stop().end());
  call.stop.token_ids.assign(request.stop_token_ids().begin(), request.stop_token_ids().end());
  call.stop.ignore_eos = request.ignore_eos();
  call.stop.include_in_text = request.include_stop_str_in_output();
  if (request.has_n()) call.sequences = request.n();
  call.priority = request.priority();
  for (const v1::CacheRetention& wish : request.cache_retention()) {
    KeepPrefix& prefix = call.keep.emplace_back();
    if (wish.has_tokens()) prefix.tokens = wish.tokens();
    prefix.seconds = wish.seconds();
  }
  call.echo = request.echo();
  if (request.has_skip_special_tokens()) call.skip_control = request.skip_special_tokens();
  return call;
}

StatusOr<TextPrompt> ReadPrompt(const v1::Prompt& prompt) {
  switch (prompt.form_case()) {
    case v1::Prompt::kText:
      return TextPrompt(prompt.text());
    case v1::Prompt::kTokenIds:
      return TextPrompt(
          std::vector<TokenId>(prompt.token_ids().ids().begin(), prompt.token_ids().ids().end()));
    case v1::Prompt::kChat: {
      ASSIGN_OR_RETURN(ChatInput chat, ReadChat(prompt.chat()));
      return TextPrompt(std::move(chat));
    }
    case v1::Prompt::FORM_NOT_SET:
      break;
  }
  return WithField(InvalidArgument("prompt is required: text, token_ids or chat"), "prompt");
}

PromptEncoding ReadEncoding(const v1::Prompt& prompt) {
  return {.add_bos = !prompt.has_add_special_tokens() || prompt.add_special_tokens(),
          .parse_control_tokens = prompt.parse_special()};
}

v1::GenerateResponse WriteDelta(const TextDelta& delta, const v1::GenerateRequest& request) {
  v1::GenerateResponse response;
  v1::Delta* out = response.mutable_delta();
  out->set_index(delta.sequence_index);
  out->set_text(delta.text);
  for (const TextToken& token : delta.tokens) {
    WriteToken(token, request.has_logprobs(), out->add_tokens());
  }
  if (delta.finish) {
    out->set_finish_reason(*delta.finish == FinishReason::kStop ? v1::FINISH_REASON_STOP
                                                                : v1::FINISH_REASON_LENGTH);
  }
  out->set_stop_string(delta.stop_string);
  out->set_prompt_text(delta.echo.text);
  for (const TextToken& token : delta.echo.tokens) {
    WriteToken(token, /*with_logprobs=*/true, out->add_prompt_tokens());
  }
  if (request.return_prompt_token_ids() && delta.prompt_ids != nullptr) {
    out->mutable_prompt_token_ids()->Add(delta.prompt_ids->begin(), delta.prompt_ids->end());
  }
  return response;
}

v1::GenerateResponse WriteUsage(const TextUsage& usage, const CallLatency& latency) {
  v1::GenerateResponse response;
  v1::Usage* out = response.mutable_usage();
  out->set_prompt_tokens(usage.prompt_tokens);
  out->set_cached_tokens(usage.prompt_tokens_cached);
  out->set_completion_tokens(usage.output_tokens);
  v1::Latency* time = out->mutable_latency();
  if (latency.first_token.total_ns() > 0) {
    WriteSegments(latency.first_token, time->mutable_first_token());
  }
  WriteSegments(latency.total, time->mutable_total());
  time->set_prefill_steps(latency.prefill_steps);
  time->set_decode_steps(latency.decode_steps);
  time->set_preemptions(latency.preemptions);
  return response;
}

v1::KvEventBatch WriteKvEvents(const KvEventBatch& batch) {
  v1::KvEventBatch out;
  out.set_first(batch.first);
  out.set_lost(batch.lost);
  // Stored blocks are of one size; their tokens lie one after the other.
  const std::vector<KvEvent>& events = batch.news.events;
  const auto stored = std::count_if(events.begin(), events.end(), [](const KvEvent& event) {
    return event.kind == KvEventKind::kStored;
  });
  const ptrdiff_t size =
      stored == 0 ? 0 : static_cast<ptrdiff_t>(batch.news.tokens.size()) / stored;
  auto tokens = batch.news.tokens.begin();
  for (const KvEvent& event : events) {
    v1::KvEvent* to = out.add_events();
    to->set_tier(event.tier == KvTier::kHost ? v1::KvEvent::HOST : v1::KvEvent::DEVICE);
    if (event.kind == KvEventKind::kCleared) continue;
    to->set_kind(event.kind == KvEventKind::kStored ? v1::KvEvent::STORED : v1::KvEvent::REMOVED);
    to->set_hash(event.hash.data(), event.hash.size());
    if (event.kind != KvEventKind::kStored) continue;
    if (event.parent != KvBlockName{}) {
      to->set_parent_hash(event.parent.data(), event.parent.size());
    }
    to->mutable_token_ids()->Add(tokens, tokens + size);
    tokens += size;
  }
  return out;
}

v1::Stats WriteStats(const EngineStats& stats) {
  v1::Stats out;
  out.set_requests_running(stats.requests_running);
  out.set_requests_waiting(stats.requests_waiting);
  out.set_kv_blocks_total(stats.kv_blocks_total);
  out.set_kv_blocks_used(stats.kv_blocks_used);
  out.set_kv_blocks_cached(stats.kv_blocks_cached);
  out.set_kv_host_blocks_total(stats.kv_host_blocks_total);
  out.set_kv_host_blocks_used(stats.kv_host_blocks_used);
  out.set_kv_blocks_copied_out(stats.kv_blocks_copied_out);
  out.set_kv_blocks_copied_in(stats.kv_blocks_copied_in);
  out.set_requests_stop(stats.requests_stop);
  out.set_requests_length(stats.requests_length);
  out.set_requests_cancelled(stats.requests_cancelled);
  out.set_requests_deadline(stats.requests_deadline);
  out.set_requests_error(stats.requests_error);
  out.set_requests_refused(stats.requests_refused);
  out.set_prompt_tokens(stats.prompt_tokens);
  out.set_generation_tokens(stats.generation_tokens);
  out.set_prefix_cache_query_tokens(stats.prefix_cache_query_tokens);
  out.set_prefix_cache_hit_tokens(stats.prefix_cache_hit_tokens);
  out.set_preemptions(stats.preemptions);
  out.set_steps(stats.steps);
  out.set_step_tokens(stats.step_tokens);
  out.set_step_padding_tokens(stats.step_padding_tokens);
  WriteHistogram(stats.time_to_first_token_s, out.mutable_time_to_first_token());
  WriteHistogram(stats.inter_token_latency_s, out.mutable_inter_token_latency());
  WriteHistogram(stats.request_duration_s, out.mutable_request_duration());
  WriteHistogram(stats.step_duration_s, out.mutable_step_duration());
  return out;
}

}  // namespace polysil
