#include "daemon/daemon.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>

#include "base/log.h"
#include "daemon/assemble.h"
#include "gateway/http_gateway.h"
#include "polysil/base/clock.h"
#include "server/grpc_server.h"

namespace polysil {
namespace {

using std::chrono::milliseconds;

// What a cut-off stream gets to see its last bytes written.
constexpr milliseconds kCloseGrace{1000};
constexpr int64_t kTickNs = 50'000'000;  // how often a draining daemon looks whether it is done

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// The faces that the configuration asks for.
struct Faces {
  std::unique_ptr<HttpGateway> http;
  std::unique_ptr<GrpcServer> grpc;

  void Stop(milliseconds grace) {
    if (http != nullptr) http->Stop(grace);
    if (grpc != nullptr) grpc->Stop(grace);
  }
};

StatusOr<Faces> OpenFaces(const v1::ServerConfig& config, TextService& text) {
  Faces faces;
  if (config.http() != "off") {
    ASSIGN_OR_RETURN(faces.http, HttpGateway::Create({.address = config.http(),
                                                      .threads = config.http_threads(),
                                                      .version = POLYSIL_VERSION},
                                                     text));
  }
  if (config.grpc() != "off") {
    ASSIGN_OR_RETURN(faces.grpc, GrpcServer::Create(
                                     {.address = config.grpc(), .version = POLYSIL_VERSION}, text));
  }
  if (faces.http != nullptr) faces.http->Start();
  return faces;
}

void SayReady(const Faces& faces, const TextService& text, double seconds) {
  const std::string& name = text.model().names.front();
  const std::string http =
      faces.http == nullptr ? "off" : fmt::format("http://{}", faces.http->address());
  const std::string grpc = faces.grpc == nullptr ? "off" : faces.grpc->address();
  fmt::print("polysil is ready: {} at {} (gRPC {}) after {:.2f} s\n", name, http, grpc, seconds);
  if (faces.http != nullptr) {
    fmt::print(
        "Try it:\n  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is the capital of "
        "France?\"}}]}}'\n",
        http);
  }
  std::fflush(stdout);
}

// Running streams go on until the deadline; a second signal ends them now.
void Drain(EngineThread& engine, const Clock& clock, double seconds) {
  const sigset_t signals = StopSignals();
  engine.Drain(clock.NowNs() + static_cast<int64_t>(seconds * 1e9));
  const timespec no_wait = {};
  while (!engine.WaitIdle(kTickNs)) {
    if (sigtimedwait(&signals, nullptr, &no_wait) > 0) {
      Log(LogLevel::kWarning, "second signal: ending now");
      engine.Drain(0);
      engine.WaitIdle(static_cast<int64_t>(1e9));
      return;
    }
  }
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a client that went away is an error of its own write
}

Status Serve(const std::string& model_path, const v1::Config& config) {
  const SteadyClock clock;
  const int64_t started_ns = clock.NowNs();
  ASSIGN_OR_RETURN(const std::unique_ptr<Assembly> assembly,
                   Assembly::Create(model_path, config, clock));
  ASSIGN_OR_RETURN(Faces faces, OpenFaces(config.server(), assembly->text()));
  SayReady(faces, assembly->text(), static_cast<double>(clock.NowNs() - started_ns) * 1e-9);

  const sigset_t signals = StopSignals();
  int signal_number = 0;
  while (sigwait(&signals, &signal_number) != 0) {
  }
  Log(LogLevel::kInfo, "{}: draining for at most {} s; signal again to end now",
      strsignal(signal_number), config.server().drain_seconds());
  Drain(assembly->engine(), clock, config.server().drain_seconds());
  faces.Stop(kCloseGrace);
  Log(LogLevel::kInfo, "stopped");
  return OkStatus();
}

}  // namespace polysil
