#include "sim/sim_executor.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

// The names of what must hold.
constexpr const char* kLimits = "limits kept";
constexpr const char* kProtocol = "steps tell the executor what it needs";
constexpr const char* kRead = "what is read was written";
constexpr const char* kWrite = "no block is written by two";

int32_t Cap(int32_t limit, const std::vector<int32_t>& buckets) {
  return buckets.empty() ? limit : std::min(limit, buckets.back());
}

int32_t Padded(int32_t count, const std::vector<int32_t>& buckets) {
  const auto bucket = std::ranges::lower_bound(buckets, count);
  return bucket == buckets.end() ? count : *bucket;
}

}  // namespace

TokenId DrawToken(uint64_t seed, int32_t sequence_index, int32_t position, int32_t vocab_size) {
  const uint64_t place = (static_cast<uint64_t>(sequence_index) << 32) |
                         static_cast<uint64_t>(static_cast<uint32_t>(position));
  // The upper half of the bits, scaled: a remainder would cost more than all the rest of a row.
  return static_cast<TokenId>(((Mix(seed, place) >> 32) * static_cast<uint64_t>(vocab_size)) >> 32);
}

SimExecutor::SimExecutor(SimExecutorOptions options, const Clock& clock, DrawStepFault draw_fault)
    : options_(std::move(options)),
      layout_{.layers = 1,
              .kv_heads = 1,
              .head_size = 1,
              .tokens_per_block = options_.tokens_per_block},
      clock_(clock),
      draw_fault_(std::move(draw_fault)),
      contents_(options_.blocks, options_.limits.kv_host_blocks) {}

void SimExecutor::Submit(ScheduledStep step) {
  Expect(static_cast<int32_t>(pending_.size()) < options_.limits.steps_in_flight_max, kLimits,
         "step {} is number {} in flight", step.step_id, pending_.size() + 1);
  ++counts_.steps;
  Expect(step.step_id == counts_.steps, kProtocol, "step {} came as number {}", step.step_id,
         counts_.steps);
  StartAndEnd(step);
  const StepShape shape = CheckLimits(step);
  const StepFault fault = draw_fault_(step);

  StepResult result{.step_id = step.step_id, .status = fault.step};
  result.duration_ns =
      static_cast<int64_t>(static_cast<double>(options_.price.DurationNs(shape)) * fault.slowdown);
  if (fault.lost) {
    result.status = Unavailable("step {} gave no result", step.step_id);
    result.duration_ns = options_.give_up_ns;
  }
  result.sequences = std::move(step.results_memory);
  RunCopies(step);
  // What a row reads is there before the step, and none of its blocks is another's to write.
  rows_.clear();
  for (const ScheduledSequence& row : step.sequences) rows_.push_back(Prepare(step, row));
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const bool fails = !result.status.ok() || std::ranges::count(fault.rows_failing, i) > 0;
    result.sequences.push_back(RunRow(step, step.sequences[i], rows_[i], fails));
  }
  if (!result.status.ok()) {
    result.sequences.clear();
    for (const KvCopy& copy : step.copies) contents_.Spoil(copy.to);
  }

  device_free_ns_ = std::max(device_free_ns_, clock_.NowNs()) + result.duration_ns;
  counts_.busy_ns += result.duration_ns;
  result.step = std::move(step);
  pending_.push_back({device_free_ns_, std::move(result)});
}

std::optional<StepResult> SimExecutor::Poll() {
  if (pending_.empty() || pending_.front().ready_ns > clock_.NowNs()) return std::nullopt;
  StepResult result = std::move(pending_.front().result);
  pending_.pop_front();
  step_known_ = result.step_id;
  return result;
}

std::optional<int64_t> SimExecutor::next_result_ns() const {
  if (pending_.empty()) return std::nullopt;
  return pending_.front().ready_ns;
}

void SimExecutor::RunCopies(const ScheduledStep& step) {
  for (const KvCopy& copy : step.copies) {
    const std::string wrong = contents_.Copy(copy, step.step_id, step_known_);
    if (!Expect(wrong.empty(), kRead, "step {}: {}", step.step_id, wrong)) return;
  }
}

