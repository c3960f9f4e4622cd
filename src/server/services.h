// The services of the gRPC face: each method a thin translation onto TextService, or
// UNAVAILABLE while there is none. Called on the library's threads; owned by the server.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "polysil/v1/admin.grpc.pb.h"
#include "polysil/v1/inference.grpc.pb.h"
#include "server/kv_event_feed.h"
#include "session/text_slot.h"

namespace polysil {

class InferenceService final : public v1::Inference::CallbackService {
 public:
  // `slot` outlives it.
  InferenceService(const TextSlot& slot, size_t output_bytes_max)
      : slot_(slot), output_bytes_max_(output_bytes_max) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;

 private:
  // Finishes the call with what `work` says, done here or, for long texts, elsewhere. Request and
  // response live until then.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const std::string& model,
                                   size_t bytes, std::function<Status(TextService&)> work);
  // Finds the service, if the call is about the model it serves, and has it run `work`.
  Status Run(const std::string& model, size_t bytes, const Caller& caller,
             std::function<void(TextService&)> work) const;

  const TextSlot& slot_;
  const size_t output_bytes_max_;
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  // `slot` outlives it.
  AdminService(const TextSlot& slot, std::string version)
      : slot_(slot), version_(std::move(version)), kv_events_(slot) {}

  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const v1::GetStatsRequest* request,
                                     v1::Stats* response) override;
  grpc::ServerUnaryReactor* GetReadiness(grpc::CallbackServerContext* context,
                                         const v1::GetReadinessRequest* request,
                                         v1::Readiness* response) override;
  grpc::ServerWriteReactor<v1::KvEventBatch>* WatchKvEvents(
      grpc::CallbackServerContext* context, const v1::WatchKvEventsRequest* request) override;

  // Ends the streams that would go on for ever.
  void Stop() { kv_events_.Stop(); }

 private:
  const TextSlot& slot_;
  const std::string version_;
  KvEventFeed kv_events_;
};

}  // namespace polysil
