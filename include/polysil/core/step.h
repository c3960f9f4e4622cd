// The step: what the scheduler hands down and what comes back. Plain data, the protocol between
// engine and executor: a sequence is sent in full once (SequenceStart) and as a difference ever
// after. Chunked prefill, prefix hits, preemption and resumption are the same arithmetic on
// tokens_computed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "polysil/base/check.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/request.h"

namespace polysil {

// What an executor accepts in one step. Data, not a subclass: the one scheduler obeys it.
struct StepLimits {
  int32_t tokens_max = 512;            // rows of a step
  int32_t sequences_max = 64;          // sequences of a step
  int32_t prefill_sequences_max = 64;  // sequences with more than one row
  bool mixes_prefill_and_decode = true;
  std::vector<int32_t> token_buckets;     // rising; rows are padded up to one; empty: any count
  std::vector<int32_t> sequence_buckets;  // likewise for sequences
  int32_t steps_in_flight_max = 1;
  int32_t kv_host_blocks = 0;    // blocks of the host tier; 0: there is none, steps carry no copies
  double block_copy_rows = 1.0;  // what copying one block between tiers costs, in rows of a prefill
};

// Where the bytes of a block lie: in the pool that rows read and write, or in the host tier, a
// second pool that only copies reach.
enum class KvTier : uint8_t { kDevice, kHost };

struct KvPlace {
  KvTier tier = KvTier::kDevice;
  BlockId block;  // of that tier's pool
  friend bool operator==(const KvPlace&, const KvPlace&) = default;
};

// The whole content of one block, put into another.
struct KvCopy {
  KvPlace from;
  KvPlace to;
};

// Sent with the first step that runs a sequence.
struct SequenceStart {
  SequenceId id;
  int32_t sequence_index = 0;  // 0 .. request->sequences - 1; keys the sampler's draws
  std::shared_ptr<const Request> request;
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0.0F;  // natural logarithm, of the model's raw distribution
};

// One position of an output (or of a prompt) with its alternatives, best first.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

struct SequenceResult {
  SequenceId id;
  Status status;  // not OK: this row failed (non-finite logits, say); the others stand
  std::optional<TokenId> token;           // where `sample` was set
  std::optional<TokenLogprobs> logprobs;  // where SamplingParams::logprobs was set
  // Where SamplingParams::prompt_logprobs was set: for each position p > 0 of this chunk, the
  // log-probability of the prompt's token p given those before it.
  std::vector<TokenLogprobs> prompt_logprobs;
};

struct ScheduledSequence {
  SequenceId id;
  // This step computes positions [tokens_computed, tokens_computed + tokens) of prompt and output.
  int32_t tokens_computed = 0;
  int32_t tokens = 0;
  // True on the first run and after a preemption: the executor's block table is cleared first.
  bool blocks_replaced = false;
  bool sample = false;  // choose a token from the last row
  // Then so many of the step's new blocks, from this one on, are appended to the table; see
  // ScheduledStep::BlocksNew.
  int32_t blocks_begin = 0;
  int32_t blocks_new = 0;
};

struct ScheduledStep {
  int64_t step_id = 0;  // rising by one
  std::vector<SequenceStart> started;
  std::vector<SequenceId> ended;  // the executor may forget these; applied before `started`
  std::vector<KvCopy> copies;     // one after the other, all before the first row
  std::vector<ScheduledSequence> sequences;
  int32_t tokens_total = 0;         // sum of sequences[i].tokens
  std::vector<BlockId> blocks_new;  // of all sequences, one after the other
  // Says nothing: memory for StepResult::sequences.
  std::vector<SequenceResult> results_memory;

  // One sequence more, whose table grows by these blocks.
  void Add(ScheduledSequence sequence, std::span<const BlockId> blocks) {
    sequence.blocks_begin = static_cast<int32_t>(blocks_new.size());
    sequence.blocks_new = static_cast<int32_t>(blocks.size());
    blocks_new.insert(blocks_new.end(), blocks.begin(), blocks.end());
    sequences.push_back(sequence);
    tokens_total += sequence.tokens;
  }
  // Whether what `sequence` says of its blocks can be: false for one that is not of this step.
  bool HasBlocksOf(const ScheduledSequence& sequence) const {
    return sequence.blocks_begin >= 0 && sequence.blocks_new >= 0 &&
           int64_t{sequence.blocks_begin} + sequence.blocks_new <=
               static_cast<int64_t>(blocks_new.size());
  }
  // The blocks by which the table of one of `sequences` grows. CHECKs HasBlocksOf.
  std::span<const BlockId> BlocksNew(const ScheduledSequence& sequence) const {
    CHECK(HasBlocksOf(sequence), "sequence {} has blocks [{}, +{}) of {}", sequence.id.value,
          sequence.blocks_begin, sequence.blocks_new, blocks_new.size());
    return std::span(blocks_new)
        .subspan(static_cast<size_t>(sequence.blocks_begin),
                 static_cast<size_t>(sequence.blocks_new));
  }
  // It is empty then, holds nobody's request, and keeps its memory.
  void Clear() {
    step_id = 0;
    started.clear();
    ended.clear();
    copies.clear();
    sequences.clear();
    tokens_total = 0;
    blocks_new.clear();
    results_memory.clear();
  }
};

struct StepResult {
  int64_t step_id = 0;
  Status status;  // not OK: the whole step failed and no sequence of it advanced
  std::vector<SequenceResult> sequences;  // as in the step, same order
  int64_t duration_ns = 0;                // on the device
  ScheduledStep step;  // given back, so that its memory serves a later one; or empty
};

}  // namespace polysil
