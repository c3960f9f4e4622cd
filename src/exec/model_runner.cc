#include "exec/model_runner.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include "polysil/base/check.h"

namespace polysil {
namespace {

// Rows of logits computed at once: enough to use each output weight many times, few enough that the
// logits stay in a cache until they are sampled.
constexpr int32_t kLogitRowsMax = 32;

// Rows by which a row's cost is timed: enough that the weights are not most of it.
constexpr int32_t kTimedRows = 64;
constexpr int32_t kTimings = 3;

// Keeps sizes in 64 bits whatever the model; no use of blocks comes near it.
constexpr int32_t kBlockTokensMax = 4096;

bool HasPenalty(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F ||
         params.frequency_penalty != 0.0F;
}

// The shortest of several.
template <typename Work>
int64_t TimeNs(const Clock& clock, Work work) {
  int64_t shortest_ns = std::numeric_limits<int64_t>::max();
  for (int32_t i = 0; i < kTimings; ++i) {
    const int64_t begin_ns = clock.NowNs();
    work();
    shortest_ns = std::min(shortest_ns, clock.NowNs() - begin_ns);
  }
  return std::max<int64_t>(shortest_ns, 1);
}

}  // namespace

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(std::unique_ptr<Device> device,
                                                           const ModelSpec& spec,
                                                           const ModelWeights& weights,
                                                           const ModelRunnerOptions& options) {
  if (options.limits.tokens_max < 1 || options.limits.sequences_max < 1) {
    return InvalidArgument("a step of at most {} tokens and {} sequences can run nothing",
                           options.limits.tokens_max, options.limits.sequences_max);
  }
  const KvLayout& layout = options.kv_layout;
  if (options.kv_blocks < 1 || layout.tokens_per_block < 1 ||
      layout.tokens_per_block > kBlockTokensMax ||
      layout.tokens_per_block % KvLayout::kKeyGroup != 0) {
    return InvalidArgument(
        "a KV pool of {} blocks of {} tokens is not one of 1 block or more of up to {} tokens, in "
        "whole groups of {}",
        options.kv_blocks, layout.tokens_per_block, kBlockTokensMax, KvLayout::kKeyGroup);
  }
  if (options.limits.kv_host_blocks < 0) {
    return InvalidArgument("a host tier of {} blocks", options.limits.kv_host_blocks);
  }
  const int32_t blocks_max = std::max(options.kv_blocks, options.limits.kv_host_blocks);
  if (layout.block_bytes() > std::numeric_limits<int64_t>::max() / blocks_max) {
    return ResourceExhausted("{} KV blocks of {} bytes are too many", blocks_max,
                             layout.block_bytes());
  }
  std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(device), spec, options));
  RETURN_IF_ERROR(runner->Load(weights));
  return runner;
}

ModelRunner::ModelRunner(std::unique_ptr<Device> device, const ModelSpec& spec,
                         const ModelRunnerOptions& options)
    : device_(std::move(device)), spec_(spec), options_(options), sampler_(spec.vocab_size) {}
ModelRunner::~ModelRunner() = default;

Status ModelRunner::Load(const ModelWeights& weights) {
  const StepLimits& limits = options_.limits;
  ASSIGN_OR_RETURN(decoder_,
                   Decoder::Load(*device_, spec_, weights,
                                 {.tokens_max = limits.tokens_max,
                                  .logit_rows_max = std::min(limits.tokens_max, kLogitRowsMax)}));
  kv_pool_.layout = options_.kv_layout;
  kv_pool_.blocks = options_.kv_blocks;
  ASSIGN_OR_RETURN(kv_memory_,
                   device_->Allocate(options_.kv_blocks * options_.kv_layout.block_bytes()));
  kv_pool_.base = kv_memory_->data();
  if (limits.kv_host_blocks > 0) {
    ASSIGN_OR_RETURN(kv_host_memory_, device_->AllocateHost(limits.kv_host_blocks *
                                                            options_.kv_layout.block_bytes()));
  }
  tokens_.reserve(limits.tokens_max);
  positions_.reserve(limits.tokens_max);
  logit_rows_.reserve(limits.tokens_max);
  rows_.reserve(kLogitRowsMax);
  batch_.reserve(limits.sequences_max);
  attention_.reserve(limits.sequences_max);
  return OkStatus();
}

