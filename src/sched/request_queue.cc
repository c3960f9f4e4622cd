#include "sched/request_queue.h"

#include <algorithm>

#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr int32_t kStepsPassedOverMax = 16;
// Accounts without a sequence are kept, so that leaving and coming again frees nobody of what was
// served; but not without end, should somebody make up names.
constexpr size_t kAccountsIdleMax = 1024;

// Where an account stands that begins to wait.
int64_t ServedAtStart(const PriorityClass& priority_class) {
  if (priority_class.accounts_waiting.empty()) {
    // The one who was last admitted has waited last.
    const TenantAccount* last = priority_class.admitted_last;
    return last == nullptr ? 0 : last->served;
  }
  const auto [least, most] =
      std::ranges::minmax(priority_class.accounts_waiting, {}, &TenantAccount::served);
  return std::clamp(priority_class.virtual_served, least->served, most->served);
}

// The one that has been served least, and so has the least claim that would be forgotten.
void ForgetIdle(PriorityClass& priority_class) {
  auto least = priority_class.accounts.end();
  for (auto account = priority_class.accounts.begin(); account != priority_class.accounts.end();
       ++account) {
    if (account->second.sequences > 0 || &account->second == priority_class.admitted_last) continue;
    if (least == priority_class.accounts.end() || account->second.served < least->second.served) {
      least = account;
    }
  }
  if (least != priority_class.accounts.end()) priority_class.accounts.erase(least);
}

Sequence* FirstOf(const TenantAccount& account, absl::FunctionRef<bool(const Sequence&)> fits) {
  for (Sequence* sequence : account.waiting) {
    if (fits(*sequence)) return sequence;
  }
  return nullptr;
}

// Whether an account's next goes before another's of the same priority.
bool GoesBefore(const TenantAccount& left, const Sequence& left_next, const TenantAccount& right,
                const Sequence& right_next, const SchedulerPolicy& policy) {
  const bool left_ran = left_next.state() == SequenceState::kPreempted;
  const bool right_ran = right_next.state() == SequenceState::kPreempted;
  if (left_ran != right_ran) return left_ran;
  if (left.served != right.served) return left.served < right.served;
  return policy.IsBefore(StandingOf(left_next), StandingOf(right_next));
}

Sequence* FirstOf(const PriorityClass& priority_class, const SchedulerPolicy& policy,
                  absl::FunctionRef<bool(const Sequence&)> fits) {
  const TenantAccount* first = nullptr;
  Sequence* first_next = nullptr;
  for (const TenantAccount* account : priority_class.accounts_waiting) {
    Sequence* next = FirstOf(*account, fits);
    if (next == nullptr) continue;
    if (first == nullptr || GoesBefore(*account, *next, *first, *first_next, policy)) {
      first = account;
      first_next = next;
    }
  }
  return first_next;
}

}  // namespace

bool TenantAccount::InOrder::operator()(const Sequence* left, const Sequence* right) const {
  const bool left_ran = left->state() == SequenceState::kPreempted;
  const bool right_ran = right->state() == SequenceState::kPreempted;
  if (left_ran != right_ran) return left_ran;
  return policy->IsBefore(StandingOf(*left), StandingOf(*right));
}

RequestQueue::RequestQueue(const SchedulerPolicy& policy, const ServiceWeights& weights,
                           int32_t sequences_max)
    : policy_(policy), weights_(weights), sequences_max_(sequences_max) {}

bool RequestQueue::TryPush(Sequence& sequence) {
  if (size_ >= sequences_max_) return false;
  TenantAccount& account = Open(*sequence.request());
  PriorityClass& priority_class = account.priority_class;
  if (account.waiting.empty()) {
    priority_class.virtual_served = ServedAtStart(priority_class);
    account.served = std::max(account.served, priority_class.virtual_served);
  }
  if (account.sequences == 0) ++priority_class.accounts_active;
  ++account.sequences;
  ++priority_class.sequences;
  sequence.scheduler_entry().account = &account;
  Insert(sequence);
  return true;
}

void RequestQueue::PushPreempted(Sequence& sequence) {
  CHECK(size_ < sequences_max_, "no place to wait for sequence {}", sequence.id().value);
  Insert(sequence);
}

