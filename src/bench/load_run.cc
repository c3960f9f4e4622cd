#include "bench/load_run.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/load_call.h"

namespace polysil {
namespace {

namespace json = boost::json;

constexpr int64_t kRequestsDefault = 100;
constexpr int64_t kInFlightMax = 10'000;
constexpr int64_t kProgressNs = 200'000'000;
constexpr size_t kModelListBytesMax = 1 << 20;
constexpr size_t kShownBytes = 200;
constexpr int32_t kCalibrationWords = 100;

// Without /v1 and without a slash at its end.
std::string BaseOf(std::string url) {
  const auto drop = [&url](std::string_view tail) {
    if (url.ends_with(tail)) url.resize(url.size() - tail.size());
  };
  drop("/");
  drop("/v1");
  drop("/");
  return url;
}

int64_t SessionsMax(const LoadOptions& options, const LoadPrompts& prompts) {
  const auto recorded = static_cast<int64_t>(prompts.trace().size());
  int64_t most = kRequestsDefault;
  if (options.requests > 0) {
    most = options.requests;
  } else if (recorded > 0) {
    most = recorded;
  } else if (options.duration_s > 0) {
    most = kLoadRequestsMax;
  }
  if (recorded > 0) most = std::min(most, recorded);
  return std::min(most, kLoadRequestsMax / options.turns);
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Each request in flight is a connection.
void AllowManyConnections() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A small answer as a whole.
struct WholeAnswer {
  HttpEnd end;
  std::string body;
  bool ended = false;
};

class WholeAnswerStream final : public HttpStream {
 public:
  explicit WholeAnswerStream(WholeAnswer& answer) : answer_(answer) {}
  bool OnBytes(int32_t, std::string_view bytes) override {
    answer_.body += bytes;
    return answer_.body.size() <= kModelListBytesMax;
  }
  void OnEnd(const HttpEnd& end) override {
    answer_.end = end;
    answer_.ended = true;
  }

 private:
  WholeAnswer& answer_;
};

// The first id of a list of models; empty: it is none.
std::string FirstModel(const std::string& body) {
  boost::system::error_code error;
  const json::value list = json::parse(body, error);
  if (error) return {};
  const json::value* id = list.find_pointer("/data/0/id", error);
  return id != nullptr && id->is_string() ? std::string(id->get_string()) : std::string();
}

}  // namespace

// One client: its conversation so far, and what it will say.
struct LoadRun::Session {
  int64_t index = 0;
  LoadSession plan;
  int32_t turn = 0;
  std::vector<std::string> answers;
};

StatusOr<std::unique_ptr<LoadRun>> LoadRun::Create(LoadOptions options, const Clock& clock) {
  options.url = BaseOf(std::move(options.url));
  ASSIGN_OR_RETURN(LoadPrompts prompts, LoadPrompts::Create(options));
  ASSIGN_OR_RETURN(std::unique_ptr<HttpStreams> http,
                   HttpStreams::Create({.api_key = options.api_key,
                                        .timeout_ms = std::llround(options.timeout_s * 1e3)},
                                       clock));
  return std::unique_ptr<LoadRun>(
      new LoadRun(std::move(options), clock, std::move(prompts), std::move(http)));
}

LoadRun::LoadRun(LoadOptions options, const Clock& clock, LoadPrompts prompts,
                 std::unique_ptr<HttpStreams> http)
    : options_(std::move(options)),
      clock_(clock),
      prompts_(std::move(prompts)),
      arrivals_(std::max(options_.rate, 1e-9), options_.burstiness, options_.seed),
      sessions_max_(SessionsMax(options_, prompts_)),
      http_(std::move(http)) {}

StatusOr<std::string> LoadRun::FindModel() {
  WholeAnswer answer;
  http_->Start(options_.url + "/v1/models", "", std::make_unique<WholeAnswerStream>(answer));
  while (!answer.ended) http_->Poll(kProgressNs);
  const int32_t status = answer.end.status;
  if (status == 0) {
    return Unavailable("{} cannot be reached ({}); is the server running?", options_.url,
                       answer.end.message);
  }
  if (status == 401 || status == 403) {
    return FailedPrecondition("{} refuses the API key (HTTP {}); give --api-key or OPENAI_API_KEY",
                              options_.url, status);
  }
  if (status == 503) {
    return Unavailable("{} is not ready (HTTP 503: {}); try again when it is", options_.url,
                       answer.body.substr(0, kShownBytes));
  }
  return FirstModel(answer.body);
}

StatusOr<CallRecord> LoadRun::AskAlone(std::string prompt) {
  Session session{.plan = {.turns = {std::move(prompt)}}};
  std::optional<CallRecord> ended;
  http_->Start(CallUrl(), BodyOf(session, 1),
               std::make_unique<LoadCall>(
                   clock_, CallRecord{.due_ns = clock_.NowNs()}, 0,
                   [&](CallRecord record, const std::string&) { ended = std::move(record); }));
  while (!ended) http_->Poll(kProgressNs);
  // A token may be without text.
  if (ended->outcome == CallOutcome::kFailed && ended->error_kind != "no token") {
    return FailedPrecondition("{} does not answer for model '{}' as it should ({}): {}", CallUrl(),
                              options_.model, ended->error_kind, ended->error);
  }
  return *std::move(ended);
}

Status LoadRun::Prepare() {
  AllowManyConnections();
  ASSIGN_OR_RETURN(const std::string model, FindModel());
  if (options_.model.empty()) options_.model = model;
  if (options_.model.empty()) {
    return FailedPrecondition("{}/v1/models lists no model; give --model", options_.url);
  }
  ASSIGN_OR_RETURN(const CallRecord small,
                   AskAlone(LoadPrompts::CommonWords(kCalibrationWords, options_.seed)));
  ASSIGN_OR_RETURN(const CallRecord large,
                   AskAlone(LoadPrompts::CommonWords(2 * kCalibrationWords, options_.seed + 1)));
  const int32_t tokens = large.input_tokens - small.input_tokens;
  if (tokens > 0) prompts_.SetWordsPerToken(static_cast<double>(kCalibrationWords) / tokens);
  return OkStatus();
}

std::string LoadRun::CallUrl() const {
  return options_.url + (options_.chat ? "/v1/chat/completions" : "/v1/completions");
}

std::string LoadRun::BodyOf(const Session& session, int32_t output_tokens) const {
  json::object body = {{"model", options_.model},
                       {"max_tokens", output_tokens},
                       {"temperature", 0},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
  if (!options_.stop_at_end) body["ignore_eos"] = true;
  const auto turns = static_cast<size_t>(session.turn) + 1;
  if (options_.chat) {
    json::array messages;
    const auto add = [&messages](const char* role, const std::string& content) {
      messages.push_back(json::object{{"role", role}, {"content", content}});
    };
    if (!session.plan.system.empty()) add("system", session.plan.system);
    for (size_t turn = 0; turn < turns; ++turn) {
      add("user", session.plan.turns[turn]);
      if (turn + 1 < turns) add("assistant", session.answers[turn]);
    }
    body["messages"] = std::move(messages);
  } else {
    std::string prompt = session.plan.system;
    for (size_t turn = 0; turn < turns; ++turn) {
      if (!prompt.empty()) prompt += "\n\n";
      prompt += session.plan.turns[turn];
      if (turn + 1 < turns) prompt += session.answers[turn];
    }
    body["prompt"] = prompt;
  }
  return json::serialize(body);
}

std::optional<int64_t> LoadRun::NextDue(int64_t elapsed_ns) const {
  if (sessions_ >= sessions_max_) return std::nullopt;
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t due_ns = elapsed_ns;
  if (!prompts_.trace().empty()) {
    const int64_t recorded_ns = prompts_.trace()[static_cast<size_t>(sessions_)].arrival_ns -
                                prompts_.trace().front().arrival_ns;
    due_ns = static_cast<int64_t>(static_cast<double>(recorded_ns) / options_.speed);
  } else if (options_.rate > 0) {
    due_ns = arrivals_.next_ns();
  } else if (sessions_open_ >= options_.concurrency) {
    due_ns = kNever;  // before one of the others ends
  }
  const double begins_s = 1e-9 * static_cast<double>(due_ns == kNever ? elapsed_ns : due_ns);
  if (options_.duration_s > 0 && begins_s > options_.duration_s) return std::nullopt;
  return due_ns;
}

void LoadRun::StartDueSessions(int64_t now_ns) {
  const int64_t elapsed_ns = now_ns - begin_ns_;
  for (auto due_ns = NextDue(elapsed_ns); due_ns && *due_ns <= elapsed_ns;
       due_ns = NextDue(elapsed_ns)) {
    arrivals_.Advance();
    StartSession(begin_ns_ + *due_ns);
  }
}

void LoadRun::StartSession(int64_t due_ns) {
  auto session = std::make_shared<Session>();
  session->index = sessions_++;
  session->plan = prompts_.Session(session->index);
  ++sessions_open_;
  StartTurn(session, due_ns);
}

void LoadRun::StartTurn(const std::shared_ptr<Session>& session, int64_t due_ns) {
  CallRecord record{.session = session->index, .turn = session->turn, .due_ns = due_ns};
  ++totals_.calls;
  if (http_->in_flight() >= kInFlightMax) {
    record.sent_ns = record.end_ns = clock_.NowNs();
    record.outcome = CallOutcome::kFailed;
    record.error_kind = "client limit";
    record.error = fmt::format("{} requests are in flight already", kInFlightMax);
    return EndTurn(session, std::move(record), "");
  }
  const auto place =
      static_cast<uint64_t>(session->index) * 10'000 + static_cast<uint64_t>(session->turn);
  const double lot = static_cast<double>(Mix(options_.seed, place) >> 11) * 0x1p-53;
  const int32_t cancel_after = lot < options_.cancel_share ? options_.cancel_after_tokens : 0;
  std::string body = BodyOf(*session, session->plan.output_tokens);
  auto call = std::make_unique<LoadCall>(clock_, std::move(record), cancel_after,
                                         [this, session](CallRecord ended, std::string answer) {
                                           EndTurn(session, std::move(ended), std::move(answer));
                                         });
  http_->Start(CallUrl(), std::move(body), std::move(call));
  totals_.in_flight_max = std::max(totals_.in_flight_max, http_->in_flight());
}

void LoadRun::EndTurn(const std::shared_ptr<Session>& session, CallRecord record,
                      std::string answer) {
  const int64_t now_ns = clock_.NowNs();
  const bool goes_on = record.outcome == CallOutcome::kOk &&
                       static_cast<size_t>(session->turn) + 1 < session->plan.turns.size();
  for (int64_t* time : {&record.due_ns, &record.sent_ns, &record.first_token_ns,
                        &record.last_token_ns, &record.end_ns}) {
    *time = std::max<int64_t>(*time - begin_ns_, 0);
  }
  ++ended_;
  (*on_call_)(record);
  if (!goes_on) {
    --sessions_open_;
    return;
  }
  session->answers.push_back(std::move(answer));
  ++session->turn;
  StartTurn(session, now_ns);
}

LoadTotals LoadRun::Run(const OnCall& on_call, const OnProgress& on_progress) {
  on_call_ = &on_call;
  const double cpu_begin_s = CpuSeconds();
  begin_ns_ = clock_.NowNs();
  int64_t progress_ns = begin_ns_;
  while (true) {
    const int64_t now_ns = clock_.NowNs();
    StartDueSessions(now_ns);
    const std::optional<int64_t> due_ns = NextDue(now_ns - begin_ns_);
    if (!due_ns && http_->in_flight() == 0) break;
    const int64_t wait_ns = due_ns ? *due_ns - (now_ns - begin_ns_) : kProgressNs;
    http_->Poll(std::clamp<int64_t>(wait_ns, 0, kProgressNs));
    if (now_ns - progress_ns < kProgressNs) continue;
    progress_ns = now_ns;
    on_progress({.seconds = static_cast<double>(now_ns - begin_ns_) * 1e-9,
                 .sent = totals_.calls,
                 .ended = ended_,
                 .in_flight = http_->in_flight()});
  }
  totals_.seconds = static_cast<double>(clock_.NowNs() - begin_ns_) * 1e-9;
  totals_.cpu_seconds = CpuSeconds() - cpu_begin_s;
  return totals_;
}

}  // namespace polysil