double ModelRunner::MeasureBlockCopyRows() {
  const int64_t room = int64_t{options_.kv_blocks} * options_.kv_layout.tokens_per_block;
  const auto rows = static_cast<int32_t>(
      std::min<int64_t>({kTimedRows, options_.limits.tokens_max, room, spec_.context_tokens_max}));
  const std::vector<TokenId> tokens(static_cast<size_t>(rows), 0);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<BlockId> blocks;
  for (int32_t block = 0; block * options_.kv_layout.tokens_per_block < rows; ++block) {
    blocks.push_back(BlockId{block});
  }
  const AttentionSequence sequence{.rows = rows, .block_table = blocks};
  const DecoderBatch batch{
      .tokens = tokens, .positions = positions, .sequences = {&sequence, 1}, .pool = &kv_pool_};
  const int64_t rows_ns = TimeNs(clock_, [&] { decoder_->Forward(batch); });
  const int64_t copy_ns = TimeNs(clock_, [&] {
    device_->Copy(kv_host_memory_->data(), kv_memory_->data(), options_.kv_layout.block_bytes());
  });
  return static_cast<double>(copy_ns) * rows / static_cast<double>(rows_ns);
}

StepResult ModelRunner::Run(ScheduledStep step) {
  const int64_t begin_ns = clock_.NowNs();
  StepResult result;
  result.step_id = step.step_id;
  result.sequences = std::move(step.results_memory);
  result.sequences.clear();
  try {
    Apply(step);
    result.status = CheckStep(step);
    if (result.status.ok()) result.status = Compute(step, result);
  } catch (const std::exception& e) {
    result.status = Internal("step {} failed: {}", step.step_id, e.what());
    EndSequencesOf(step, result.status);
  }
  if (!result.status.ok()) result.sequences.clear();
  result.duration_ns = clock_.NowNs() - begin_ns;
  result.step = std::move(step);
  return result;
}

void ModelRunner::Apply(const ScheduledStep& step) {
  for (const SequenceId id : step.ended) sequences_.erase(id);
  for (const SequenceStart& start : step.started) Start(start);
}

void ModelRunner::Start(const SequenceStart& start) {
  const Request& request = *start.request;
  Sequence sequence{.start = start, .tokens = request.prompt};
  sequence.refused = Validate(request.sampling, spec_.vocab_size);
  for (const TokenId id : request.prompt) {
    if (id >= 0 && id < spec_.vocab_size) continue;
    sequence.refused =
        InvalidArgument("the prompt has token {}, the vocabulary {}", id, spec_.vocab_size);
  }
  sequence.tokens.reserve(request.prompt.size() + 64);
  if (HasPenalty(request.sampling)) sequence.counts.emplace(request.prompt);
  if (request.sampling.prompt_logprobs) sequence.prompt_logprobs.resize(request.prompt.size());
  sequences_.insert_or_assign(start.id, std::move(sequence));
}

// Nothing is known of what the step has written.
void ModelRunner::EndSequencesOf(const ScheduledStep& step, const Status& reason) {
  for (const ScheduledSequence& scheduled : step.sequences) {
    const auto found = sequences_.find(scheduled.id);
    if (found != sequences_.end()) found->second.refused = reason;
  }
}

// What the engine must not do; a step that breaks it fails as a whole, with nothing changed.
Status ModelRunner::CheckStep(const ScheduledStep& step) {
  const StepLimits& limits = options_.limits;
  if (static_cast<int64_t>(step.sequences.size()) > limits.sequences_max) {
    return Internal("step {} has {} sequences, at most {} run at once", step.step_id,
                    step.sequences.size(), limits.sequences_max);
  }
  for (const KvCopy& copy : step.copies) RETURN_IF_ERROR(CheckCopy(copy));
  ids_.clear();
  int64_t tokens = 0;
  for (const ScheduledSequence& scheduled : step.sequences) {
    ids_.push_back(scheduled.id);
    const auto found = sequences_.find(scheduled.id);
    if (found == sequences_.end()) {
      return Internal("step {} runs sequence {}, which was never started", step.step_id,
                      scheduled.id.value);
    }
    RETURN_IF_ERROR(CheckSequence(step, scheduled, found->second));
    tokens += scheduled.tokens;
  }
  std::sort(ids_.begin(), ids_.end());
  const auto twice = std::adjacent_find(ids_.begin(), ids_.end());
  if (twice != ids_.end()) {
    return Internal("step {} runs sequence {} twice", step.step_id, twice->value);
  }
  if (tokens > limits.tokens_max) {
    return Internal("step {} has {} tokens, at most {} run at once", step.step_id, tokens,
                    limits.tokens_max);
  }
  return OkStatus();
}

Status ModelRunner::CheckCopy(const KvCopy& copy) const {
  for (const KvPlace& place : {copy.from, copy.to}) {
    const bool on_host = place.tier == KvTier::kHost;
    const int32_t blocks = on_host ? options_.limits.kv_host_blocks : options_.kv_blocks;
    if (place.block.value >= 0 && place.block.value < blocks) continue;
    return Internal("a copy names block {} of the {}, which has {}", place.block.value,
                    on_host ? "host tier" : "pool", blocks);
  }
  if (copy.from.tier != copy.to.tier) return OkStatus();
  return Internal("a copy stays within a tier");
}

