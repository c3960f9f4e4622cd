// TenantAccount, PriorityClass: who waits, and what each tenant has been served, in each class of
// its own. Sequences of one priority are a class; in it every tenant that has sequences has an
// account. RequestQueue keeps them; values, on the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "core/sequence.h"
#include "polysil/sched/policy.h"

namespace polysil {

struct PriorityClass;

struct TenantAccount {
  // Preempted ones first, then as the policy says.
  struct InOrder {
    const SchedulerPolicy* policy;
    bool operator()(const Sequence* left, const Sequence* right) const;
  };

  TenantAccount(PriorityClass& owner, const SchedulerPolicy& policy)
      : priority_class(owner), waiting(InOrder{&policy}) {}

  PriorityClass& priority_class;
  int64_t served = 0;     // in thousandths of a token, as ServiceWeights
  int32_t sequences = 0;  // that wait or run
  int64_t tokens_waiting = 0;
  absl::btree_set<Sequence*, InOrder> waiting;
};

struct PriorityClass {
  std::map<std::string, TenantAccount, std::less<>> accounts;
  std::vector<TenantAccount*> accounts_waiting;  // those where somebody waits, in no order
  TenantAccount* admitted_last = nullptr;
  // What a tenant would have been served that took its share all along: grows by what the class is
  // served, divided by the accounts that have sequences.
  int64_t virtual_served = 0;
  int64_t undivided = 0;  // what is not in virtual_served yet
  int32_t accounts_active = 0;
  int32_t sequences = 0;  // that wait or run
  int32_t sequences_waiting = 0;
  // Turns, see RequestQueue: steps in a row that gave prefill to other classes alone.
  int32_t steps_passed_over = 0;
  bool wants_prefill = false;  // of the step that is built
  bool got_prefill = false;
};

}  // namespace polysil
