// RequestQueue: the sequences that wait for blocks and a place, new and preempted ones, bounded,
// and whose turn it is. Borrows them. Owned by Scheduler, on the engine thread.
//
// Higher priority first; among those of one priority, the tenant that was served least, by a
// virtual token counter; among those of one tenant, preempted ones, then as the policy says.
//
// The counter: a tenant's tokens are added up, weighted, as they are scheduled; what is computed
// again after a preemption is not counted again. Who comes while others wait starts where one
// stands that took its share all along, and between those others: nobody saves up service by
// staying away, and new names do not pass one who keeps his for ever. So two tenants of a class
// that both always have somebody waiting differ by at most what is scheduled for one between two
// admissions; docs/configuration.md has the bound.
//
// Turns: a class that wants prefill and sees 16 steps in a row give it to others alone goes first
// until it has got some, so that no priority makes another wait for ever.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "core/sequence.h"
#include "polysil/base/status.h"
#include "polysil/sched/policy.h"
#include "sched/service_weights.h"
#include "sched/tenant_account.h"

namespace polysil {

inline SequenceStanding StandingOf(const Sequence& sequence) {
  return SequenceStanding{.id = sequence.id(), .priority = sequence.priority()};
}

class RequestQueue final {
 public:
  // `policy` must outlive the queue.
  RequestQueue(const SchedulerPolicy& policy, const ServiceWeights& weights, int32_t sequences_max);
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // A new sequence waits. False: the queue is full. It must live until it leaves.
  bool TryPush(Sequence& sequence);
  // One that ran waits again. CHECKs that there is room.
  void PushPreempted(Sequence& sequence);
  // The next of those that `fits` says yes to; null: there is none.
  Sequence* First(absl::FunctionRef<bool(const Sequence&)> fits) const;
  // It runs from now on, with so many tokens found in the cache. CHECKs that it waits here.
  void Admit(Sequence& sequence, int32_t tokens_cached);
  // It is over, whether it waits or runs.
  void Leave(Sequence& sequence);

  // Whether `left` gets prefill rows before `right`; either may wait or run.
  bool IsBefore(const Sequence& left, const Sequence& right) const;
  // Its positions up to `tokens_end` are scheduled.
  void Charge(Sequence& sequence, int32_t tokens_end);

  // One step, for the turns: its beginning, running sequences with prefill to do, those that got
  // rows of it, its end.
  void StartStep();
  void WantPrefill(const Sequence& sequence);
  void GetPrefill(const Sequence& sequence);
  void EndStep();

  int32_t size() const { return size_; }
  int64_t tokens() const { return tokens_; }  // of all that wait
  // How many that wait would be served before a new one of this tenant, if those of other tenants
  // take turns with it.
  int64_t SequencesBefore(int32_t priority, std::string_view tenant) const;
  // What a tenant has here, of all priorities.
  struct Holding {
    int64_t sequences = 0;  // that wait or run
    int64_t tokens_waiting = 0;
  };
  Holding HeldBy(std::string_view tenant) const;

  // INTERNAL where counts and lists disagree.
  Status CheckIntegrity() const;

 private:
  TenantAccount& Open(const Request& request);
  void Add(TenantAccount& account, int64_t service);
  void Insert(Sequence& sequence);
  void Remove(Sequence& sequence);

  const SchedulerPolicy& policy_;
  const ServiceWeights weights_;
  const int32_t sequences_max_;
  std::map<int32_t, PriorityClass> classes_;  // by priority; those that have sequences
  const PriorityClass* due_ = nullptr;        // goes first
  int32_t size_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace polysil