Sequence* RequestQueue::First(absl::FunctionRef<bool(const Sequence&)> fits) const {
  if (due_ != nullptr && due_->sequences_waiting > 0) {
    if (Sequence* first = FirstOf(*due_, policy_, fits)) return first;
  }
  for (auto entry = classes_.rbegin(); entry != classes_.rend(); ++entry) {
    if (entry->second.sequences_waiting == 0) continue;
    if (Sequence* first = FirstOf(entry->second, policy_, fits)) return first;
  }
  return nullptr;
}

void RequestQueue::Admit(Sequence& sequence, int32_t tokens_cached) {
  Remove(sequence);
  SchedulerEntry& entry = sequence.scheduler_entry();
  entry.account->priority_class.admitted_last = entry.account;
  if (tokens_cached <= entry.tokens_charged) return;
  Add(*entry.account, weights_.cached * (tokens_cached - entry.tokens_charged));
  entry.tokens_charged = tokens_cached;
}

void RequestQueue::Leave(Sequence& sequence) {
  TenantAccount& account = *sequence.scheduler_entry().account;
  PriorityClass& priority_class = account.priority_class;
  if (sequence.state() != SequenceState::kRunning) Remove(sequence);
  sequence.scheduler_entry().account = nullptr;
  if (--account.sequences == 0) --priority_class.accounts_active;
  if (--priority_class.sequences > 0) return;
  // Nobody is left who could have a claim on another.
  if (due_ == &priority_class) due_ = nullptr;
  classes_.erase(sequence.priority());
}

bool RequestQueue::IsBefore(const Sequence& left, const Sequence& right) const {
  const TenantAccount& left_account = *left.scheduler_entry().account;
  const TenantAccount& right_account = *right.scheduler_entry().account;
  const PriorityClass* left_class = &left_account.priority_class;
  const PriorityClass* right_class = &right_account.priority_class;
  if (left_class != right_class) {
    if (left_class == due_ || right_class == due_) return left_class == due_;
    return left.priority() > right.priority();
  }
  if (left_account.served != right_account.served) {
    return left_account.served < right_account.served;
  }
  return policy_.IsBefore(StandingOf(left), StandingOf(right));
}

void RequestQueue::Charge(Sequence& sequence, int32_t tokens_end) {
  SchedulerEntry& entry = sequence.scheduler_entry();
  const int32_t tokens = tokens_end - entry.tokens_charged;
  if (tokens <= 0) return;
  const int32_t prompt_tokens =
      std::clamp(sequence.prompt_tokens() - entry.tokens_charged, 0, tokens);
  Add(*entry.account,
      weights_.prefill * prompt_tokens + weights_.decode * (tokens - prompt_tokens));
  entry.tokens_charged = tokens_end;
}

void RequestQueue::StartStep() {
  for (auto& [priority, priority_class] : classes_) {
    priority_class.wants_prefill = priority_class.sequences_waiting > 0;
    priority_class.got_prefill = false;
  }
}

void RequestQueue::WantPrefill(const Sequence& sequence) {
  sequence.scheduler_entry().account->priority_class.wants_prefill = true;
}

void RequestQueue::GetPrefill(const Sequence& sequence) {
  sequence.scheduler_entry().account->priority_class.got_prefill = true;
}

void RequestQueue::EndStep() {
  const bool any =
      std::ranges::any_of(classes_, [](const auto& entry) { return entry.second.got_prefill; });
  if (!any) return;
  due_ = nullptr;
  for (auto& [priority, priority_class] : classes_) {
    int32_t& passed_over = priority_class.steps_passed_over;
    const bool passes = priority_class.wants_prefill && !priority_class.got_prefill;
    passed_over = passes ? passed_over + 1 : 0;
    if (passed_over < kStepsPassedOverMax) continue;
    if (due_ == nullptr || passed_over > due_->steps_passed_over) due_ = &priority_class;
  }
}

int64_t RequestQueue::SequencesBefore(int32_t priority, std::string_view tenant) const {
  int64_t before = 0;
  for (auto entry = classes_.upper_bound(priority); entry != classes_.end(); ++entry) {
    before += entry->second.sequences_waiting;
  }
  const auto found = classes_.find(priority);
  if (found == classes_.end()) return before;
  const PriorityClass& own_class = found->second;
  const auto own = own_class.accounts.find(tenant);
  const bool known = own != own_class.accounts.end();
  const int64_t own_waiting = known ? static_cast<int64_t>(own->second.waiting.size()) : 0;
  for (const TenantAccount* account : own_class.accounts_waiting) {
    const int64_t waiting = static_cast<int64_t>(account->waiting.size());
    const bool is_own = known && account == &own->second;
    before += is_own ? waiting : std::min(waiting, own_waiting + 1);
  }
  return before;
}