Status ModelRunner::CheckSequence(const ScheduledStep& step, const ScheduledSequence& scheduled,
                                  const Sequence& sequence) const {
  if (!step.HasBlocksOf(scheduled)) {
    return Internal("sequence {} is given blocks [{}, +{}) of a step that has {}",
                    scheduled.id.value, scheduled.blocks_begin, scheduled.blocks_new,
                    step.blocks_new.size());
  }
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  const int64_t end = int64_t{scheduled.tokens_computed} + scheduled.tokens;
  // The engine did not know, when it built this step, that the token before would never come.
  if (!sequence.refused.ok() && scheduled.tokens > 0) return OkStatus();
  if (scheduled.tokens_computed < 0 || scheduled.tokens < 1 || end > known) {
    return Internal("sequence {} is to compute positions [{}, {}), but has {} tokens",
                    scheduled.id.value, scheduled.tokens_computed, end, known);
  }
  if (scheduled.sample && end != known) {
    return Internal("sequence {} is to choose a token after position {}, but has {} tokens",
                    scheduled.id.value, end - 1, known);
  }
  const std::span<const BlockId> blocks_new = step.BlocksNew(scheduled);
  const size_t blocks =
      (scheduled.blocks_replaced ? 0 : sequence.blocks.size()) + blocks_new.size();
  if (static_cast<int64_t>(blocks) * options_.kv_layout.tokens_per_block < end) {
    return Internal("sequence {} has {} blocks of {} tokens for {} positions", scheduled.id.value,
                    blocks, options_.kv_layout.tokens_per_block, end);
  }
  for (const BlockId block : blocks_new) {
    if (block.value < 0 || block.value >= options_.kv_blocks) {
      return Internal("sequence {} is given block {} of {}", scheduled.id.value, block.value,
                      options_.kv_blocks);
    }
  }
  return OkStatus();
}

Status ModelRunner::Compute(const ScheduledStep& step, StepResult& result) {
  RunCopies(step);
  if (step.sequences.empty()) return OkStatus();
  batch_.clear();
  ExtendBlocks(step);
  BuildBatch(step, result);
  if (!tokens_.empty()) {
    decoder_->Forward(
        {.tokens = tokens_, .positions = positions_, .sequences = attention_, .pool = &kv_pool_});
    RunLogitRows(result);
  }
  Finish(step, result);
  return OkStatus();
}

void ModelRunner::RunCopies(const ScheduledStep& step) {
  for (const KvCopy& copy : step.copies) {
    device_->Copy(BytesOf(copy.from), BytesOf(copy.to), options_.kv_layout.block_bytes());
  }
}

std::byte* ModelRunner::BytesOf(const KvPlace& place) {
  std::byte* const base =
      place.tier == KvTier::kHost ? kv_host_memory_->data() : kv_memory_->data();
  return base + place.block.value * options_.kv_layout.block_bytes();
}

void ModelRunner::ExtendBlocks(const ScheduledStep& step) {
  for (const ScheduledSequence& scheduled : step.sequences) {
    Sequence& sequence = sequences_.at(scheduled.id);
    if (scheduled.blocks_replaced) sequence.blocks.clear();
    const std::span<const BlockId> blocks_new = step.BlocksNew(scheduled);
    sequence.blocks.insert(sequence.blocks.end(), blocks_new.begin(), blocks_new.end());
    batch_.push_back(&sequence);
  }
}

void ModelRunner::BuildBatch(const ScheduledStep& step, StepResult& result) {
  tokens_.clear();
  positions_.clear();
  attention_.clear();
  logit_rows_.clear();
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const ScheduledSequence& scheduled = step.sequences[i];
    const Sequence& sequence = *batch_[i];
    SequenceResult& out = result.sequences.emplace_back();
    out.id = scheduled.id;
    out.status = sequence.refused;
    if (!out.status.ok()) continue;
    const auto row_begin = static_cast<int32_t>(tokens_.size());
    const auto begin = sequence.tokens.begin() + scheduled.tokens_computed;
    tokens_.insert(tokens_.end(), begin, begin + scheduled.tokens);
    positions_.resize(tokens_.size());
    std::iota(positions_.begin() + row_begin, positions_.end(), scheduled.tokens_computed);
    attention_.push_back({.row_begin = row_begin,
                          .rows = scheduled.tokens,
                          .position_begin = scheduled.tokens_computed,
                          .block_table = sequence.blocks});
    WantLogits(scheduled, sequence, row_begin, i);
  }
}

