#include "cli/console.h"

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <utility>

namespace polysil {
namespace {

using Seconds = std::chrono::duration<double>;
using std::chrono::steady_clock;

class ConsoleSink final : public TextSink {
 public:
  void OnDelta(TextDelta delta) override {
    if (!first_token_seen_ && !delta.tokens.empty()) {
      first_token_seen_ = true;
      answer_.seconds_to_first_token = Seconds(steady_clock::now() - started_).count();
    }
    answer_.text += delta.text;
    std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
    std::fflush(stdout);
  }

  void OnEnd(TextEnd end) override {
    answer_.usage = end.usage;
    answer_.seconds_total = Seconds(steady_clock::now() - started_).count();
    if (end.status.ok()) {
      promise_.set_value(std::move(answer_));
    } else {
      promise_.set_value(end.status);
    }
  }

  std::future<StatusOr<ConsoleAnswer>> Future() { return promise_.get_future(); }

 private:
  const steady_clock::time_point started_ = steady_clock::now();
  bool first_token_seen_ = false;
  ConsoleAnswer answer_;
  std::promise<StatusOr<ConsoleAnswer>> promise_;
};

}  // namespace

StatusOr<ConsoleAnswer> RunToConsole(TextService& service, TextCall call) {
  auto sink = std::make_shared<ConsoleSink>();
  std::future<StatusOr<ConsoleAnswer>> answer = sink->Future();
  RETURN_IF_ERROR(service.Start(std::move(call), sink).status());
  return answer.get();
}

}  // namespace polysil