RequestQueue::Holding RequestQueue::HeldBy(std::string_view tenant) const {
  Holding held;
  for (const auto& [priority, priority_class] : classes_) {
    const auto found = priority_class.accounts.find(tenant);
    if (found == priority_class.accounts.end()) continue;
    held.sequences += found->second.sequences;
    held.tokens_waiting += found->second.tokens_waiting;
  }
  return held;
}

Status RequestQueue::CheckIntegrity() const {
  int32_t size = 0;
  int64_t tokens = 0;
  for (const auto& [priority, priority_class] : classes_) {
    int32_t waiting = 0;
    int32_t sequences = 0;
    size_t accounts_waiting = 0;
    int32_t accounts_active = 0;
    for (const auto& [tenant, account] : priority_class.accounts) {
      waiting += static_cast<int32_t>(account.waiting.size());
      sequences += account.sequences;
      accounts_waiting += account.waiting.empty() ? 0 : 1;
      accounts_active += account.sequences == 0 ? 0 : 1;
      int64_t tokens_waiting = 0;
      for (const Sequence* sequence : account.waiting) tokens_waiting += sequence->tokens_total();
      if (tokens_waiting != account.tokens_waiting) {
        return Internal("a tenant of priority {} has {} tokens waiting, {} counted", priority,
                        tokens_waiting, account.tokens_waiting);
      }
      tokens += tokens_waiting;
    }
    if (waiting != priority_class.sequences_waiting || sequences != priority_class.sequences ||
        waiting > sequences || sequences == 0 ||
        accounts_active != priority_class.accounts_active ||
        accounts_waiting != priority_class.accounts_waiting.size()) {
      return Internal("priority {} has {} sequences, {} counted; {} wait, {} counted", priority,
                      sequences, priority_class.sequences, waiting,
                      priority_class.sequences_waiting);
    }
    size += waiting;
  }
  if (size != size_ || tokens != tokens_) {
    return Internal("{} sequences wait, {} counted, with {} tokens, {} counted", size, size_,
                    tokens, tokens_);
  }
  return OkStatus();
}

TenantAccount& RequestQueue::Open(const Request& request) {
  PriorityClass& priority_class = classes_[request.priority];
  const auto found = priority_class.accounts.find(request.tenant);
  if (found != priority_class.accounts.end()) return found->second;
  const size_t sequences = static_cast<size_t>(priority_class.sequences);
  if (priority_class.accounts.size() >= sequences + kAccountsIdleMax) ForgetIdle(priority_class);
  return priority_class.accounts.try_emplace(request.tenant, priority_class, policy_).first->second;
}

void RequestQueue::Add(TenantAccount& account, int64_t service) {
  account.served += service;
  PriorityClass& priority_class = account.priority_class;
  priority_class.undivided += service;
  priority_class.virtual_served += priority_class.undivided / priority_class.accounts_active;
  priority_class.undivided %= priority_class.accounts_active;
}

void RequestQueue::Insert(Sequence& sequence) {
  TenantAccount& account = *sequence.scheduler_entry().account;
  if (account.waiting.empty()) account.priority_class.accounts_waiting.push_back(&account);
  CHECK(account.waiting.insert(&sequence).second, "sequence {} waits already", sequence.id().value);
  ++account.priority_class.sequences_waiting;
  ++size_;
  account.tokens_waiting += sequence.tokens_total();
  tokens_ += sequence.tokens_total();
}

void RequestQueue::Remove(Sequence& sequence) {
  TenantAccount& account = *sequence.scheduler_entry().account;
  CHECK(account.waiting.erase(&sequence) == 1, "sequence {} does not wait", sequence.id().value);
  if (account.waiting.empty()) std::erase(account.priority_class.accounts_waiting, &account);
  --account.priority_class.sequences_waiting;
  --size_;
  account.tokens_waiting -= sequence.tokens_total();
  tokens_ -= sequence.tokens_total();
}

}  // namespace polysil
