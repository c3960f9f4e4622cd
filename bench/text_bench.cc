// Tokenizer speed on one core, in bytes of text a second: English prose, and texts that are hard on
// tokenizers (one long word, no spaces, symbols). Vocabularies: SmolLM2's from the test data, and
// the same tokens as a SentencePiece vocabulary.
#include <benchmark/benchmark.h>

#include <random>
#include <string>

#define POLYSIL_SHARED_DIR POLYSIL_SOURCE_DIR "/../shared"
#include "tests/text/golden_files.h"
#include "text/detokenizer.h"
#include "text/space_mark.h"
#include "text/stop_matcher.h"
#include "text/utf8.h"

namespace polysil {
namespace {

constexpr size_t kTextBytes = 1 << 20;

std::shared_ptr<const Tokenizer> SentencePiece() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    TokenizerSpec spec{.model = "llama", .add_bos = false};
    const auto add = [&spec](std::string text, TokenType type) {
      spec.scores.push_back(-static_cast<float>(spec.tokens.size()));
      spec.tokens.push_back(std::move(text));
      spec.types.push_back(type);
    };
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
    for (TokenId id = 17; id < SmolLm2()->vocab_size(); ++id) {
      const std::string_view bytes = SmolLm2()->TokenBytes(id);
      std::string text;
      AppendWellFormed(bytes, text);
      if (text == bytes) add(ReplaceAll(text, " ", kSpaceMark), TokenType::kNormal);
    }
    auto created = Tokenizer::Create(std::move(spec));
    CHECK(created.ok(), "{}", Message(created.status()));
    return *std::move(created);
  }();
  return tokenizer;
}

std::string Repeat(std::string_view part) {
  std::string text;
  while (text.size() < kTextBytes) text += part;
  return text;
}

std::string Prose() {
  std::string essays;
  for (const auto& line : ReadJsonLines(TestData("smollm2/tokenizer.jsonl"))) {
    const std::string text = AsString(line.at("text"));
    if (line.at("category") == "prose" && text.size() > 200) essays += text + "\n\n";
  }
  return Repeat(essays);
}

std::string Random(std::string_view letters) {
  std::mt19937 random(1);
  std::string text(kTextBytes, ' ');
  for (char& c : text) c = letters[random() % letters.size()];
  return text;
}

std::string RandomCjk() {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < kTextBytes) AppendUtf8(0x4E00 + random() % 3000, text);
  return text;
}

std::string MakeText(std::string_view kind) {
  if (kind == "prose") return Prose();
  if (kind == "one letter") return Repeat("a");
  if (kind == "ab") return Repeat("ab");
  if (kind == "spaces") return Repeat(" ");
  if (kind == "cjk") return RandomCjk();
  if (kind == "symbols") return Random("!?.,;:-_^*");
  if (kind == "digits") return Random("0123456789");
  CHECK(kind == "base64");
  return Random("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
}

void Encode(benchmark::State& state, const std::shared_ptr<const Tokenizer>& tokenizer,
            std::string_view kind) {
  const std::string text = MakeText(kind);
  size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer->Encode(text, {}).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_token"] =
      static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void DetokenizeProse(benchmark::State& state) {
  const std::string text = Prose();
  const std::vector<TokenId> ids = SmolLm2()->Encode(text, {});
  for (auto _ : state) {
    Detokenizer detokenizer(SmolLm2(), true, false);
    StopMatcher matcher({"\nUser:", "<|im_end|>", "The end of everything"}, false);
    size_t bytes = 0;
    for (const TokenId id : ids) bytes += matcher.Push(detokenizer.Push(id)).size();
    benchmark::DoNotOptimize(bytes);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
BENCHMARK(DetokenizeProse)->Name("detokenize and match stops/prose")->Unit(benchmark::kMillisecond);

void LoadSmolLm2(benchmark::State& state) {
  const TokenizerSpec spec = SmolLm2Spec();
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Create(spec));
}
BENCHMARK(LoadSmolLm2)->Name("load/SmolLM2")->Unit(benchmark::kMillisecond);

void RegisterAll() {
  static constexpr const char* kKinds[] = {"prose", "one letter", "ab",      "spaces",
                                           "cjk",   "base64",     "symbols", "digits"};
  for (const char* kind : kKinds) {
    benchmark::RegisterBenchmark(
        (std::string("byte-level/") + kind).c_str(),
        [kind](benchmark::State& state) { Encode(state, SmolLm2(), kind); })
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(
        (std::string("sentencepiece/") + kind).c_str(),
        [kind](benchmark::State& state) { Encode(state, SentencePiece(), kind); })
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace polysil

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  polysil::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
