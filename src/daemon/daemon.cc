#include "daemon/daemon.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "daemon/assemble.h"
#include "daemon/machine_memory.h"
#include "gateway/http_gateway.h"
#include "polysil/base/clock.h"
#include "server/grpc_server.h"
#include "session/text_slot.h"

namespace polysil {
namespace {

using std::chrono::milliseconds;

// What a cut-off stream gets to see its last bytes written.
constexpr milliseconds kCloseGrace{1000};
// After the drain's deadline, and after a second signal: what ends has so long to do so, as a step
// that the device is at, or a text that is being tokenized.
constexpr int64_t kDeadlineGraceNs = 5'000'000'000;
constexpr int64_t kSecondSignalGraceNs = 1'000'000'000;
// How often a daemon that waits for something else looks for a signal.
constexpr milliseconds kTick{50};
constexpr int64_t kTickNs = std::chrono::nanoseconds(kTick).count();

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Whether there was one since the last call.
bool TakeStopSignal() {
  const sigset_t signals = StopSignals();
  const timespec no_wait = {};
  return sigtimedwait(&signals, nullptr, &no_wait) > 0;
}

// The faces that the configuration asks for.
struct Faces {
  std::unique_ptr<HttpGateway> http;
  std::unique_ptr<GrpcServer> grpc;

  void Stop(milliseconds grace) {
    if (http != nullptr && !http->Stop(grace)) {
      Log(LogLevel::kWarning, "answers were cut off that their readers had not taken yet");
    }
    if (grpc != nullptr) grpc->Stop(grace);
  }
  // For people.
  std::string HttpAddress() const {
    return http == nullptr ? "off" : fmt::format("http://{}", http->address());
  }
  std::string GrpcAddress() const { return grpc == nullptr ? "off" : grpc->address(); }
};

StatusOr<Faces> OpenFaces(const v1::ServerConfig& config, const TextSlot& slot) {
  Faces faces;
  if (config.http() != "off") {
    ASSIGN_OR_RETURN(faces.http, HttpGateway::Create({.address = config.http(),
                                                      .threads = config.http_threads(),
                                                      .version = POLYSIL_VERSION},
                                                     slot));
  }
  if (config.grpc() != "off") {
    ASSIGN_OR_RETURN(faces.grpc, GrpcServer::Create(
                                     {.address = config.grpc(), .version = POLYSIL_VERSION}, slot));
  }
  if (faces.http != nullptr) faces.http->Start();
  return faces;
}

void SayReady(const Faces& faces, const TextService& text, double seconds) {
  const std::string& name = text.model().names.front();
  fmt::print("polysil is ready: {} at {} (gRPC {}) after {:.2f} s\n", name, faces.HttpAddress(),
             faces.GrpcAddress(), seconds);
  if (faces.http != nullptr) {
    fmt::print(
        "Try it:\n  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is the capital of "
        "France?\"}}]}}'\n",
        faces.HttpAddress());
  }
  std::fflush(stdout);
}

using Loaded = StatusOr<std::unique_ptr<Assembly>>;

// A signal meanwhile ends the process: a load cannot be interrupted, and nothing is lost with it.
Loaded Load(const std::string& model_path, const v1::Config& config, const Clock& clock,
            Faces& faces) {
  std::packaged_task<Loaded()> task([&] {
    SetThreadName("load");
    return Assembly::Create(model_path, config, clock);
  });
  std::future<Loaded> loaded = task.get_future();
  std::thread thread(std::move(task));
  while (loaded.wait_for(kTick) != std::future_status::ready) {
    if (!TakeStopSignal()) continue;
    Log(LogLevel::kInfo, "stopped while the model was being loaded");
    faces.Stop(milliseconds(0));
    std::_Exit(0);
  }
  thread.join();
  return loaded.get();
}

// Running streams go on until the deadline; a second signal ends them now. Whatever was read is
// answered: nothing more comes from the texts, and then nothing from the engine. False: it was not
// in time.
bool Drain(Assembly& assembly, const Clock& clock, double seconds) {
  EngineThread& engine = assembly.engine();
  const int64_t deadline_ns = clock.NowNs() + static_cast<int64_t>(seconds * 1e9);
  int64_t end_ns = deadline_ns + kDeadlineGraceNs;
  assembly.text().Drain();
  engine.Drain(deadline_ns);
  while (!assembly.text().WaitIdle(kTickNs) || !engine.WaitIdle(kTickNs)) {
    if (TakeStopSignal()) {
      Log(LogLevel::kWarning, "second signal: ending now");
      engine.Drain(0);
      end_ns = std::min(end_ns, clock.NowNs() + kSecondSignalGraceNs);
    }
    if (clock.NowNs() >= end_ns) return false;
  }
  return true;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a client that went away is an error of its own write
}

Status Serve(const std::string& model_path, const v1::Config& config) {
  GiveBackLargeMemory();
  const SteadyClock clock;
  const int64_t started_ns = clock.NowNs();
  TextSlot slot;
  ASSIGN_OR_RETURN(Faces faces, OpenFaces(config.server(), slot));
  Log(LogLevel::kInfo, "listening at {} (gRPC {}); loading {}", faces.HttpAddress(),
      faces.GrpcAddress(), model_path);
  ASSIGN_OR_RETURN(const std::unique_ptr<Assembly> assembly,
                   Load(model_path, config, clock, faces));
  slot.Fill(assembly->text());
  if (faces.grpc != nullptr) faces.grpc->UpdateHealth();
  SayReady(faces, assembly->text(), static_cast<double>(clock.NowNs() - started_ns) * 1e-9);

  const sigset_t signals = StopSignals();
  int signal_number = 0;
  while (sigwait(&signals, &signal_number) != 0) {
  }
  Log(LogLevel::kInfo, "{}: draining for at most {} s; signal again to end now",
      strsignal(signal_number), config.server().drain_seconds());
  if (!Drain(*assembly, clock, config.server().drain_seconds())) {
    // What is still at work would hold up its face, and then its threads the process.
    Log(LogLevel::kWarning, "stopped with calls unanswered");
    if (faces.http != nullptr) faces.http->Stop(kCloseGrace);
    std::_Exit(0);
  }
  faces.Stop(kCloseGrace);
  Log(LogLevel::kInfo, "stopped");
  return OkStatus();
}

}  // namespace polysil
