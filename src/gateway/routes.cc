#include "gateway/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <utility>

#include "gateway/error_reply.h"
#include "gateway/generation.h"
#include "gateway/json_body.h"
#include "gateway/json_writer.h"
#include "gateway/metrics_page.h"
#include "gateway/openai_call.h"

namespace polysil {
namespace {

constexpr std::array<std::string_view, 6> kGets = {"/health",  "/ready",     "/metrics",
                                                   "/version", "/v1/models", "/v1/models/"};
constexpr std::array<std::string_view, 4> kPosts = {"/v1/completions", "/v1/chat/completions",
                                                    "/tokenize", "/detokenize"};
constexpr std::string_view kModelPath = "/v1/models/";

bool IsGet(std::string_view path) {
  return path.starts_with(kModelPath) || std::find(kGets.begin(), kGets.end(), path) != kGets.end();
}

bool IsPost(std::string_view path) {
  return std::find(kPosts.begin(), kPosts.end(), path) != kPosts.end();
}

void PostReply(const std::shared_ptr<Exchange>& exchange, HttpReply reply) {
  exchange->Post(
      [exchange, reply = std::move(reply)]() mutable { exchange->Reply(std::move(reply)); });
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Routes::Routes(const TextSlot& slot, std::string version)
    : slot_(slot),
      version_(std::move(version)),
      started_s_(UnixSeconds()),
      id_prefix_((static_cast<uint64_t>(std::random_device()()) << 32) | std::random_device()()) {}

std::optional<HttpReply> Routes::CheckHead(std::string_view method, std::string_view path) const {
  const bool get = IsGet(path);
  if (!get && !IsPost(path)) {
    return ProtocolErrorReply(404,
                              "there is nothing at this path; docs/api.md lists what there is");
  }
  const std::string_view allow = get ? "GET, HEAD" : "POST";
  if (get ? method == "GET" || method == "HEAD" : method == "POST") return std::nullopt;
  HttpReply reply =
      ProtocolErrorReply(405, fmt::format("this path takes {} only", get ? "GET" : "POST"));
  reply.headers.emplace_back("Allow", std::string(allow));
  return reply;
}

void Routes::Handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
  std::optional<HttpReply> reply = CheckHead(request.method, request.path);
  if (!reply) reply = GetAlways(request.path);
  const Status found = slot_.Find().status();
  if (!reply && !found.ok()) reply = Refusal(found);
  if (reply) {
    PostReply(exchange, *std::move(reply));
  } else if (IsGet(request.path)) {
    PostReply(exchange, Get(request.path));
  } else {
    Post(std::move(request), exchange);
  }
}

std::string_view Routes::LogName(std::string_view path) {
  if (path.starts_with(kModelPath)) return "/v1/models/ID";
  for (const std::string_view known : kGets) {
    if (path == known) return known;
  }
  for (const std::string_view known : kPosts) {
    if (path == known) return known;
  }
  return "other";
}

std::optional<HttpReply> Routes::GetAlways(std::string_view path) const {
  if (path == "/health") return HttpReply{.body = R"({"status":"ok"})"};
  if (path == "/ready") {
    const EngineReadiness readiness = slot_.Readiness();
    if (readiness.ready) return HttpReply{.body = R"({"status":"ready"})"};
    return Refusal(Unavailable("not ready: {}", readiness.reason));
  }
  if (path != "/version") return std::nullopt;
  HttpReply reply;
  JsonWriter(reply.body).BeginObject().Key("version").String(version_).EndObject();
  return reply;
}

HttpReply Routes::Get(std::string_view path) const {
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = MetricsPage(service().Stats(), service().LatencyHistograms())};
  }
  if (path == "/v1/models") return Models();
  return Model(std::string(path.substr(kModelPath.size())));
}

void Routes::Post(HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
  const size_t bytes = request.body.size();
  const Caller caller = request.caller;
  const bool chat = request.path == "/v1/chat/completions";
  const bool generates = chat || request.path == "/v1/completions";
  // Opened here: that a long text waits for a thread is part of the account.
  const std::shared_ptr<CallLedger> ledger =
      generates ? service().OpenLedger(request.age_ns, request.id) : nullptr;
  // Shared, since a long text may still be worked on when the gateway is gone.
  auto task = [self = shared_from_this(), request = std::move(request), exchange, chat, ledger] {
    if (ledger != nullptr) return self->Generate(request, exchange, chat, ledger);
    StatusOr<std::string> body =
        request.path == "/tokenize" ? self->Tokenize(request.body) : self->Detokenize(request.body);
    PostReply(exchange,
              body.ok() ? HttpReply{.body = *std::move(body)} : self->Refusal(body.status()));
  };
  const Status status = service().Run(bytes, caller, std::move(task));
  if (status.ok()) return;
  if (ledger != nullptr) {
    service().CountRefused();
    ledger->OnRefused(status);
  }
  PostReply(exchange, Refusal(status));
}

