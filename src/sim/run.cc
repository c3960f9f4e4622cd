#include "sim/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

namespace polysil {
namespace {

// Ticks printed before and with the last.
constexpr int64_t kTicksPrinted = 20;

// The sentence for a process that aborts stands ready for the signal, which can do no more than
// write it. One run at a time.
class AbortNotice final {
 public:
  AbortNotice() : previous_(std::signal(SIGABRT, &AbortNotice::Write)) {}
  ~AbortNotice() { std::signal(SIGABRT, previous_); }
  AbortNotice(const AbortNotice&) = delete;
  AbortNotice& operator=(const AbortNotice&) = delete;

  static void Set(const std::string& text) {
    std::snprintf(text_, sizeof(text_), "%s\n", text.c_str());
  }

 private:
  static void Write(int /*signal*/) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_, std::strlen(text_));
  }

  static inline char text_[256] = "";
  void (*const previous_)(int);
};

std::string WhereText(uint64_t seed, int64_t tick) {
  return fmt::format("seed {}, tick {}; to see it: polysil sim --seed {} --until-tick {}", seed,
                     tick, seed, tick);
}

}  // namespace

Status RunToEnd(Simulation& simulation, const RunOptions& options) {
  const AbortNotice notice;
  SimObservers observers;
  observers.before_tick = [&](int64_t tick) {
    AbortNotice::Set(WhereText(options.seed, tick));
    if (tick + kTicksPrinted > options.until_tick) observers.after_tick = options.print_tick;
  };
  while (simulation.ticks() < options.until_tick && simulation.Advance(observers)) {
  }
  if (!simulation.violation()) return OkStatus();
  return Internal("{}: {} ({})", simulation.violation()->check, simulation.violation()->message,
                  WhereText(options.seed, simulation.ticks()));
}

}  // namespace polysil
