// Unary calls by a method's name, for what has no stub in the tests.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace polysil {

// The status, and the bytes of the answer where it is OK.
inline std::pair<grpc::Status, std::string> RawCall(const std::shared_ptr<grpc::Channel>& channel,
                                                    const std::string& method,
                                                    const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice answer;
  return {status, status.ok() && response.DumpToSingleSlice(&answer).ok()
                      ? std::string(answer.begin(), answer.end())
                      : std::string()};
}

// What the standard health service says; "" is the server as a whole.
inline bool IsServing(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  // HealthCheckRequest{service = 1}; HealthCheckResponse{status = 1}, SERVING = 1.
  const std::string request =
      service.empty() ? "" : std::string("\x0a") + static_cast<char>(service.size()) + service;
  const auto [status, bytes] = RawCall(channel, "/grpc.health.v1.Health/Check", request);
  return status.ok() && bytes == std::string("\x08\x01");
}

}  // namespace polysil
