#include "session/text_service.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <string_view>
#include <utility>

#include "polysil/base/check.h"
#include "session/call_check.h"
#include "session/text_pool.h"
#include "session/text_stream.h"

namespace polysil {
namespace {

// Whatever is served: for clients that must name a model and do not know which.
constexpr std::string_view kDefaultModelName = "default";

std::function<uint64_t()> SystemSeeds() {
  struct Source {
    std::mutex mutex;
    std::mt19937_64 engine;
  };
  auto source = std::make_shared<Source>();
  std::random_device device;
  std::seed_seq seeds{device(), device(), device(), device()};
  source->engine.seed(seeds);
  return [source] {
    std::lock_guard lock(source->mutex);
    return source->engine();
  };
}

void SortUnique(std::vector<TokenId>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

std::string_view PromptField(const TextPrompt& prompt) {
  return std::holds_alternative<ChatInput>(prompt) ? "messages" : "prompt";
}

// A template's refusal begins with the field it is about, "messages[2].role is ...", unless it
// speaks in words of its own.
std::string ChatFieldOf(const std::string& refusal) {
  const std::string first = refusal.substr(0, refusal.find_first_of(" :,;"));
  for (const char* field :
       {"messages", "tools", "chat_template_kwargs", "continue_final_message"}) {
    if (first.starts_with(field)) return first;
  }
  return "messages";
}

// Ids as text, for echo of a prompt that came as ids. Valid UTF-8.
std::string DecodeAll(const std::shared_ptr<const Tokenizer>& tokenizer,
                      std::span<const TokenId> ids, bool skip_control) {
  Detokenizer detokenizer(tokenizer, skip_control, /*after_text=*/false);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  return text += detokenizer.Flush();
}

SequenceTextPlan PlanOf(TextCall& call, const TextModel& model,
                        const std::vector<TokenId>& end_ids) {
  SequenceTextPlan plan{.tokenizer = model.tokenizer,
                        .end_token_ids = call.stop.token_ids,
                        .stop_strings = std::move(call.stop.strings),
                        .include_stop = call.stop.include_in_text,
                        .skip_control = call.skip_control,
                        .echo = call.echo,
                        .discard_output = call.tokens_max == 0,
                        .logprobs = call.sampling.logprobs.has_value(),
                        .tokens_min = call.sampling.tokens_min};
  if (!call.stop.ignore_eos) {
    plan.end_token_ids.insert(plan.end_token_ids.end(), end_ids.begin(), end_ids.end());
  }
  SortUnique(plan.end_token_ids);
  return plan;
}

}  // namespace

StatusOr<std::unique_ptr<TextService>> TextService::Create(TextServiceOptions options,
                                                           TextModel model, Engine& engine,
                                                           const Clock& clock) {
  if (model.names.empty()) return InvalidArgument("the served model has no name");
  if (model.tokenizer == nullptr) return InvalidArgument("the served model has no tokenizer");
  if (options.threads < 1) {
    return InvalidArgument("the text threads are {}; at least 1 is needed", options.threads);
  }
  const int32_t vocab_size = engine.info().limits.vocab_size;
  for (const TokenId id : model.end_token_ids) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("the model's end token {} is not in its vocabulary of {} tokens", id,
                             vocab_size);
    }
  }
  if (!options.seed_source) options.seed_source = SystemSeeds();
  return std::unique_ptr<TextService>(
      new TextService(std::move(options), std::move(model), engine, clock));
}

TextService::TextService(TextServiceOptions options, TextModel model, Engine& engine,
                         const Clock& clock)
    : options_(std::move(options)),
      model_(std::move(model)),
      engine_(engine),
      clock_(clock),
      end_ids_(model_.end_token_ids),
      pool_(std::make_unique<TextPool>(
          TextPoolOptions{.threads = options_.threads,
                          .queue_max = options_.queue_max,
                          .tenants_leave_room = options_.tenants != TenantSource::kNone})) {
  // A tokenizer may know end tokens that the model has no row for, and so can never choose.
  const int32_t vocab_size = engine_.info().limits.vocab_size;
  for (const TokenId id : model_.tokenizer->end_ids()) {
    if (id < vocab_size) end_ids_.push_back(id);
  }
  SortUnique(end_ids_);
}

TextService::~TextService() = default;

Status TextService::Run(size_t text_bytes, const Caller& caller, std::function<void()> task) {
  if (draining_) return Unavailable("the server is shutting down");
  if (text_bytes <= options_.inline_bytes_max) {
    pool_->RunHere(task);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string tenant, TenantOf(options_.tenants, caller));
  if (pool_->TryPost(tenant, std::move(task))) return OkStatus();
  return ResourceExhausted("too many long texts wait already, {} are the most; try again later",
                           options_.queue_max);
}

