#include "core/sequence.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/seeded_bug.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr int kStates = 5;

// Room for so many tokens of output from the start; where there are more, it doubles now and then.
constexpr int32_t kOutputTokensRoom = 4096;

// kLegalMoves[from][to], in the order of SequenceState.
constexpr std::array<std::array<bool, kStates>, kStates> kLegalMoves = {{
    // waiting running transferring preempted finished
    {false, true, true, false, true},    // waiting
    {false, false, true, true, true},    // running
    {true, true, false, false, true},    // transferring: lands, or failed and is computed here
    {false, true, false, false, true},   // preempted
    {false, false, false, false, false}  // finished
}};

}  // namespace

std::string_view Name(SequenceState state) {
  switch (state) {
    case SequenceState::kWaiting:
      return "waiting";
    case SequenceState::kRunning:
      return "running";
    case SequenceState::kTransferring:
      return "transferring";
    case SequenceState::kPreempted:
      return "preempted";
    case SequenceState::kFinished:
      return "finished";
  }
  CHECK(false, "state {} is none", static_cast<int>(state));
}

bool IsLegalMove(SequenceState from, SequenceState to) {
  return kLegalMoves[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

Sequence::Sequence(SequenceId id, int32_t index, std::shared_ptr<const Request> request,
                   int32_t tokens_limit)
    : id_(id), index_(index), request_(std::move(request)), tokens_limit_(tokens_limit) {
  CHECK(tokens_limit_ > prompt_tokens(), "limit {}, prompt {}", tokens_limit_, prompt_tokens());
  const int32_t room = std::min(tokens_limit_ - prompt_tokens(), kOutputTokensRoom);
  tokens_.reserve(request_->prompt.size() + static_cast<size_t>(room));
  tokens_ = request_->prompt;
}

void Sequence::MoveTo(SequenceState next) {
  CHECK(IsLegalMove(state_, next), "sequence {}: {} to {}", id_.value, Name(state_), Name(next));
  state_ = next;
}

int32_t Sequence::rows_remaining() const {
  return std::min(tokens_expected(), tokens_limit_ - 1) - tokens_scheduled_;
}

void Sequence::StartAt(int32_t tokens_cached) {
  CHECK(tokens_scheduled_ == 0 && steps_in_flight_ == 0, "sequence {} has started", id_.value);
  CHECK(tokens_cached >= 0 && tokens_cached < tokens_total(), "{} of {} cached", tokens_cached,
        tokens_total());
  if (SEEDED_BUG(start_at_a_wrong_position) && tokens_cached > 0) --tokens_cached;
  if (preemptions_ == 0) prompt_tokens_cached_ = tokens_cached;
  tokens_computed_ = tokens_cached;
  tokens_scheduled_ = tokens_cached;
}

void Sequence::OnScheduled(int32_t rows, bool sample) {
  CHECK(rows > 0 && rows <= rows_remaining(), "{} rows, {} remain", rows, rows_remaining());
  CHECK(sample == SamplesAfter(rows), "sequence {}: sample is {}", id_.value, sample);
  tokens_scheduled_ += rows;
  samples_in_flight_ += sample ? 1 : 0;
  ++steps_in_flight_;
}

void Sequence::OnStepDone(bool sample) {
  CHECK(steps_in_flight_ > 0, "sequence {} has no step in flight", id_.value);
  --steps_in_flight_;
  samples_in_flight_ -= sample ? 1 : 0;
}

void Sequence::OnComputed(int32_t rows) {
  tokens_computed_ += rows;
  CHECK(tokens_computed_ <= tokens_scheduled_ && tokens_computed_ <= tokens_total(),
        "sequence {}: {} computed, {} scheduled, {} known", id_.value, tokens_computed_,
        tokens_scheduled_, tokens_total());
}

void Sequence::Append(TokenId token) {
  CHECK(tokens_total() < tokens_limit_, "sequence {} is full at {}", id_.value, tokens_limit_);
  tokens_.push_back(token);
}

void Sequence::Rewind() {
  CHECK(steps_in_flight_ == 0, "sequence {} has a step in flight", id_.value);
  tokens_computed_ = 0;
  tokens_scheduled_ = 0;
  ++preemptions_;
  if (!SEEDED_BUG(forget_who_owes_progress)) tokens_at_preemption_ = tokens_total();
}

}  // namespace polysil
