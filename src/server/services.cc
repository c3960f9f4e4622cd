#include "server/services.h"

#include <utility>

#include "server/call_end.h"
#include "server/caller.h"
#include "server/generate_stream.h"
#include "server/proto_call.h"
#include "server/refused_stream.h"

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

// Deletes itself when the library is done with it.
template <typename Response>
grpc::ServerWriteReactor<Response>* Refused(const Status& status, const TextSlot& slot,
                                            grpc::CallbackServerContext& context) {
  return new RefusedStream<Response>(EndOf(status, slot.RetryAfterSeconds(status), context));
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  const StatusOr<TextService*> service = slot_.Find();
  if (!service.ok()) return Refused<v1::GenerateResponse>(service.status(), slot_, *context);
  return GenerateStream::Start(**service, context, request, output_bytes_max_);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const v1::TokenizeRequest* request,
                                                     v1::TokenizeResponse* response) {
  return Answer(context, request->model(), request->ByteSizeLong(),
                [request, response](const TextService& service) {
                  return TokenizeInto(service, *request, response);
                });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  return Answer(context, request->model(), request->ByteSizeLong(),
                [request, response](const TextService& service) {
                  return DetokenizeInto(service, *request, response);
                });
}

grpc::ServerUnaryReactor* InferenceService::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* request,
                                                     v1::Model* response) {
  return Answer(context, request->model(), /*bytes=*/0, [response](const TextService& service) {
    const TextModel& model = service.model();
    const EngineInfo& info = service.engine_info();
    response->set_name(model.names.front());
    for (size_t i = 1; i < model.names.size(); ++i) {
      response->add_aliases(model.names[i]);
    }
    response->set_context_tokens_max(info.limits.context_tokens_max);
    response->set_vocab_size(info.limits.vocab_size);
    response->set_numeric_class(info.numeric_class);
    response->set_chat(model.chat_template != nullptr);
    return OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::Answer(grpc::CallbackServerContext* context,
                                                   const std::string& model, size_t bytes,
                                                   std::function<Status(TextService&)> work) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto finish = [this, context, reactor](const Status& status) {
    reactor->Finish(EndOf(status, slot_.RetryAfterSeconds(status), *context));
  };
  const Status status =
      Run(model, bytes, CallerOf(*context),
          [finish, work = std::move(work)](TextService& service) { finish(work(service)); });
  if (!status.ok()) finish(status);
  return reactor;
}

Status InferenceService::Run(const std::string& model, size_t bytes, const Caller& caller,
                             std::function<void(TextService&)> work) const {
  ASSIGN_OR_RETURN(TextService* const service, slot_.Find());
  if (!model.empty()) RETURN_IF_ERROR(service->CheckModel(model));
  return service->Run(bytes, caller, [service, work = std::move(work)] { work(*service); });
}

grpc::ServerUnaryReactor* AdminService::GetStats(grpc::CallbackServerContext* context,
                                                 const v1::GetStatsRequest* /*request*/,
                                                 v1::Stats* response) {
  const StatusOr<TextService*> service = slot_.Find();
  if (service.ok()) *response = WriteStats((*service)->Stats());
  const Status& status = service.status();
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(EndOf(status, slot_.RetryAfterSeconds(status), *context));
  return reactor;
}

grpc::ServerWriteReactor<v1::KvEventBatch>* AdminService::WatchKvEvents(
    grpc::CallbackServerContext* context, const v1::WatchKvEventsRequest* request) {
  const StatusOr<TextService*> service = slot_.Find();
  if (!service.ok()) return Refused<v1::KvEventBatch>(service.status(), slot_, *context);
  return kv_events_.Watch(context, request->from());
}

grpc::ServerUnaryReactor* AdminService::GetReadiness(grpc::CallbackServerContext* context,
                                                     const v1::GetReadinessRequest* /*request*/,
                                                     v1::Readiness* response) {
  const EngineReadiness readiness = slot_.Readiness();
  response->set_ready(readiness.ready);
  response->set_reason(readiness.reason);
  response->set_version(version_);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace polysil