StepShape SimExecutor::CheckLimits(const ScheduledStep& step) {
  const StepLimits& limits = options_.limits;
  StepShape shape;
  int32_t tokens = 0;
  int32_t prefills = 0;
  for (const ScheduledSequence& row : step.sequences) {
    Expect(row.tokens > 0, kLimits, "step {} has a row of {} tokens", step.step_id, row.tokens);
    tokens += row.tokens;
    prefills += row.tokens > 1 ? 1 : 0;
    shape.context_tokens += row.tokens_computed + row.tokens;
  }
  const int32_t sequences = static_cast<int32_t>(step.sequences.size());
  Expect(sequences > 0, kLimits, "step {} is empty", step.step_id);
  Expect(tokens == step.tokens_total, kProtocol, "step {} has {} tokens and says {}", step.step_id,
         tokens, step.tokens_total);
  Expect(tokens <= Cap(limits.tokens_max, limits.token_buckets), kLimits, "step {} has {} tokens",
         step.step_id, tokens);
  Expect(sequences <= Cap(limits.sequences_max, limits.sequence_buckets), kLimits,
         "step {} has {} sequences", step.step_id, sequences);
  Expect(prefills <= limits.prefill_sequences_max, kLimits, "step {} has {} prefills", step.step_id,
         prefills);
  Expect(limits.mixes_prefill_and_decode || prefills == 0 || prefills == sequences, kLimits,
         "step {} mixes {} prefills into {} sequences", step.step_id, prefills, sequences);
  shape.tokens = Padded(tokens, limits.token_buckets);
  shape.sequences = Padded(sequences, limits.sequence_buckets);
  shape.block_copies = static_cast<int64_t>(step.copies.size());
  counts_.tokens += tokens;
  counts_.tokens_padding += shape.tokens - tokens;
  return shape;
}

void SimExecutor::StartAndEnd(const ScheduledStep& step) {
  for (const SequenceId id : step.ended) {
    Expect(held_.erase(id) == 1, kProtocol, "step {} ends sequence {}, which is unknown",
           step.step_id, id.value);
  }
  for (const SequenceStart& start : step.started) {
    auto held = std::make_unique<Held>();
    held->start = start;
    Expect(held_.emplace(start.id, std::move(held)).second, kProtocol, "sequence {} started twice",
           start.id.value);
  }
}

SimExecutor::Held* SimExecutor::Prepare(const ScheduledStep& step, const ScheduledSequence& row) {
  const auto found = held_.find(row.id);
  if (!Expect(found != held_.end(), kProtocol, "step {} runs sequence {}, which is unknown",
              step.step_id, row.id.value)) {
    return nullptr;
  }
  Held& held = *found->second;
  if (!Expect(held.step_id != step.step_id, kProtocol, "step {} has sequence {} twice",
              step.step_id, row.id.value)) {
    return nullptr;
  }
  held.step_id = step.step_id;
  return TakeBlocks(step, row, held) ? &held : nullptr;
}

SequenceResult SimExecutor::RunRow(const ScheduledStep& step, const ScheduledSequence& row,
                                   Held* prepared, bool fails) {
  SequenceResult result{.id = row.id};
  if (prepared == nullptr) return result;
  Held& held = *prepared;
  if (fails || held.broken) {
    Break(row, held);
    result.status = Internal("sequence {} fails in step {}", row.id.value, step.step_id);
    return result;
  }
  if (!ReadPrefix(row, held) || !WriteRows(step, row, held)) return result;
  const bool samples = held.tokens_computed == held.tokens_known();
  Expect(row.sample == samples, kProtocol, "step {}: sequence {} at {} of {}, sample is {}",
         step.step_id, row.id.value, held.tokens_computed, held.tokens_known(), row.sample);
  if (!row.sample) return result;
  result.token = DrawToken(held.start.request->sampling.seed, held.start.sequence_index,
                           held.tokens_known(), options_.vocab_size);
  held.output.push_back(*result.token);
  return result;
}

