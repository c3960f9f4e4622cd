#include "sched/request_queue.h"

#include "polysil/base/check.h"

namespace polysil {

RequestQueue::RequestQueue(const SchedulerPolicy& policy, int32_t sequences_max)
    : sequences_max_(sequences_max), sequences_(InOrder{&policy}) {}

bool RequestQueue::TryPush(Sequence& sequence) {
  if (size() >= sequences_max_) return false;
  CHECK(sequences_.insert(&sequence).second, "sequence {} waits already", sequence.id().value);
  return true;
}

void RequestQueue::Remove(Sequence& sequence) {
  CHECK(sequences_.erase(&sequence) == 1, "sequence {} does not wait", sequence.id().value);
}

}  // namespace polysil
