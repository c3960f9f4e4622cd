#include "server/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/host_port.h"
#include "base/thread_name.h"
#include "server/bind_failure.h"
#include "server/services.h"

namespace polysil {
namespace {

// A client that vanished without a word is noticed after both: ping, then silence.
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kMetadataBytesMax = 16 * 1024;

// Process-wide switches of the library, before the first server is built.
void EnableHealthAndReflection() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

}  // namespace

class GrpcServer::Running final {
 public:
  Running(const GrpcServerOptions& options, const TextSlot& slot)
      : options_(options),
        slot_(slot),
        inference_(slot, options.output_bytes_max),
        admin_(slot, options.version) {}

  Status Listen() {
    const std::optional<HostPort> parsed = ParseHostPort(options_.address);
    if (!parsed) {
      return InvalidArgument("the gRPC address {} is not HOST:PORT or [IPV6]:PORT",
                             options_.address);
    }
    EnableHealthAndReflection();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&inference_);
    builder.RegisterService(&admin_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(
        std::min<size_t>(options_.message_bytes_max, std::numeric_limits<int>::max())));
    // Otherwise a second daemon on the same port would start, and take half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return Unavailable("the gRPC address {} cannot be bound: {}", options_.address,
                         BindFailure(*parsed));
    }
    port_ = static_cast<uint16_t>(port);
    address_ = options_.address.substr(0, options_.address.rfind(':') + 1) + std::to_string(port);
    UpdateHealth();  // which says SERVING unless told otherwise
    health_thread_ = std::thread([this] { FollowReadiness(); });
    return OkStatus();
  }

  void Stop(std::chrono::milliseconds grace) {
    if (server_ == nullptr) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (health_thread_.joinable()) health_thread_.join();
    admin_.Stop();
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_.reset();
  }

  void UpdateHealth() {
    std::lock_guard lock(mutex_);
    if (!stopping_) SetHealth(slot_.Readiness().ready);
  }

  const std::string& address() const { return address_; }
  uint16_t port() const { return port_; }

 private:
  void FollowReadiness() {
    SetThreadName("grpc-health");
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      SetHealth(slot_.Readiness().ready);
      changed_.wait_for(lock, options_.health_interval);
    }
    SetHealth(false);
  }

  // Under the lock.
  void SetHealth(bool serving) {
    if (health_told_ == serving) return;
    health_told_ = serving;
    grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
    health->SetServingStatus(serving);
    for (const char* name : {v1::Inference::service_full_name(), v1::Admin::service_full_name()}) {
      health->SetServingStatus(name, serving);
    }
  }

  const GrpcServerOptions options_;
  const TextSlot& slot_;
  InferenceService inference_;
  AdminService admin_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
  std::string address_;
  std::thread health_thread_;
  std::condition_variable changed_;
  std::mutex mutex_;  // guards what follows
  bool stopping_ = false;
  std::optional<bool> health_told_;
};

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Create(const GrpcServerOptions& options,
                                                         const TextSlot& slot) {
  auto running = std::make_unique<Running>(options, slot);
  RETURN_IF_ERROR(running->Listen());
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(running)));
}

GrpcServer::GrpcServer(std::unique_ptr<Running> running) : running_(std::move(running)) {}

GrpcServer::~GrpcServer() {
  running_->Stop(std::chrono::milliseconds(0));
}

const std::string& GrpcServer::address() const {
  return running_->address();
}

uint16_t GrpcServer::port() const {
  return running_->port();
}

void GrpcServer::UpdateHealth() {
  running_->UpdateHealth();
}

void GrpcServer::Stop(std::chrono::milliseconds grace) {
  running_->Stop(grace);
}

}  // namespace polysil