StatusOr<std::shared_ptr<TextCallHandle>> TextService::Start(TextCall call,
                                                             std::shared_ptr<TextSink> sink) {
  const StatusOr<std::string> tenant = TenantOf(options_.tenants, call.caller);
  const std::shared_ptr<CallLedger> ledger = call.ledger;
  if (ledger != nullptr) ledger->OnReceived();
  const int64_t deadline_ns = DeadlineNs(call);
  StatusOr<std::vector<PromptText>> prompts =
      tenant.ok() ? CheckAndTokenize(call, deadline_ns) : tenant.status();
  if (!prompts.ok()) {
    CountRefused();
    if (ledger != nullptr) ledger->OnRefused(prompts.status());
    return std::move(prompts).status();
  }
  SequenceTextPlan plan = PlanOf(call, model_, end_ids_);
  std::vector<Request> requests;
  requests.reserve(prompts->size());
  for (const PromptText& prompt : *prompts) {
    Request& request = requests.emplace_back(RequestOf(call, plan, *prompt.ids));
    request.deadline_ns = deadline_ns;
    request.cache_salt = *tenant;
    request.tenant = *tenant;
  }
  auto stream =
      std::make_shared<TextStream>(engine_, std::move(plan), *std::move(prompts),
                                   static_cast<int32_t>(call.sequences), std::move(sink), ledger);
  if (ledger != nullptr) ledger->OnTokenized();
  const Status status = stream->Submit(std::move(requests));
  if (!status.ok()) {
    if (ledger != nullptr) ledger->OnRefused(status);
    return status;
  }
  return std::shared_ptr<TextCallHandle>(std::move(stream));
}

bool TextService::WaitIdle(int64_t timeout_ns) const {
  return pool_->WaitIdle(timeout_ns);
}

std::shared_ptr<CallLedger> TextService::OpenLedger(int64_t age_ns, std::string id) {
  if (id.empty()) id = fmt::format("call-{}", ledgers_opened_.fetch_add(1) + 1);
  return std::make_shared<CallLedger>(clock_, latency_totals_, clock_.NowNs() - age_ns,
                                      std::move(id));
}

int64_t TextService::DeadlineNs(const TextCall& call) const {
  if (!call.timeout_ns) return 0;
  const int64_t begun_ns = call.ledger != nullptr ? call.ledger->begun_ns() : clock_.NowNs();
  return std::max<int64_t>(1, begun_ns + *call.timeout_ns);
}

StatusOr<std::vector<PromptText>> TextService::CheckAndTokenize(const TextCall& call,
                                                                int64_t deadline_ns) const {
  if (call.model) {
    RETURN_IF_ERROR(CheckModel(*call.model));
  }
  const RequestLimits& engine_limits = engine_.info().limits;
  RETURN_IF_ERROR(CheckCall(call, options_.limits, engine_limits));
  if (deadline_ns > 0 && clock_.NowNs() >= deadline_ns) {
    return DeadlineExceeded("the request's deadline has passed");
  }
  const EngineReadiness readiness = engine_.Readiness();
  if (!readiness.ready) return Unavailable("the server is not ready: {}", readiness.reason);

  const bool wants_text = call.echo || call.sampling.logprobs;
  std::vector<PromptText> prompts;
  prompts.reserve(call.prompts.size());
  for (const TextPrompt& prompt : call.prompts) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, Tokenize(prompt, call.encoding));
    RETURN_IF_ERROR(CheckPromptIds(ids, PromptField(prompt), engine_limits));
    PromptText text{.ids = std::make_shared<const std::vector<TokenId>>(std::move(ids))};
    if (wants_text) {
      const auto* given = std::get_if<std::string>(&prompt);
      text.text = given ? *given : DecodeAll(model_.tokenizer, *text.ids, call.skip_control);
      text.code_points = CodePoints(text.text);
    }
    prompts.push_back(std::move(text));
  }
  return prompts;
}

