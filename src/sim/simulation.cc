#include "sim/simulation.h"

#include <algorithm>
#include <utility>

#include "sim/tick_text.h"

namespace polysil {
namespace {

constexpr const char* kAllEnd = "all finishes once faults stop";
constexpr const char* kWakes = "cancels and deadlines are obeyed at once";
constexpr const char* kForgets = "steps tell the executor what it needs";
constexpr int32_t kTicksIdleMax = 100;

}  // namespace

Simulation::Simulation(SimPlan plan, bool with_timeline)
    : plan_(std::move(plan)),
      faults_(plan_.faults, plan_.fault_seed, clock_),
      timeline_(with_timeline ? std::optional<Timeline>(std::in_place) : std::nullopt),
      device_(plan_.device, clock_,
              [this](const ScheduledStep& step) { return faults_.DrawStep(step); }),
      clients_(plan_.engine, device_, *plan_.workload, timeline_ ? &*timeline_ : nullptr),
      checks_(plan_.integrity_every),
      core_(plan_.engine) {}

Simulation::~Simulation() = default;

bool Simulation::Advance(const SimObservers& observers) {
  if (violation_) return false;
  const int64_t next_ns = NextEventNs();
  if (clients_.next_due_ns() < next_ns) {
    violation_ = Violation{kWakes, "the engine sleeps past the time at which a call must end"};
    return false;
  }
  if (next_ns == kNever) {
    if (clients_.calls_live() > 0) {
      violation_ = Violation{kAllEnd, fmt::format("{} calls live and nothing will happen any more",
                                                  clients_.calls_live())};
    }
    return false;
  }
  const int64_t now_ns = std::max(clock_.NowNs(), next_ns) + faults_.DrawDelayNs(clock_.NowNs());
  clock_.MoveTo(now_ns);
  ++ticks_;
  if (observers.before_tick) observers.before_tick(ticks_);
  EngineInputs inputs = GatherInputs(now_ns);
  // Delays move time on and bring nothing; a core may also ask to be woken too early, at times.
  const bool brings = !inputs.results.empty() || !inputs.submitted.empty() ||
                      !inputs.cancelled.empty() || !inputs.stopped.empty();
  ticks_idle_ = brings ? 0 : ticks_idle_ + 1;
  std::string text;
  if (observers.after_tick) text = fmt::format("tick {} {}", ticks_, TextOf(now_ns, inputs));
  EngineActions& actions = core_.Tick(now_ns, inputs);
  if (observers.after_tick) observers.after_tick(text + TextOf(actions));
  wake_ns_ = actions.wake_ns;
  for (ScheduledStep& step : actions.steps) device_.Submit(std::move(step));
  if (!actions.steps.empty() && device_.sequences_held() > core_.sequences_live()) {
    violation_ = Violation{kForgets, fmt::format("the device still holds {} sequences, {} live",
                                                 device_.sequences_held(), core_.sequences_live())};
  }
  clients_.See(now_ns, actions.outputs);
  Check(now_ns);
  return !violation_;
}

int64_t Simulation::NextEventNs() const {
  int64_t next_ns = std::min(clients_.next_ns(), wake_ns_);
  next_ns = std::min(next_ns, device_.next_result_ns().value_or(kNever));
  if (plan_.drain_ns && !drain_told_) next_ns = std::min(next_ns, *plan_.drain_ns);
  return next_ns;
}

EngineInputs Simulation::GatherInputs(int64_t now_ns) {
  EngineInputs inputs;
  while (std::optional<StepResult> result = device_.Poll()) {
    inputs.results.push_back(std::move(*result));
  }
  if (plan_.drain_ns && *plan_.drain_ns <= now_ns && !drain_told_) {
    drain_told_ = true;
    inputs.drain_deadline_ns = now_ns + plan_.drain_grace_ns;
    clients_.OnDrain(now_ns + plan_.drain_grace_ns);
  }
  clients_.Act(now_ns, inputs);
  return inputs;
}

void Simulation::Check(int64_t now_ns) {
  const EngineStats stats = core_.stats();
  if (timeline_) timeline_->ObserveTick(now_ns, stats);
  if (!violation_) violation_ = device_.violation();
  if (!violation_) violation_ = clients_.violation();
  if (!violation_ && ticks_idle_ > kTicksIdleMax) {
    violation_ = Violation{kAllEnd, fmt::format("{} ticks in a row had no cause", ticks_idle_)};
  }
  if (!violation_) violation_ = checks_.Check(ticks_, core_, stats, clients_);
}

}  // namespace polysil
