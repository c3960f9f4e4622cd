#include "bench/offline_bench.h"

#include <algorithm>
#include <future>
#include <utility>

namespace polysil {
namespace {

constexpr int32_t kTokensMax = 1 << 24;
constexpr int32_t kStreamsMax = 1 << 14;
// On a busy machine the engine joins the outputs of a stream, so that short ones are seen at once.
constexpr int32_t kTries = 5;
constexpr int32_t kBlockTokensMax = 128;  // of kv.block_tokens
constexpr double kNsPerSecond = 1e9;

Status CheckAll(std::string_view what, const std::vector<int32_t>& values, int32_t low,
                int32_t high) {
  for (const int32_t value : values) {
    if (value < low || value > high) {
      return InvalidArgument("--{} is {}, must be {} to {}", what, value, low, high);
    }
  }
  return OkStatus();
}

Status CheckFits(const OfflineRow& row, const RequestLimits& limits) {
  if (row.streams > 0 && row.tokens < 2) {
    return InvalidArgument("--generate is {}, two tokens are the least that take time", row.tokens);
  }
  // A prompt row chooses one token.
  const int64_t tokens = int64_t{row.depth} + row.tokens + (row.streams == 0 ? 1 : 0);
  if (tokens > limits.context_tokens_max) {
    return InvalidArgument("{} needs {} tokens of context, the model has {}", row.Name(), tokens,
                           limits.context_tokens_max);
  }
  const int64_t kv_tokens = tokens * std::max(row.streams, 1);
  if (kv_tokens > limits.kv_tokens_max) {
    return InvalidArgument("{} needs KV of {} tokens, the pool has {}; see --set kv.blocks",
                           row.Name(), kv_tokens, limits.kv_tokens_max);
  }
  if (row.streams > limits.sequences_max) {
    return InvalidArgument("{} needs --set scheduler.sequences_max={}, it is {}", row.Name(),
                           row.streams, limits.sequences_max);
  }
  return OkStatus();
}

}  // namespace

std::string OfflineRow::Name() const {
  std::string name = fmt::format("{}{}", streams == 0 ? "pp" : "tg", tokens);
  if (own_prompt) name += fmt::format(" x {}", streams);
  if (depth > 0) name += fmt::format(" @ {}", depth);
  return name;
}

StatusOr<std::vector<OfflineRow>> PlanRows(const OfflineOptions& options,
                                           const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckAll("prompt", options.prompts, 0, kTokensMax));
  RETURN_IF_ERROR(CheckAll("generate", options.generates, 0, kTokensMax));
  RETURN_IF_ERROR(CheckAll("depth", options.depths, 0, kTokensMax));
  RETURN_IF_ERROR(CheckAll("streams", options.streams, 0, kStreamsMax));
  RETURN_IF_ERROR(CheckAll("stream-prompt", {options.stream_prompt}, 1, kTokensMax));
  std::vector<OfflineRow> rows;
  const auto add = [&rows](OfflineRow row) {
    if (row.tokens > 0) rows.push_back(row);
  };
  for (const int32_t depth : options.depths) {
    for (const int32_t tokens : options.prompts) add({.tokens = tokens, .depth = depth});
  }
  for (const int32_t depth : options.depths) {
    for (const int32_t tokens : options.generates) {
      add({.tokens = tokens, .depth = depth, .streams = 1});
    }
  }
  for (const int32_t streams : options.streams) {
    if (streams == 0) continue;
    for (const int32_t tokens : options.generates) {
      add({.tokens = tokens,
           .depth = options.stream_prompt,
           .streams = streams,
           .own_prompt = true});
    }
  }
  if (rows.empty()) return InvalidArgument("there is no row to measure");
  for (const OfflineRow& row : rows) RETURN_IF_ERROR(CheckFits(row, limits));
  return rows;
}

double OfflineResult::Median() const {
  std::vector<double> sorted = rates;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

double OfflineResult::Min() const {
  return *std::min_element(rates.begin(), rates.end());
}

double OfflineResult::Max() const {
  return *std::max_element(rates.begin(), rates.end());
}

double OfflineResult::BoundRate(const CpuBounds& bounds) const {
  return work_tokens / BoundOf(work, bounds).seconds;
}

// The times of one request's tokens. Written by the engine's output thread until `end` is set, read
// after that.
struct OfflineBench::Stream final : OutputSink {
  explicit Stream(const Clock& the_clock) : clock(the_clock) {}

  void OnOutput(SequenceOutput output) override {
    const int64_t now_ns = clock.NowNs();
    for (size_t i = 0; i < output.tokens.size(); ++i) token_ns.push_back(now_ns);
    prompt_tokens_cached = output.prompt_tokens_cached;
    if (!output.finish) return;
    end.set_value(*output.finish == FinishReason::kLength || !output.status.ok()
                      ? output.status
                      : Internal("the engine ended a stream before its length"));
  }

  const Clock& clock;
  int64_t submitted_ns = 0;
  std::vector<int64_t> token_ns;
  int32_t prompt_tokens_cached = 0;
  std::promise<Status> end;
};

std::vector<TokenId> OfflineBench::FreshTokens(int32_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) {
    token = random_.Between(0, engine_.info().limits.vocab_size - 1);
  }
  return tokens;
}