Request TextService::RequestOf(const TextCall& call, const SequenceTextPlan& plan,
                               const std::vector<TokenId>& ids) const {
  const RequestLimits& limits = engine_.info().limits;
  const int64_t room = std::min<int64_t>(limits.context_tokens_max, limits.kv_tokens_max) -
                       static_cast<int64_t>(ids.size());
  SamplingParams sampling = call.sampling;
  sampling.seed = call.seed ? *call.seed : options_.seed_source();
  sampling.tokens_max =
      static_cast<int32_t>(std::clamp<int64_t>(call.tokens_max ? *call.tokens_max : room, 1, room));
  sampling.tokens_min = std::min(sampling.tokens_min, sampling.tokens_max);
  if (sampling.top_k < 0 || sampling.top_k >= limits.vocab_size) sampling.top_k = 0;
  if (plan.echo && plan.logprobs) sampling.prompt_logprobs = sampling.logprobs;
  Request request{.prompt = ids,
                  .sampling = std::move(sampling),
                  .sequences = static_cast<int32_t>(call.sequences),
                  .end_token_ids = plan.end_token_ids,
                  .priority = static_cast<int32_t>(call.priority)};
  for (const KeepPrefix& prefix : call.keep) {
    request.retention.push_back({.tokens = prefix.tokens.value_or(static_cast<int32_t>(ids.size())),
                                 .keep_ns = static_cast<int64_t>(prefix.seconds * 1e9)});
  }
  return request;
}

StatusOr<std::vector<TokenId>> TextService::Tokenize(const TextPrompt& prompt,
                                                     const PromptEncoding& encoding) const {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    return model_.tokenizer->Encode(*text, {.parse_control_tokens = encoding.parse_control_tokens,
                                            .add_bos = encoding.add_bos});
  }
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const ChatInput& chat = std::get<ChatInput>(prompt);
  if (chat.continue_final_message && chat.add_generation_prompt) {
    return WithField(
        InvalidArgument("continue_final_message and add_generation_prompt exclude each other"),
        "continue_final_message");
  }
  const bool with_tools = !chat.tools.is_null() && model_.tool_template != nullptr;
  const ChatTemplate* chat_template =
      with_tools ? model_.tool_template.get() : model_.chat_template.get();
  if (chat_template == nullptr) {
    return WithField(
        InvalidArgument("chat is not possible: {}", model_.chat_template_missing.empty()
                                                        ? "the model has no chat template"
                                                        : model_.chat_template_missing),
        "messages");
  }
  StatusOr<RenderedChat> rendered = chat_template->Render(chat);
  if (!rendered.ok()) {
    return WithField(rendered.status(), ChatFieldOf(Message(rendered.status())));
  }
  // A template that wants BOS writes it.
  return model_.tokenizer->EncodeRendered(rendered->text, rendered->untrusted, /*add_bos=*/false);
}

StatusOr<std::string> TextService::Detokenize(std::span<const TokenId> ids,
                                              bool skip_control) const {
  const int32_t vocab_size = engine_.info().limits.vocab_size;
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size) {
      return WithField(
          InvalidArgument("tokens has id {}; the vocabulary has ids 0 to {}", id, vocab_size - 1),
          "tokens");
    }
  }
  Detokenizer detokenizer(model_.tokenizer, skip_control, /*after_text=*/false);
  std::string text;
  for (const TokenId id : ids) {
    text += detokenizer.Push(id);
    if (text.size() <= static_cast<size_t>(options_.limits.text_bytes_max)) continue;
    return WithField(InvalidArgument("tokens has {} ids, whose text is longer than {} bytes",
                                     ids.size(), options_.limits.text_bytes_max),
                     "tokens");
  }
  return text += detokenizer.Flush();
}

std::string TextService::TokenBytes(TokenId id) const {
  if (id < 0 || id >= model_.tokenizer->vocab_size()) return {};
  return std::string(model_.tokenizer->TokenBytes(id));
}

Status TextService::CheckModel(const std::string& model) const {
  if (model == kDefaultModelName) return OkStatus();
  if (std::find(model_.names.begin(), model_.names.end(), model) != model_.names.end()) {
    return OkStatus();
  }
  return WithReason(WithField(NotFound("the model that was asked for is not served here; {} is",
                                       model_.names.front()),
                              "model"),
                    "model_not_found");
}

const EngineInfo& TextService::engine_info() const {
  return engine_.info();
}

EngineStats TextService::Stats() const {
  EngineStats stats = engine_.Stats();
  stats.requests_refused += refused_.load(std::memory_order_relaxed);
  return stats;
}

EngineReadiness TextService::Readiness() const {
  return engine_.Readiness();
}

KvEventBatch TextService::ReadKvEvents(uint64_t from, int32_t events_max) const {
  return engine_.ReadKvEvents(from, events_max);
}

uint64_t TextService::WaitKvEvent(uint64_t number, int64_t timeout_ns) const {
  return engine_.WaitKvEvent(number, timeout_ns);
}

std::optional<int32_t> TextService::RetryAfterSeconds(const Status& status) const {
  const bool for_later =
      status.code() == StatusCode::kResourceExhausted || status.code() == StatusCode::kUnavailable;
  if (!for_later) return std::nullopt;
  return engine_.RetryAfterSeconds();
}

}  // namespace polysil
