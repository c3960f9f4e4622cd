// RequestQueue: the sequences that wait for blocks and a place, new and preempted ones, in policy
// order, bounded. Borrows them. Owned by Scheduler, on the engine thread.
#pragma once

#include <cstdint>

#include "absl/container/btree_set.h"
#include "core/sequence.h"
#include "polysil/sched/policy.h"

namespace polysil {

inline SequenceStanding StandingOf(const Sequence& sequence) {
  return SequenceStanding{.id = sequence.id(), .priority = sequence.priority()};
}

class RequestQueue final {
 public:
  // `policy` must outlive the queue.
  RequestQueue(const SchedulerPolicy& policy, int32_t sequences_max);

  // False: the queue is full. The sequence must live until it is removed.
  bool TryPush(Sequence& sequence);
  // The first in order of those that `fits` says yes to; null: there is none.
  template <typename Predicate>
  Sequence* First(Predicate fits) const {
    for (Sequence* sequence : sequences_) {
      if (fits(*sequence)) return sequence;
    }
    return nullptr;
  }
  // CHECKs that it waits here.
  void Remove(Sequence& sequence);
  bool Contains(Sequence& sequence) const { return sequences_.contains(&sequence); }
  int32_t size() const { return static_cast<int32_t>(sequences_.size()); }

 private:
  struct InOrder {
    const SchedulerPolicy* policy;
    bool operator()(const Sequence* left, const Sequence* right) const {
      return policy->IsBefore(StandingOf(*left), StandingOf(*right));
    }
  };

  const int32_t sequences_max_;
  absl::btree_set<Sequence*, InOrder> sequences_;
};

}  // namespace polysil
