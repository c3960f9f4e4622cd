#include "bench/load_prompts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace polysil {
namespace {

// A file for one test, removed with it.
class TextFile final {
 public:
  explicit TextFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("polysil_load_" + std::to_string(getpid()) + ".jsonl")) {
    std::ofstream(path_) << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

int64_t WordsOf(const std::string& text) {
  return std::ranges::count(text, ' ') + 1;
}

LoadPrompts Make(const LoadOptions& options) {
  auto prompts = LoadPrompts::Create(options);
  EXPECT_TRUE(prompts.ok()) << Message(prompts.status());
  return *std::move(prompts);
}

TEST(LoadPrompts, RandomWordsHaveTheLengthAskedForAndAreNeverEqual) {
  LoadPrompts prompts = Make({.input_tokens = 40, .turns = 2, .output_tokens = 9});
  prompts.SetWordsPerToken(0.5);
  EXPECT_TRUE(prompts.made_of_words());
  std::set<std::string> seen;
  for (int64_t i = 0; i < 50; ++i) {
    const LoadSession session = prompts.Session(i);
    ASSERT_EQ(session.turns.size(), 2U);
    EXPECT_EQ(session.output_tokens, 9);
    EXPECT_EQ(session.system, "");
    for (const std::string& turn : session.turns) {
      EXPECT_EQ(WordsOf(turn), 20);
      EXPECT_TRUE(seen.insert(turn).second) << turn;
    }
  }
  EXPECT_EQ(prompts.Session(7).turns, prompts.Session(7).turns);
}

TEST(LoadPrompts, ASharedPrefixIsTheSameForAllAndAnotherForAnotherSeed) {
  const LoadPrompts prompts = Make({.shared_prefix_tokens = 30, .seed = 1});
  EXPECT_EQ(WordsOf(prompts.Session(0).system), 30);
  EXPECT_EQ(prompts.Session(0).system, prompts.Session(5).system);
  EXPECT_NE(prompts.Session(0).system,
            Make({.shared_prefix_tokens = 30, .seed = 2}).Session(0).system);
}

TEST(LoadPrompts, OfAFileInTurns) {
  const TextFile file(R"({"turns": ["a", "b", "c"]}

{"prompt": "p", "turns_x": 1}
{"text": "t"}
)");
  const LoadPrompts prompts = Make({.prompts_path = file.path(), .turns = 2});
  EXPECT_EQ(prompts.Session(0).turns, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(prompts.Session(1).turns, std::vector<std::string>{"p"});
  EXPECT_EQ(prompts.Session(2).turns, std::vector<std::string>{"t"});
  EXPECT_EQ(prompts.Session(3).turns, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(prompts.made_of_words());
}

TEST(LoadPrompts, BadPromptFilesAreNamedWithTheirLine) {
  for (const char* line : {"x", "[]", "{}", R"({"turns": []})", R"({"turns": [1]})",
                           R"({"turns": "a"})", R"({"prompt": {}})", "{\"text\": \"\xff\"}"}) {
    const TextFile file("{\"text\": \"good\"}\n" + std::string(line) + "\n");
    const auto prompts = LoadPrompts::Create({.prompts_path = file.path()});
    EXPECT_EQ(prompts.status().code(), StatusCode::kInvalidArgument) << line;
    EXPECT_NE(Message(prompts.status()).find("line 2: "), std::string::npos)
        << Message(prompts.status());
  }
  const TextFile empty("\n\n");
  EXPECT_FALSE(LoadPrompts::Create({.prompts_path = empty.path()}).ok());
  EXPECT_EQ(LoadPrompts::Create({.prompts_path = "/nowhere/x"}).status().code(),
            StatusCode::kNotFound);
}

TEST(LoadPrompts, TraceBlocksWithEqualIdsAreEqualText) {
  const TextFile file(
      R"({"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [4, 9, 1]}
{"timestamp": 7, "input_length": 1100, "output_length": 6, "hash_ids": [4, 9, 2]}
{"timestamp": 9, "input_length": 600, "output_length": 7, "hash_ids": [4, 8]}
)");
  const LoadPrompts prompts = Make({.trace_path = file.path()});
  std::vector<std::string> texts;
  for (int64_t i = 0; i < 3; ++i) texts.push_back(prompts.Session(i).turns.at(0));
  EXPECT_EQ(WordsOf(texts[0]), 1100);
  EXPECT_EQ(WordsOf(texts[2]), 600);
  const auto shared_words = [&](size_t a, size_t b) {
    const auto parts = std::ranges::mismatch(texts[a], texts[b]);
    return WordsOf(std::string(texts[a].begin(), parts.in1)) - 1;
  };
  // Of 1,024 words and of 512 in front; a few more may be equal by chance.
  EXPECT_NEAR(static_cast<double>(shared_words(0, 1)), 1024, 4);
  EXPECT_NEAR(static_cast<double>(shared_words(0, 2)), 512, 4);
  EXPECT_GE(shared_words(0, 1), 1024);
  EXPECT_GE(shared_words(0, 2), 512);
  EXPECT_EQ(prompts.Session(1).output_tokens, 6);
}

TEST(LoadPrompts, HostileTracesAreRefused) {
  for (const char* line :
       {"{", "7", R"({"timestamp": -1, "input_length": 5, "output_length": 5, "hash_ids": [1]})",
        R"({"timestamp": 1e300, "input_length": 5, "output_length": 5, "hash_ids": [1]})",
        R"({"timestamp": 0, "input_length": 99999999999999, "output_length": 5, "hash_ids": [1]})",
        R"({"timestamp": 0, "input_length": 5, "output_length": 0, "hash_ids": [1]})",
        R"({"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1, 2]})",
        R"({"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [-3]})",
        R"({"timestamp": 9223372036854775807, "input_length": 5, "output_length": 5,
            "hash_ids": [1]})"}) {
    const TextFile file(line);
    EXPECT_EQ(LoadPrompts::Create({.trace_path = file.path()}).status().code(),
              StatusCode::kInvalidArgument)
        << line;
  }
}

}  // namespace
}  // namespace polysil
