#include "server/services.h"

#include <utility>

#include "server/call_end.h"
#include "server/generate_stream.h"
#include "server/proto_call.h"

namespace polysil {
namespace {

Status TokenizeInto(const TextService& service, const v1::TokenizeRequest& request,
                    v1::TokenizeResponse* response) {
  ASSIGN_OR_RETURN(const TextPrompt prompt, ReadPrompt(request.prompt()));
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   service.Tokenize(prompt, ReadEncoding(request.prompt())));
  for (const TokenId id : ids) {
    response->add_ids(id);
    response->add_tokens(service.TokenBytes(id));
  }
  return OkStatus();
}

Status DetokenizeInto(const TextService& service, const v1::DetokenizeRequest& request,
                      v1::DetokenizeResponse* response) {
  const std::vector<TokenId> ids(request.ids().begin(), request.ids().end());
  ASSIGN_OR_RETURN(std::string text, service.Detokenize(ids, request.skip_special_tokens()));
  response->set_text(std::move(text));
  return OkStatus();
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return GenerateStream::Start(service_, context, request, output_bytes_max_);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* request,
                                                     v1::TokenizeResponse* response) {
  return Answer(context, request->model(), request->ByteSizeLong(),
                [this, request, response] { return TokenizeInto(service_, *request, response); });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  return Answer(context, request->model(), request->ByteSizeLong(),
                [this, request, response] { return DetokenizeInto(service_, *request, response); });
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* request,
                                                     v1::Model* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const Status status = CheckModel(request->model());
  if (status.ok()) {
    const TextModel& model = service_.model();
    const EngineInfo& info = service_.engine_info();
    response->set_name(model.names.front());
    for (size_t i = 1; i < model.names.size(); ++i) response->add_aliases(model.names[i]);
    response->set_context_tokens_max(info.limits.context_tokens_max);
    response->set_vocab_size(info.limits.vocab_size);
    response->set_numeric_class(info.numeric_class);
    response->set_chat(model.chat_template != nullptr);
  }
  Finish(status, *context);
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Answer(grpc::CallbackServerContext* context,
                                                   const std::string& model, size_t bytes,
                                                   std::function<Status()> work) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Status status = CheckModel(model);
  if (status.ok()) {
    status =
        service_.Run(bytes, [this, context, work = std::move(work)] { Finish(work(), *context); });
  }
  if (!status.ok()) Finish(status, *context);
  return reactor;
}

void InferenceService::Finish(const Status& status, grpc::CallbackServerContext& context) const {
  context.DefaultReactor()->Finish(EndOf(status, service_.RetryAfterSeconds(status), context));
}

Status InferenceService::CheckModel(const std::string& model) const {
  return model.empty() ? OkStatus() : service_.CheckModel(model);
}

grpc::ServerUnaryReactor* AdminService::GetStats(grpc::CallbackServerContext* context,
                                                 const v1::GetStatsRequest* /*request*/,
                                                 v1::Stats* response) {
  *response = WriteStats(service_.Stats());
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<v1::KvEventBatch>* AdminService::WatchKvEvents(
    grpc::CallbackServerContext* context, const v1::WatchKvEventsRequest* request) {
  return kv_events_.Watch(context, request->from());
}

grpc::ServerUnaryReactor* AdminService::GetReadiness(grpc::CallbackServerContext* context,
                                                     const v1::GetReadinessRequest* /*request*/,
                                                     v1::Readiness* response) {
  const EngineReadiness readiness = service_.Readiness();
  response->set_ready(readiness.ready);
  response->set_reason(readiness.reason);
  response->set_version(version_);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace polysil
