// Runs tests/scenarios/*.scenario: scheduler, KV and EngineCore driven line by line. The format is
// described in tests/scenarios/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "engine/core_harness.h"

namespace polysil {
namespace {

using Words = std::vector<std::string>;
using Fields = std::map<std::string, std::string>;

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kTicksMax = 100'000;

// What is wrong with a line, or with what happened.
struct Complaint {
  std::string text;
};

[[noreturn]] void Complain(std::string text) {
  throw Complaint{std::move(text)};
}

int64_t ParseInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    Complain(fmt::format("'{}' is not a number", text));
  }
  return value;
}

Words Split(const std::string& text, char separator) {
  Words words;
  std::stringstream stream(text);
  std::string word;
  while (std::getline(stream, word, separator)) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::string Join(const Words& words, size_t first) {
  std::string text;
  for (size_t i = first; i < words.size(); ++i) text += (i > first ? " " : "") + words[i];
  return text;
}

// "1..4,9,7x3" is 1 2 3 4 9 7 7 7.
std::vector<TokenId> ParseTokens(const std::string& text) {
  std::vector<TokenId> tokens;
  for (const std::string& part : Split(text, ',')) {
    const size_t dots = part.find("..");
    const size_t times = part.find('x');
    if (dots != std::string::npos) {
      const int64_t last = ParseInt(part.substr(dots + 2));
      for (int64_t id = ParseInt(part.substr(0, dots)); id <= last; ++id) {
        tokens.push_back(static_cast<TokenId>(id));
      }
    } else if (times != std::string::npos) {
      tokens.insert(tokens.end(), static_cast<size_t>(ParseInt(part.substr(times + 1))),
                    static_cast<TokenId>(ParseInt(part.substr(0, times))));
    } else {
      tokens.push_back(static_cast<TokenId>(ParseInt(part)));
    }
  }
  return tokens;
}

Fields ParseFields(const Words& words, size_t first) {
  Fields fields;
  for (size_t i = first; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) Complain(fmt::format("'{}' is not key=value", words[i]));
    fields[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  return fields;
}

// "8x5000,16x100": the first 8 tokens for 5000 ms, the first 16 for 100 ms.
std::vector<RetentionHint> ParseRetention(const std::string& text) {
  std::vector<RetentionHint> hints;
  for (const std::string& part : Split(text, ',')) {
    const size_t times = part.find('x');
    if (times == std::string::npos) Complain(fmt::format("'{}' is not TOKENSxMS", part));
    hints.push_back({.tokens = static_cast<int32_t>(ParseInt(part.substr(0, times))),
                     .keep_ns = ParseInt(part.substr(times + 1)) * kNsPerMs});
  }
  return hints;
}

std::string ReasonName(FinishReason reason) {
  static const std::map<FinishReason, std::string> kNames = {
      {FinishReason::kStop, "stop"},
      {FinishReason::kLength, "length"},
      {FinishReason::kCancelled, "cancelled"},
      {FinishReason::kDeadline, "deadline"},
      {FinishReason::kError, "error"}};
  return kNames.at(reason);
}

BlockHash ConstantDigest(std::span<const std::byte>) {
  return BlockHash{};
}

class Scenario final {
 public:
  void Run(const std::string& line) {
    Words words = Split(line.substr(0, line.find('#')), ' ');
    if (words.empty()) return;
    const std::string command = words[0];
    if (command == "set") return Set(ParseFields(words, 1));
    if (harness_ == nullptr) Start();
    if (command == "submit") return Submit(words);
    if (command == "cancel") return harness_->Cancel(Find(words.at(1)).first);
    if (command == "stop") return Stop(words.at(1));
    if (command == "drain") return harness_->Drain(ParseInt(words.at(1)) * kNsPerMs);
    if (command == "time") return harness_->AdvanceTo(ParseInt(words.at(1)) * kNsPerMs);
    if (command == "tick") return Tick();
    if (command == "done") return Done(words);
    if (command == "fail") return Fail(Join(words, 1));
    if (command == "next") return Next(words);
    if (command == "run") return RunMany(words);
    if (command == "expect") return Expect(words);
    Complain(fmt::format("'{}' is no command", command));
  }

  // What must hold after the last line: all runs to its end, nothing is left.
  void Finish() {
    if (harness_ == nullptr) Complain("nothing happens");
    if (!harness_->RunToEnd(kTicksMax)) Complain("not everything ends");
    CheckProblem();
    if (Stat("used") != 0) Complain(fmt::format("{} blocks are still used", Stat("used")));
    for (const auto& [id, streams] : harness_->streams()) {
      for (size_t index = 0; index < streams.size(); ++index) {
        const SeenStream& seen = streams[index];
        if (!seen.finish) Complain(fmt::format("{}/{} has no end", names_.at(id), index));
        if (seen.tokens.empty() || forced_.contains(id)) continue;
        const std::vector<TokenId> solo = SoloTokens(
            harness_->request(id), static_cast<int32_t>(index), device_.vocab_size, TokensLimit());
        if (seen.tokens.size() > solo.size() ||
            !std::equal(seen.tokens.begin(), seen.tokens.end(), solo.begin())) {
          Complain(fmt::format("the tokens of {}/{} are not as alone", names_.at(id), index));
        }
      }
    }
  }

 private:
  void Set(const Fields& fields) {
    if (harness_ != nullptr) Complain("set comes first");
    StepLimits& limits = device_.limits;
    for (const auto& [key, value] : fields) {
      const auto number = [&value = value] { return static_cast<int32_t>(ParseInt(value)); };
      if (key == "blocks")
        device_.blocks = number();
      else if (key == "block_tokens")
        device_.tokens_per_block = number();
      else if (key == "vocab")
        device_.vocab_size = number();
      else if (key == "step_tokens")
        limits.tokens_max = number();
      else if (key == "step_sequences")
        limits.sequences_max = number();
      else if (key == "prefill_sequences")
        limits.prefill_sequences_max = number();
      else if (key == "mixes")
        limits.mixes_prefill_and_decode = value == "yes";
      else if (key == "token_buckets")
        limits.token_buckets = ParseTokens(value);
      else if (key == "sequence_buckets")
        limits.sequence_buckets = ParseTokens(value);
      else if (key == "steps_in_flight")
        limits.steps_in_flight_max = number();
      else if (key == "host_blocks")
        limits.kv_host_blocks = number();
      else if (key == "copy_rows")
        limits.block_copy_rows = number();
      else if (key == "sequences_max")
        options_.sequences_max = number();
      else if (key == "queue_max")
        options_.queue_max = number();
      else if (key == "queue_tokens_max")
        options_.queue_tokens_max = number();
      else if (key == "tenants_leave_room")
        options_.tenants_leave_room = value == "yes";
      else if (key == "itl_target_us")
        options_.itl_target_ns = int64_t{number()} * 1000;
      else if (key == "step_us")
        device_.cost.step_ns = int64_t{number()} * 1000;
      else if (key == "row_us")
        device_.cost.row_ns = int64_t{number()} * 1000;
      else if (key == "context")
        options_.limits.context_tokens_max = number();
      else if (key == "prefix_cache")
        options_.kv.prefix_cache = value == "yes";
      else if (key == "digest" && value == "constant")
        options_.kv.digest = &ConstantDigest;
      else
        Complain(fmt::format("'{}' cannot be set to '{}'", key, value));
    }
  }

  void Start() {
    options_.limits.vocab_size = device_.vocab_size;
    options_.limits.kv_tokens_max = int64_t{device_.blocks} * device_.tokens_per_block;
    options_.limits.sequences_max = options_.sequences_max;
    options_.step_limits = device_.limits;
    options_.kv.blocks = device_.blocks;
    options_.kv.tokens_per_block = device_.tokens_per_block;
    harness_ = std::make_unique<CoreHarness>(options_, device_);
  }

  int32_t TokensLimit() const {
    return static_cast<int32_t>(
        std::min<int64_t>(options_.limits.context_tokens_max, options_.limits.kv_tokens_max + 1));
  }

  void Submit(const Words& words) {
    Request request;
    request.sampling.tokens_max = 4;
    for (const auto& [key, value] : ParseFields(words, 2)) {
      const auto number = [&value = value] { return static_cast<int32_t>(ParseInt(value)); };
      if (key == "prompt")
        request.prompt = ParseTokens(value);
      else if (key == "max")
        request.sampling.tokens_max = number();
      else if (key == "min")
        request.sampling.tokens_min = number();
      else if (key == "end")
        request.end_token_ids = ParseTokens(value);
      else if (key == "n")
        request.sequences = number();
      else if (key == "priority")
        request.priority = number();
      else if (key == "deadline")
        request.deadline_ns = ParseInt(value) * kNsPerMs;
      else if (key == "salt")
        request.cache_salt = value;
      else if (key == "keep")
        request.retention = ParseRetention(value);
      else if (key == "tenant")
        request.tenant = value;
      else if (key == "prompt_logprobs")
        request.sampling.prompt_logprobs = number();
      else
        Complain(fmt::format("'{}' is nothing of a request", key));
    }
    const std::string& name = words.at(1);
    if (ids_.contains(name)) Complain(fmt::format("{} was submitted before", name));
    const RequestId id = harness_->Submit(std::move(request));
    ids_[name] = id;
    names_[id] = name;
  }

  // "a" is a's first sequence, "a/2" its third.
  std::pair<RequestId, int32_t> Find(const std::string& text) const {
    const size_t slash = text.find('/');
    const auto found = ids_.find(text.substr(0, slash));
    if (found == ids_.end()) Complain(fmt::format("nobody submitted '{}'", text));
    const int64_t index = slash == std::string::npos ? 0 : ParseInt(text.substr(slash + 1));
    return {found->second, static_cast<int32_t>(index)};
  }
  const SeenStream& Seen(const std::string& text) const {
    const auto [id, index] = Find(text);
    return harness_->streams().at(id).at(static_cast<size_t>(index));
  }
  std::string NameOf(RequestId id, int32_t index) const {
    const bool many = harness_->request(id).sequences > 1;
    return many ? fmt::format("{}/{}", names_.at(id), index) : names_.at(id);
  }

  void Stop(const std::string& name) {
    const auto [id, index] = Find(name);
    harness_->Stop(id, index);
  }

  void Tick() {
    harness_->Tick();
    steps_seen_ = 0;
    CheckProblem();
  }
  void CheckProblem() const {
    if (!harness_->problem().empty()) Complain(harness_->problem());
  }

  // "done", "done a=5" (a's row chooses token 5), "done a!text" (a's row fails so).
  void Done(const Words& words) {
    FakeFaults faults;
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t mark = words[i].find_first_of("=!");
      if (mark == std::string::npos) Complain(fmt::format("'{}' says nothing", words[i]));
      const auto [id, index] = Find(words[i].substr(0, mark));
      const std::string value = words[i].substr(mark + 1);
      const SequenceId sequence = harness_->id(id, index);
      if (words[i][mark] == '=') {
        faults.tokens[sequence] = static_cast<TokenId>(ParseInt(value));
        forced_.insert(id);
      } else {
        faults.rows[sequence] = Internal("{}", value);
      }
    }
    if (!harness_->RunOldest(faults)) Complain("no step is in flight");
    CheckProblem();
  }
  void Fail(const std::string& message) {
    if (!harness_->RunOldest({.step = Internal("{}", message)})) Complain("no step is in flight");
    CheckProblem();
  }
  void Next(const Words& words) {
    Done(words);
    Tick();
  }
  // So many times "next", by default until all have ended.
  void RunMany(const Words& words) {
    const int64_t count = words.size() > 1 ? ParseInt(words[1]) : kTicksMax;
    for (int64_t i = 0; i < count; ++i) {
      if (words.size() == 1 && harness_->core().sequences_live() == 0) return;
      Next({"next"});
    }
    if (words.size() == 1) Complain("it does not end");
  }

  void Expect(const Words& words) {
    const std::string& what = words.at(1);
    if (what == "step") return ExpectStep(Join(words, 2));
    if (what == "outputs") return ExpectEqual(Outputs(), Join(words, 2));
    if (what == "stats") return ExpectStats(ParseFields(words, 2));
    const SeenStream& seen = Seen(words.at(2));
    const std::string value = Join(words, 3);
    if (what == "tokens") return ExpectEqual(std::to_string(seen.tokens.size()), value);
    if (what == "token_ids")
      return ExpectEqual(fmt::format("{}", fmt::join(seen.tokens, " ")), value);
    if (what == "cached") return ExpectEqual(std::to_string(seen.prompt_tokens_cached), value);
    if (what == "prompt_logprobs") {
      return ExpectEqual(std::to_string(seen.prompt_logprobs.size()), value);
    }
    if (what == "end") return ExpectEqual(seen.finish ? ReasonName(*seen.finish) : "none", value);
    if (what == "blocks") return ExpectBlocks(words.at(2), value);
    if (what == "status") {
      if (Message(seen.status).find(value) != std::string::npos) return;
      Complain(fmt::format("the status is '{}'", Message(seen.status)));
    }
    Complain(fmt::format("'{}' cannot be expected", what));
  }

  static void ExpectEqual(const std::string& actual, const std::string& expected) {
    if (actual != expected) Complain(fmt::format("it is '{}', not '{}'", actual, expected));
  }

  // The steps of the last tick, one after the other.
  void ExpectStep(const std::string& expected) {
    const std::vector<ScheduledStep>& steps = harness_->actions().steps;
    std::string actual = "none";
    if (steps_seen_ < steps.size()) {
      Words rows;
      for (const ScheduledSequence& row : steps[steps_seen_].sequences) {
        const auto [id, index] = harness_->name(row.id);
        rows.push_back(fmt::format("{} {}..{}{}", NameOf(id, index), row.tokens_computed,
                                   row.tokens_computed + row.tokens, row.sample ? " +" : ""));
      }
      actual = fmt::format("{}", fmt::join(rows, ", "));
      ++steps_seen_;
    }
    ExpectEqual(actual, expected);
  }

  std::string Outputs() const {
    Words outputs;
    for (const SequenceOutput& output : harness_->actions().outputs) {
      outputs.push_back(fmt::format("{} {}{}", NameOf(output.request, output.sequence_index),
                                    output.tokens.size(),
                                    output.finish ? " " + ReasonName(*output.finish) : ""));
    }
    return outputs.empty() ? "none" : fmt::format("{}", fmt::join(outputs, ", "));
  }

  int64_t Stat(const std::string& name) const {
    const EngineStats stats = harness_->core().stats();
    const std::map<std::string, int64_t> values = {
        {"running", stats.requests_running},
        {"waiting", stats.requests_waiting},
        {"used", stats.kv_blocks_used},
        {"cached", stats.kv_blocks_cached},
        {"free", stats.kv_blocks_total - stats.kv_blocks_used - stats.kv_blocks_cached},
        {"stop", static_cast<int64_t>(stats.requests_stop)},
        {"length", static_cast<int64_t>(stats.requests_length)},
        {"cancelled", static_cast<int64_t>(stats.requests_cancelled)},
        {"deadline", static_cast<int64_t>(stats.requests_deadline)},
        {"error", static_cast<int64_t>(stats.requests_error)},
        {"refused", static_cast<int64_t>(stats.requests_refused)},
        {"prompt", static_cast<int64_t>(stats.prompt_tokens)},
        {"generated", static_cast<int64_t>(stats.generation_tokens)},
        {"query", static_cast<int64_t>(stats.prefix_cache_query_tokens)},
        {"hit", static_cast<int64_t>(stats.prefix_cache_hit_tokens)},
        {"preemptions", static_cast<int64_t>(stats.preemptions)},
        {"steps", static_cast<int64_t>(stats.steps)},
        {"host", stats.kv_host_blocks_used},
        {"out", static_cast<int64_t>(stats.kv_blocks_copied_out)},
        {"in", static_cast<int64_t>(stats.kv_blocks_copied_in)},
        {"step_tokens", static_cast<int64_t>(stats.step_tokens)},
        {"padding", static_cast<int64_t>(stats.step_padding_tokens)},
        {"rows", harness_->device().rows_run()}};
    if (!values.contains(name)) Complain(fmt::format("'{}' is not counted", name));
    return values.at(name);
  }
  void ExpectStats(const Fields& fields) const {
    for (const auto& [key, value] : fields) {
      if (Stat(key) == ParseInt(value)) continue;
      Complain(fmt::format("{} is {}, not {}", key, Stat(key), value));
    }
  }
  void ExpectBlocks(const std::string& name, const std::string& expected) const {
    const auto [id, index] = Find(name);
    Words blocks;
    for (const BlockId block : harness_->device().blocks(harness_->id(id, index))) {
      blocks.push_back(std::to_string(block.value));
    }
    ExpectEqual(fmt::format("{}", fmt::join(blocks, " ")), expected);
  }

  FakeDeviceOptions device_{.blocks = 64, .tokens_per_block = 4, .vocab_size = 1000};
  EngineCoreOptions options_{
      .sequences_max = 16, .queue_max = 16, .limits = {.context_tokens_max = 200}};
  std::unique_ptr<CoreHarness> harness_;
  std::map<std::string, RequestId> ids_;
  std::map<RequestId, std::string> names_;
  std::set<RequestId> forced_;  // chose tokens that the script gave
  size_t steps_seen_ = 0;
};

std::vector<std::filesystem::path> ScenarioFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(POLYSIL_SOURCE_DIR "/tests/scenarios")) {
    if (entry.path().extension() == ".scenario") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

class ScenarioTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(ScenarioTest, Holds) {
  std::ifstream file(GetParam());
  ASSERT_TRUE(file.is_open()) << GetParam();
  Scenario scenario;
  int line_number = 0;
  std::string line;
  try {
    while (std::getline(file, line)) {
      ++line_number;
      scenario.Run(line);
    }
    line = "(the end)";
    scenario.Finish();
  } catch (const Complaint& complaint) {
    FAIL() << GetParam().string() << ":" << line_number << ": " << line << "\n  " << complaint.text;
  } catch (const std::out_of_range&) {
    FAIL() << GetParam().string() << ":" << line_number << ": " << line << "\n  a word is missing";
  }
}

TEST(Scenarios, AreThere) {
  EXPECT_GE(ScenarioFiles().size(), 25U);
}

INSTANTIATE_TEST_SUITE_P(Files, ScenarioTest, testing::ValuesIn(ScenarioFiles()),
                         [](const auto& file) {
                           std::string name = file.param.stem().string();
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace polysil