void Routes::Generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                      bool chat, std::shared_ptr<CallLedger> ledger) {
  StatusOr<boost::json::object> body = ParseBody(request.body);
  StatusOr<OpenAiCall> call = !body.ok() ? body.status()
                              : chat     ? ReadChatCall(*std::move(body))
                                         : ReadCompletionCall(*std::move(body));
  if (!call.ok()) {
    service().CountRefused();
    ledger->OnRefused(call.status());
    return PostReply(exchange, Refusal(call.status()));
  }
  call->call.caller = request.caller;
  call->call.ledger = std::move(ledger);
  ReplyIdentity identity = NewIdentity(chat, call->call.model);
  auto generation =
      std::make_shared<Generation>(service(), exchange, *std::move(call), std::move(identity));
  exchange->SetGone([weak = std::weak_ptr<Generation>(generation)] {
    if (const auto alive = weak.lock()) alive->Cancel();
  });
  generation->Start();
}

HttpReply Routes::Refusal(const Status& status) const {
  return ErrorReply(status, slot_.RetryAfterSeconds(status));
}

StatusOr<std::string> Routes::Tokenize(std::string_view body) const {
  ASSIGN_OR_RETURN(boost::json::object object, ParseBody(body));
  ASSIGN_OR_RETURN(const TokenizeCall call, ReadTokenizeCall(std::move(object)));
  if (call.model) {
    RETURN_IF_ERROR(service().CheckModel(*call.model));
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, service().Tokenize(call.prompt, call.encoding));
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("count").Int(static_cast<int64_t>(ids.size()));
  json.Key("max_model_len").Int(service().engine_info().limits.context_tokens_max);
  json.Key("tokens").BeginArray();
  for (const TokenId id : ids) json.Int(id);
  json.EndArray();
  if (call.return_tokens) {
    json.Key("token_strs").BeginArray();
    for (const TokenId id : ids) json.String(TokenLabel(service().TokenBytes(id), /*chat=*/true));
    json.EndArray();
  }
  json.EndObject();
  return out;
}

StatusOr<std::string> Routes::Detokenize(std::string_view body) const {
  ASSIGN_OR_RETURN(boost::json::object object, ParseBody(body));
  ASSIGN_OR_RETURN(const DetokenizeCall call, ReadDetokenizeCall(std::move(object)));
  if (call.model) {
    RETURN_IF_ERROR(service().CheckModel(*call.model));
  }
  ASSIGN_OR_RETURN(const std::string text, service().Detokenize(call.ids, call.skip_control));
  std::string out;
  JsonWriter(out).BeginObject().Key("prompt").String(text).EndObject();
  return out;
}

std::string Routes::ModelObject(const std::string& name) const {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("id").String(name).Key("object").String("model");
  json.Key("created").Int(started_s_).Key("owned_by").String("polysil");
  json.Key("max_model_len").Int(service().engine_info().limits.context_tokens_max);
  json.EndObject();
  return out;
}

HttpReply Routes::Models() const {
  HttpReply reply;
  JsonWriter json(reply.body);
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (const std::string& name : service().model().names) json.Raw(ModelObject(name));
  json.EndArray().EndObject();
  return reply;
}

HttpReply Routes::Model(const std::string& name) const {
  const Status status = service().CheckModel(name);
  if (!status.ok()) return Refusal(status);
  return {.body = ModelObject(name)};
}

ReplyIdentity Routes::NewIdentity(bool chat, const std::optional<std::string>& model) {
  return {.id = fmt::format("{}-{:016x}{:08x}", chat ? "chatcmpl" : "cmpl", id_prefix_,
                            ids_.fetch_add(1, std::memory_order_relaxed)),
          .created_s = UnixSeconds(),
          .model = model.value_or(service().model().names.front())};
}

}  // namespace polysil