std::vector<TokenId> OfflineBench::SharedTokens(int32_t depth) const {
  std::vector<TokenId> tokens(static_cast<size_t>(depth));
  const auto vocab_size = static_cast<uint64_t>(engine_.info().limits.vocab_size);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>(Mix(0, i) % vocab_size);
  }
  return tokens;
}

StatusOr<std::vector<std::shared_ptr<OfflineBench::Stream>>> OfflineBench::RunStreams(
    std::vector<Request> requests) {
  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<std::future<Status>> ends;
  Status status;
  for (Request& request : requests) {
    auto stream = std::make_shared<Stream>(clock_);
    stream->token_ns.reserve(static_cast<size_t>(request.sampling.tokens_max));
    stream->submitted_ns = clock_.NowNs();
    status = engine_.Submit(std::move(request), stream).status();
    if (!status.ok()) break;
    ends.push_back(stream->end.get_future());
    streams.push_back(std::move(stream));
  }
  // Also those that were accepted before one was refused: they hold this bench's clock.
  for (std::future<Status>& end : ends) {
    const Status ended = end.get();
    if (status.ok()) status = ended;
  }
  RETURN_IF_ERROR(status);
  return streams;
}

StatusOr<double> OfflineBench::MeasurePrompt(const OfflineRow& row) {
  Request request{.prompt = SharedTokens(row.depth),
                  .sampling = {.temperature = 0.0F, .tokens_max = 1}};
  if (row.depth > 0) RETURN_IF_ERROR(RunStreams({request}).status());
  const std::vector<TokenId> fresh = FreshTokens(row.tokens);
  request.prompt.insert(request.prompt.end(), fresh.begin(), fresh.end());
  ASSIGN_OR_RETURN(const auto streams, RunStreams({std::move(request)}));
  const Stream& stream = *streams.front();
  const int32_t computed = row.depth + row.tokens - stream.prompt_tokens_cached;
  // The cache keeps whole blocks; what is left over of the depth is computed with the row.
  if (computed >= row.tokens + kBlockTokensMax) {
    return FailedPrecondition(
        "{}: {} of the {} tokens before were not in the prefix cache; it must be on and kv.blocks "
        "large enough",
        row.Name(), computed - row.tokens, row.depth);
  }
  return computed * kNsPerSecond /
         static_cast<double>(stream.token_ns.front() - stream.submitted_ns);
}

StatusOr<std::optional<double>> OfflineBench::TryStreams(const OfflineRow& row) {
  std::vector<Request> requests(static_cast<size_t>(row.streams));
  for (Request& request : requests) {
    request.prompt = row.own_prompt ? FreshTokens(row.depth) : SharedTokens(std::max(row.depth, 1));
    request.sampling = {.temperature = 0.0F, .tokens_max = row.tokens};
  }
  ASSIGN_OR_RETURN(const auto streams, RunStreams(std::move(requests)));
  // While all streams generate: from the last one's first token to the first one's end.
  int64_t begin_ns = streams.front()->token_ns.front();
  int64_t end_ns = streams.front()->token_ns.back();
  for (const auto& stream : streams) {
    begin_ns = std::max(begin_ns, stream->token_ns.front());
    end_ns = std::min(end_ns, stream->token_ns.back());
  }
  int64_t tokens = 0;
  for (const auto& stream : streams) {
    tokens += std::ranges::count_if(stream->token_ns,
                                    [&](int64_t ns) { return ns > begin_ns && ns <= end_ns; });
  }
  if (tokens == 0) return std::nullopt;
  return static_cast<double>(tokens) * kNsPerSecond / static_cast<double>(end_ns - begin_ns);
}

StatusOr<double> OfflineBench::MeasureStreams(const OfflineRow& row) {
  for (int32_t i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(const std::optional<double> rate, TryStreams(row));
    if (rate) return *rate;
  }
  return InvalidArgument("{}: the streams were never all seen at work; generate more tokens",
                         row.Name());
}

StatusOr<std::vector<OfflineResult>> OfflineBench::Run(
    const std::vector<OfflineRow>& rows, int32_t repetitions,
    const std::function<void(const std::string&)>& progress,
    const std::function<Status()>& between_rounds) {
  std::vector<OfflineResult> results;
  for (const OfflineRow& row : rows) {
    OfflineResult result{.row = row};
    result.work = row.streams == 0 ? work_.Prefill(row.tokens, row.depth)
                                   : work_.Decode(row.streams, row.depth + 0.5 * (row.tokens + 1));
    result.work_tokens = row.streams == 0 ? row.tokens : row.streams;
    results.push_back(std::move(result));
  }
  for (int32_t round = 0; round <= repetitions; ++round) {
    if (round > 0) RETURN_IF_ERROR(between_rounds());
    for (OfflineResult& result : results) {
      const OfflineRow& row = result.row;
      progress(fmt::format("{} of {}: {}", round, repetitions, row.Name()));
      ASSIGN_OR_RETURN(const double rate,
                       row.streams == 0 ? MeasurePrompt(row) : MeasureStreams(row));
      if (round > 0) result.rates.push_back(rate);
    }
  }
  return results;
}

}  // namespace polysil
