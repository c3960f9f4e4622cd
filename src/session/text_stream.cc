#include "session/text_stream.h"

#include "polysil/base/check.h"

namespace polysil {

// One engine request's way back; knows which prompt it answers.
class TextStream::PromptSink final : public OutputSink {
 public:
  PromptSink(std::shared_ptr<TextStream> stream, size_t prompt_index)
      : stream_(std::move(stream)), prompt_index_(prompt_index) {}

  void OnOutput(SequenceOutput output) override {
    stream_->OnOutput(prompt_index_, std::move(output));
  }

 private:
  const std::shared_ptr<TextStream> stream_;
  const size_t prompt_index_;
};

TextStream::TextStream(Engine& engine, SequenceTextPlan plan, std::vector<PromptText> prompts,
                       int32_t sequences, std::shared_ptr<TextSink> sink,
                       std::shared_ptr<CallLedger> ledger)
    : engine_(engine),
      plan_(std::move(plan)),
      prompts_(std::move(prompts)),
      sequences_per_prompt_(sequences),
      ledger_(std::move(ledger)),
      sink_(std::move(sink)) {
  sequences_unfinished_ = prompts_.size() * static_cast<size_t>(sequences);
  sequences_.reserve(sequences_unfinished_);
  for (size_t p = 0; p < prompts_.size(); ++p) {
    for (int32_t s = 0; s < sequences; ++s) {
      sequences_.emplace_back(plan_, prompts_[p], static_cast<int32_t>(p), s);
    }
  }
}

Status TextStream::Submit(std::vector<Request> requests) {
  CHECK(requests.size() == prompts_.size(), "{} requests for {} prompts", requests.size(),
        prompts_.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    StatusOr<RequestId> id =
        engine_.Submit(std::move(requests[i]), std::make_shared<PromptSink>(shared_from_this(), i));
    if (!id.ok()) {
      {
        std::lock_guard lock(mutex_);
        phase_ = Phase::kEnded;
        early_.clear();
        sink_.reset();
      }
      for (const RequestId accepted : request_ids_) engine_.Cancel(accepted);
      return id.status();
    }
    request_ids_.push_back(*id);
  }
  EngineCalls calls;
  {
    std::lock_guard lock(mutex_);
    phase_ = Phase::kRunning;
    for (auto& [prompt_index, output] : early_) Deliver(prompt_index, std::move(output), calls);
    early_ = {};
  }
  Make(calls);
  return OkStatus();
}

void TextStream::Cancel() {
  if (cancelled_.exchange(true)) return;
  for (const RequestId id : request_ids_) engine_.Cancel(id);
}

void TextStream::OnOutput(size_t prompt_index, SequenceOutput output) {
  EngineCalls calls;
  {
    std::lock_guard lock(mutex_);
    if (phase_ == Phase::kSubmitting) {
      early_.emplace_back(prompt_index, std::move(output));
      return;
    }
    Deliver(prompt_index, std::move(output), calls);
  }
  Make(calls);
}

void TextStream::Deliver(size_t prompt_index, SequenceOutput output, EngineCalls& calls) {
  if (phase_ == Phase::kEnded) return;
  CHECK(output.sequence_index >= 0 && output.sequence_index < sequences_per_prompt_,
        "sequence {} of {}", output.sequence_index, sequences_per_prompt_);
  const int32_t sequence_index = output.sequence_index;
  SequenceText& text = sequence(prompt_index, sequence_index);
  if (text.finished()) return;

  const std::optional<FinishReason> finish = output.finish;
  const SequenceLatency latency = output.latency;
  const bool has_token = !output.tokens.empty() && !plan_.discard_output;
  Status failure = std::move(output.status);
  std::optional<TextDelta> delta = text.Push(std::move(output));
  if (text.finished()) --sequences_unfinished_;
  const bool stopped = text.stopped_by_string();
  if (stopped && !finish) calls.stops.emplace_back(request_ids_[prompt_index], sequence_index);
  if (delta && has_token && !std::exchange(had_token_, true) && ledger_ != nullptr) {
    ledger_->OnFirstToken(latency);
  }
  if (delta && !cancelled_) sink_->OnDelta(*std::move(delta));

  if (text.finished() && !stopped && finish) {
    if (*finish == FinishReason::kError) {
      End(failure.ok() ? Internal("the engine failed the request") : std::move(failure), latency);
    } else if (*finish == FinishReason::kDeadline) {
      End(DeadlineExceeded("the request's deadline has passed"), latency);
    } else if (*finish == FinishReason::kCancelled) {
      End(cancelled_ ? Cancelled("the client cancelled the request")
                     : Unavailable("the server is shutting down and ended the request"),
          latency);
    }
    if (phase_ == Phase::kEnded && sequences_unfinished_ > 0) calls.cancel_all = true;
  }
  if (phase_ != Phase::kEnded && sequences_unfinished_ == 0) {
    End(cancelled_ ? Cancelled("the client cancelled the request") : OkStatus(), latency);
  }
}

void TextStream::End(Status status, const SequenceLatency& latency) {
  phase_ = Phase::kEnded;
  if (ledger_ != nullptr) ledger_->OnEnd(status, Usage(), latency);
  const std::shared_ptr<TextSink> sink = std::exchange(sink_, nullptr);
  sink->OnEnd(TextEnd{.status = std::move(status), .usage = Usage()});
}

void TextStream::Make(const EngineCalls& calls) {
  for (const auto& [id, sequence_index] : calls.stops) engine_.Stop(id, sequence_index);
  if (calls.cancel_all) {
    for (const RequestId id : request_ids_) engine_.Cancel(id);
  }
}

TextUsage TextStream::Usage() const {
  TextUsage usage;
  for (size_t p = 0; p < prompts_.size(); ++p) {
    usage.prompt_tokens += static_cast<int64_t>(prompts_[p].ids->size());
    const SequenceText* first = &sequences_[p * static_cast<size_t>(sequences_per_prompt_)];
    usage.prompt_tokens_cached += first->prompt_tokens_cached();
  }
  for (const SequenceText& sequence : sequences_) usage.output_tokens += sequence.output_tokens();
  return usage;
}

}  // namespace polysil
