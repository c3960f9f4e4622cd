#include "engine/places.h"

#include <utility>

#include "base/leaves_room.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

class PlacedSink final : public OutputSink {
 public:
  PlacedSink(Places& places, std::shared_ptr<OutputSink> sink, std::string tenant)
      : places_(places), sink_(std::move(sink)), tenant_(std::move(tenant)) {}

  void OnOutput(SequenceOutput output) override {
    const bool finished = output.finish.has_value();
    sink_->OnOutput(std::move(output));
    if (finished) places_.Give(tenant_, 1);
  }

 private:
  Places& places_;
  const std::shared_ptr<OutputSink> sink_;
  const std::string tenant_;
};

}  // namespace

Status Places::TryTake(const std::string& tenant, int32_t sequences) {
  std::lock_guard lock(mutex_);
  const int64_t left = int64_t{places_max_} - taken_;
  if (sequences > left) {
    return ResourceExhausted(
        "{} sequences run or wait and {} more were asked for, {} are the most, try later", taken_,
        sequences, places_max_);
  }
  if (tenants_leave_room_) {
    const auto found = taken_by_.find(tenant);
    const int64_t held = found == taken_by_.end() ? 0 : found->second;
    if (!LeavesRoom(held, sequences, left)) {
      return ResourceExhausted(
          "{} sequences of this tenant run or wait and {} more were asked for; {} places are left "
          "for all, and a tenant may have {} times as many as are left",
          held, sequences, left, kRoomShare);
    }
    taken_by_[tenant] += sequences;
  }
  taken_ += sequences;
  return OkStatus();
}

void Places::Give(const std::string& tenant, int32_t sequences) {
  std::lock_guard lock(mutex_);
  taken_ -= sequences;
  CHECK(taken_ >= 0, "{} places are taken", taken_);
  if (!tenants_leave_room_) return;
  const auto found = taken_by_.find(tenant);
  CHECK(found != taken_by_.end() && found->second >= sequences, "a tenant has too few places");
  if ((found->second -= sequences) == 0) taken_by_.erase(found);
}

int32_t Places::taken() const {
  std::lock_guard lock(mutex_);
  return taken_;
}

std::shared_ptr<OutputSink> Places::Placed(std::shared_ptr<OutputSink> sink, std::string tenant) {
  return std::make_shared<PlacedSink>(*this, std::move(sink), std::move(tenant));
}

}  // namespace polysil