bool SimExecutor::TakeBlocks(const ScheduledStep& step, const ScheduledSequence& row, Held& held) {
  const int32_t end = row.tokens_computed + row.tokens;
  if (row.blocks_replaced) held.table.clear();
  for (const BlockId block : step.BlocksNew(row)) {
    if (!Expect(contents_.IsBlock({.block = block}), kProtocol,
                "sequence {} is given block {} of {}", row.id.value, block.value,
                options_.blocks)) {
      return false;
    }
    held.table.push_back(contents_.Take(block));
  }
  if (held.broken) return true;
  if (row.blocks_replaced) {
    // The positions that it skips are from the prefix cache: full blocks of just these tokens.
    const int32_t size = options_.tokens_per_block;
    held.fingerprint = 0;
    held.tokens_computed = 0;
    if (!Expect(row.tokens_computed % size == 0 && row.tokens_computed < held.tokens_known() &&
                    row.tokens_computed / size <= static_cast<int32_t>(held.table.size()),
                kProtocol, "sequence {} starts at {} of {} with {} blocks", row.id.value,
                row.tokens_computed, held.tokens_known(), held.table.size())) {
      return false;
    }
    while (held.tokens_computed < row.tokens_computed) {
      held.fingerprint = Extend(held, held.fingerprint, held.tokens_computed, size);
      const std::string wrong =
          contents_.CheckFull(held.table[static_cast<size_t>(held.tokens_computed / size)],
                              {.step_id = step.step_id,
                               .step_known = step_known_,
                               .tokens = size,
                               .fingerprint = held.fingerprint});
      if (!Expect(wrong.empty(), kRead, "step {}, sequence {}: {}", step.step_id, row.id.value,
                  wrong)) {
        return false;
      }
      held.tokens_computed += size;
    }
  }
  return Expect(row.tokens_computed == held.tokens_computed && end <= held.tokens_known(),
                kProtocol, "step {} runs sequence {} from {} to {}, it is at {} of {}",
                step.step_id, row.id.value, row.tokens_computed, end, held.tokens_computed,
                held.tokens_known()) &&
         Expect(end <= static_cast<int32_t>(held.table.size()) * options_.tokens_per_block,
                kProtocol, "step {}: sequence {} has {} blocks for {} tokens", step.step_id,
                row.id.value, held.table.size(), end);
}

bool SimExecutor::ReadPrefix(const ScheduledSequence& row, Held& held) {
  const int32_t size = options_.tokens_per_block;
  const size_t blocks = static_cast<size_t>((row.tokens_computed + size - 1) / size);
  for (size_t i = 0; i < blocks; ++i) {
    if (!contents_.IsUnchanged(held.table[i])) [[unlikely]] {
      return Expect(false, kRead, "block {} of sequence {} was written by another",
                    held.table[i].block.value, row.id.value);
    }
  }
  return true;
}

bool SimExecutor::WriteRows(const ScheduledStep& step, const ScheduledSequence& row, Held& held) {
  const int32_t size = options_.tokens_per_block;
  int32_t left = row.tokens;
  while (left > 0) {
    const int32_t offset = held.tokens_computed % size;
    const int32_t tokens = std::min(left, size - offset);
    const uint64_t after = Extend(held, held.fingerprint, held.tokens_computed, tokens);
    const std::string wrong = contents_.Write(
        held.table[static_cast<size_t>(held.tokens_computed / size)], {.writer = row.id,
                                                                       .step_id = step.step_id,
                                                                       .offset = offset,
                                                                       .tokens = tokens,
                                                                       .before = held.fingerprint,
                                                                       .after = after});
    if (!wrong.empty()) [[unlikely]] {
      return Expect(false, kWrite, "step {}: {}", step.step_id, wrong);
    }
    held.fingerprint = after;
    held.tokens_computed += tokens;
    left -= tokens;
  }
  return true;
}

void SimExecutor::Break(const ScheduledSequence& row, Held& held) {
  held.broken = true;
  failed_.insert(held.start.request->id);
  const int32_t size = options_.tokens_per_block;
  const int32_t end = row.tokens_computed + row.tokens;
  for (int32_t index = row.tokens_computed / size; index * size < end; ++index) {
    if (index >= static_cast<int32_t>(held.table.size())) return;
    contents_.Spoil({.block = held.table[static_cast<size_t>(index)].block});
  }
}

uint64_t SimExecutor::Extend(const Held& held, uint64_t before, int32_t position, int32_t tokens) {
  const std::vector<TokenId>& prompt = held.start.request->prompt;
  const int32_t prompt_tokens = static_cast<int32_t>(prompt.size());
  const int32_t of_prompt = std::clamp(prompt_tokens - position, 0, tokens);
  before = ExtendFingerprint(
      before, position,
      std::span(prompt).subspan(static_cast<size_t>(std::min(position, prompt_tokens)),
                                static_cast<size_t>(of_prompt)));
  if (of_prompt == tokens) return before;
  return ExtendFingerprint(before, position + of_prompt,
                           std::span(held.output)
                               .subspan(static_cast<size_t>(position + of_prompt - prompt_tokens),
                                        static_cast<size_t>(tokens - of_prompt)));
}

}  // namespace polysil
