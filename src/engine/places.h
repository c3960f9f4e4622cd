// Places: how many sequences are with the engine, from their submission until the client's face has
// their last output, and whose they are. Bounded. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "polysil/base/status.h"
#include "polysil/engine/engine.h"

namespace polysil {

class Places final {
 public:
  // tenants_leave_room: see LeavesRoom.
  Places(int32_t places_max, bool tenants_leave_room)
      : places_max_(places_max), tenants_leave_room_(tenants_leave_room) {}

  // RESOURCE_EXHAUSTED: there are not so many, or the tenant has its share.
  Status TryTake(const std::string& tenant, int32_t sequences);
  void Give(const std::string& tenant, int32_t sequences);
  int32_t taken() const;

  // `sink`, which gives one place back after each final output.
  std::shared_ptr<OutputSink> Placed(std::shared_ptr<OutputSink> sink, std::string tenant);

 private:
  const int32_t places_max_;
  const bool tenants_leave_room_;
  mutable std::mutex mutex_;  // guards what follows
  int32_t taken_ = 0;
  absl::flat_hash_map<std::string, int32_t> taken_by_;  // by tenant, where they leave room
};

}  // namespace polysil