void ModelRunner::WantLogits(const ScheduledSequence& scheduled, const Sequence& sequence,
                             int32_t row_begin, size_t result_index) {
  // The row of position q predicts the token at q + 1. Log-probabilities beyond this chunk's last
  // position are for the next chunk, which has no such row.
  const int32_t end = scheduled.tokens_computed + scheduled.tokens;
  const auto prompt_logprobs = static_cast<int32_t>(sequence.prompt_logprobs.size());
  for (int32_t p = scheduled.tokens_computed + 1; p < std::min(end + 1, prompt_logprobs); ++p) {
    if (sequence.prompt_logprobs[p]) continue;
    logit_rows_.push_back({.row = row_begin + p - 1 - scheduled.tokens_computed,
                           .result_index = result_index,
                           .position = p});
  }
  if (scheduled.sample) {
    logit_rows_.push_back({.row = row_begin + scheduled.tokens - 1,
                           .result_index = result_index,
                           .position = end,
                           .sample = true});
  }
}

void ModelRunner::RunLogitRows(StepResult& result) {
  const auto rows_max = static_cast<size_t>(decoder_->options().logit_rows_max);
  const auto vocab = static_cast<size_t>(spec_.vocab_size);
  for (size_t begin = 0; begin < logit_rows_.size(); begin += rows_max) {
    const size_t end = std::min(begin + rows_max, logit_rows_.size());
    rows_.clear();
    for (size_t i = begin; i < end; ++i) rows_.push_back(logit_rows_[i].row);
    const std::span<const float> logits = decoder_->Logits(rows_);
    for (size_t i = begin; i < end; ++i) {
      SequenceResult& out = result.sequences[logit_rows_[i].result_index];
      if (!out.status.ok()) continue;
      out.status = UseLogits(logit_rows_[i], logits.subspan((i - begin) * vocab, vocab), out);
    }
  }
}

Status ModelRunner::UseLogits(const LogitRow& wanted, std::span<const float> logits,
                              SequenceResult& result) {
  Sequence& sequence = *batch_[wanted.result_index];
  const Request& request = *sequence.start.request;
  if (!wanted.sample) {
    ASSIGN_OR_RETURN(sequence.prompt_logprobs[wanted.position],
                     sampler_.Logprobs(logits, sequence.tokens[wanted.position],
                                       *request.sampling.prompt_logprobs));
    return OkStatus();
  }
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  ASSIGN_OR_RETURN(SampledToken sampled,
                   sampler_.Sample(logits, {.params = &request.sampling,
                                            .end_token_ids = request.end_token_ids,
                                            .counts = sequence.counts ? &*sequence.counts : nullptr,
                                            .sequence_index = sequence.start.sequence_index,
                                            .position = wanted.position,
                                            .output_tokens = wanted.position - prompt}));
  result.token = sampled.id;
  result.logprobs = std::move(sampled.logprobs);
  return OkStatus();
}

// Last, so that a step that fails before has advanced no sequence. First what may still throw.
void ModelRunner::Finish(const ScheduledStep& step, StepResult& result) {
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    SequenceResult& out = result.sequences[i];
    Sequence& sequence = *batch_[i];
    if (out.status.ok()) out.status = DeliverPromptLogprobs(step.sequences[i], sequence, out);
    if (!out.status.ok()) {
      out.token.reset();
      out.logprobs.reset();
      sequence.refused = out.status;
    }
    if (out.token && sequence.tokens.size() == sequence.tokens.capacity()) {
      sequence.tokens.reserve(2 * sequence.tokens.size());
    }
  }
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    if (!result.sequences[i].token) continue;
    const TokenId token = *result.sequences[i].token;
    if (batch_[i]->counts) batch_[i]->counts->AddOutput(token);
    batch_[i]->tokens.push_back(token);
  }
}

Status ModelRunner::DeliverPromptLogprobs(const ScheduledSequence& scheduled,
                                          const Sequence& sequence, SequenceResult& result) const {
  const auto prompt = static_cast<int32_t>(sequence.prompt_logprobs.size());
  const int32_t end = std::min(scheduled.tokens_computed + scheduled.tokens, prompt);
  for (int32_t p = std::max(1, scheduled.tokens_computed); p < end; ++p) {
    if (!sequence.prompt_logprobs[p]) {
      return Internal(
          "sequence {} begins at position {}, so the log-probability of its prompt's "
          "token {} cannot be told",
          scheduled.id.value, scheduled.tokens_computed, p);
    }
    result.prompt_logprobs.push_back(*sequence.prompt_logprobs[p]);
  }
  return OkStatus();
}

}  // namespace polysil
