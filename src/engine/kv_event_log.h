// KvEventLog: the last events of the prefix cache, numbered, for those who follow it. Bounded: the
// oldest give way, and who comes too late is told how many were lost. Written by the engine thread,
// read by any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "polysil/core/kv_event.h"
#include "polysil/engine/engine.h"

namespace polysil {

class KvEventLog final {
 public:
  // Room for so many events; all of it is taken at once.
  KvEventLog(int32_t events_max, int32_t tokens_per_block);
  KvEventLog(const KvEventLog&) = delete;
  KvEventLog& operator=(const KvEventLog&) = delete;

  void Append(const KvEvents& news);
  // See Engine.
  KvEventBatch Read(uint64_t from, int32_t events_max) const;
  uint64_t Wait(uint64_t number, int64_t timeout_ns) const;

 private:
  size_t Place(uint64_t number) const { return static_cast<size_t>(number % events_.size()); }

  const size_t tokens_per_block_;
  mutable std::mutex mutex_;
  mutable std::condition_variable appended_;
  // Rings, by number; the tokens of an event that stores nothing are not used.
  std::vector<KvEvent> events_;
  std::vector<TokenId> tokens_;
  uint64_t last_ = 0;  // number of the newest; 0: none yet
};

}  // namespace polysil
