// LoadRun: puts a load on an OpenAI-compatible server: asks what it serves, then sends requests at
// their times and tells of each when it ends. One thread, the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/arrivals.h"
#include "bench/call_record.h"
#include "bench/http_streams.h"
#include "bench/load_options.h"
#include "bench/load_prompts.h"
#include "polysil/base/clock.h"
#include "polysil/base/status.h"

namespace polysil {

// Where a run is, for people.
struct LoadProgress {
  double seconds = 0.0;
  int64_t sent = 0;
  int64_t ended = 0;
  int64_t in_flight = 0;
};

// What a run as a whole came to.
struct LoadTotals {
  int64_t calls = 0;
  int64_t in_flight_max = 0;
  double seconds = 0.0;      // from the first request until the last end
  double cpu_seconds = 0.0;  // of this process, for that time
};

class LoadRun final {
 public:
  using OnCall = std::function<void(const CallRecord&)>;
  using OnProgress = std::function<void(const LoadProgress&)>;

  // `options` are valid. `clock` must outlive the run.
  static StatusOr<std::unique_ptr<LoadRun>> Create(LoadOptions options, const Clock& clock);

  // Finds the model, and learns from two small requests how many tokens a word is. A Status says
  // what to do: the server cannot be reached, does not know the model, does not stream.
  Status Prepare();
  const std::string& model() const { return options_.model; }

  // Sends everything and waits for the end of it. `on_call` hears of each request when it ends.
  LoadTotals Run(const OnCall& on_call, const OnProgress& on_progress);

 private:
  struct Session;

  LoadRun(LoadOptions options, const Clock& clock, LoadPrompts prompts,
          std::unique_ptr<HttpStreams> http);

  // Of a GET of /v1/models, or what to do where there is none.
  StatusOr<std::string> FindModel();
  StatusOr<CallRecord> AskAlone(std::string prompt);
  std::string BodyOf(const Session& session, int32_t output_tokens) const;
  std::string CallUrl() const;

  // When the next session is due, after the beginning; none: there is no other.
  std::optional<int64_t> NextDue(int64_t elapsed_ns) const;
  void StartDueSessions(int64_t now_ns);
  void StartSession(int64_t due_ns);
  void StartTurn(const std::shared_ptr<Session>& session, int64_t due_ns);
  void EndTurn(const std::shared_ptr<Session>& session, CallRecord record, std::string answer);

  LoadOptions options_;
  const Clock& clock_;
  LoadPrompts prompts_;
  Arrivals arrivals_;
  int64_t sessions_max_ = 0;

  int64_t begin_ns_ = 0;
  int64_t sessions_ = 0;       // begun
  int64_t sessions_open_ = 0;  // and not over
  int64_t ended_ = 0;          // calls
  LoadTotals totals_;
  const OnCall* on_call_ = nullptr;
  std::unique_ptr<HttpStreams> http_;  // last: what is under way holds pointers to this
};

}  // namespace polysil
