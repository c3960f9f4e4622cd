// Sequence: one token stream of a request (n > 1 makes several) and its place in life. It knows
// which of its positions are computed, not where their KV lies, and nothing of devices or clocks.
// Owned by EngineCore, moved along by Scheduler, both on the engine thread.
//
//   [0, tokens_computed)                  on the device, confirmed by a step result
//   [tokens_computed, tokens_scheduled)   in steps in flight
//   [tokens_scheduled, tokens_expected)   still to be scheduled
//
// tokens_expected counts the tokens that steps in flight will choose besides those known.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/core/request.h"

namespace polysil {

enum class SequenceState {
  kWaiting,       // in the queue, holds no block
  kRunning,       // holds blocks, takes part in steps
  kTransferring,  // its KV is on the way from or to another replica
  kPreempted,     // in the queue again: gave its blocks up, keeps its tokens
  kFinished,      // has had its final output
};

std::string_view Name(SequenceState state);
// The one table of legal moves.
bool IsLegalMove(SequenceState from, SequenceState to);

struct TenantAccount;  // of src/sched

// What Scheduler keeps with a sequence; nobody else looks at it.
struct SchedulerEntry {
  BlockTableId table;
  int32_t blocks_sent = 0;      // of the table, known to the executor
  bool started = false;         // the executor has its SequenceStart
  int64_t held_back_build = 0;  // takes no part in what this call of BuildStep builds
  TenantAccount* account = nullptr;
  int32_t tokens_charged = 0;  // positions [0, tokens_charged) are in the account
};

class Sequence final {
 public:
  // tokens_limit: prompt and output end at this many tokens; above the prompt's length.
  Sequence(SequenceId id, int32_t index, std::shared_ptr<const Request> request,
           int32_t tokens_limit);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  SequenceId id() const { return id_; }
  int32_t index() const { return index_; }
  const std::shared_ptr<const Request>& request() const { return request_; }
  int32_t priority() const { return request_->priority; }

  SequenceState state() const { return state_; }
  // CHECKs that the move is legal.
  void MoveTo(SequenceState next);

  // Prompt, then output as far as it is known.
  std::span<const TokenId> tokens() const { return tokens_; }
  int32_t tokens_total() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t prompt_tokens() const { return static_cast<int32_t>(request_->prompt.size()); }
  int32_t output_tokens() const { return tokens_total() - prompt_tokens(); }
  int32_t tokens_limit() const { return tokens_limit_; }
  int32_t tokens_computed() const { return tokens_computed_; }
  int32_t tokens_scheduled() const { return tokens_scheduled_; }
  int32_t tokens_expected() const { return tokens_total() + samples_in_flight_; }
  int32_t steps_in_flight() const { return steps_in_flight_; }

  // Rows a next step could take. The last token before the limit is never computed.
  int32_t rows_remaining() const;
  // True where a chunk of so many rows ends at the last token, so that the next can be chosen.
  bool SamplesAfter(int32_t rows) const { return tokens_scheduled_ + rows == tokens_expected(); }

  // Admission: the first tokens_cached positions are on the device already.
  void StartAt(int32_t tokens_cached);
  // A step with `rows` more positions was submitted; `sample`: it will choose a token.
  void OnScheduled(int32_t rows, bool sample);
  // That step came back, whatever it brought.
  void OnStepDone(bool sample);
  // ... and it succeeded.
  void OnComputed(int32_t rows);
  void Append(TokenId token);
  // Preemption: nothing is on the device any more. Only without a step in flight.
  void Rewind();

  SchedulerEntry& scheduler_entry() { return scheduler_entry_; }
  const SchedulerEntry& scheduler_entry() const { return scheduler_entry_; }

  // Found in the prefix cache when it first ran.
  int32_t prompt_tokens_cached() const { return prompt_tokens_cached_; }
  int32_t preemptions() const { return preemptions_; }
  // True after a resumption until a further token was chosen: may not be preempted again.
  bool owes_progress() const { return preemptions_ > 0 && tokens_total() == tokens_at_preemption_; }

 private:
  const SequenceId id_;
  const int32_t index_;
  const std::shared_ptr<const Request> request_;
  const int32_t tokens_limit_;
  SequenceState state_ = SequenceState::kWaiting;
  SchedulerEntry scheduler_entry_;
  std::vector<TokenId> tokens_;
  int32_t tokens_computed_ = 0;
  int32_t tokens_scheduled_ = 0;
  int32_t samples_in_flight_ = 0;
  int32_t steps_in_flight_ = 0;
  int32_t prompt_tokens_cached_ = 0;
  int32_t preemptions_ = 0;
  int32_t tokens_at_preemption_ = 0;
};

}  // namespace polysil
