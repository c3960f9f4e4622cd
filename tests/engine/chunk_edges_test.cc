// SCH-07: prompts around the edges of chunks and blocks, beside decoding neighbours, cut by the
// budget or by an inter-token target: everybody has the tokens that it gets alone.
#include <gtest/gtest.h>

#include "engine/core_harness.h"

namespace polysil {
namespace {

constexpr int32_t kChunk = 16;
constexpr int32_t kVocab = 1000;
constexpr int32_t kContext = 200;

Request Prompt(int32_t tokens, TokenId first, int32_t tokens_max) {
  Request request{.sampling = {.tokens_max = tokens_max}};
  for (int32_t i = 0; i < tokens; ++i) request.prompt.push_back(first + i);
  return request;
}

void ExpectAsAlone(const CoreHarness& harness) {
  for (const auto& [id, streams] : harness.streams()) {
    ASSERT_EQ(streams[0].finish, FinishReason::kLength);
    EXPECT_EQ(streams[0].tokens, SoloTokens(harness.request(id), 0, kVocab, kContext));
  }
}

void RunBeside(int32_t prompt_tokens, int32_t neighbours, int32_t block_tokens,
               int64_t itl_target_ns) {
  SCOPED_TRACE(testing::Message() << prompt_tokens << " tokens, " << neighbours << " neighbours, "
                                  << "blocks of " << block_tokens << ", target " << itl_target_ns);
  // Neighbours take a row each, so that chunks are of kChunk.
  const StepLimits limits{.tokens_max = kChunk + neighbours};
  CoreHarness harness({.itl_target_ns = itl_target_ns,
                       .limits = {.vocab_size = kVocab,
                                  .context_tokens_max = kContext,
                                  .kv_tokens_max = int64_t{64} * block_tokens,
                                  .sequences_max = 64},
                       .step_limits = limits,
                       .kv = {.blocks = 64, .tokens_per_block = block_tokens}},
                      {.limits = limits,
                       .blocks = 64,
                       .tokens_per_block = block_tokens,
                       .vocab_size = kVocab,
                       .cost = {.step_ns = 1000, .row_ns = 100}});
  for (int32_t i = 0; i < neighbours; ++i) harness.Submit(Prompt(3, 10 * i, 12));
  for (int32_t i = 0; i < 4; ++i) {
    harness.Tick();
    harness.RunOldest();
  }
  harness.Submit(Prompt(prompt_tokens, 500, 5));
  harness.Tick();
  ASSERT_TRUE(harness.RunToEnd(1000));
  ASSERT_EQ(harness.problem(), "");
  ExpectAsAlone(harness);
}

TEST(ChunkEdges, TokensAreAsAlone) {
  for (const int32_t prompt_tokens : {1, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk - 1, 2 * kChunk,
                                      2 * kChunk + 1, 3 * kChunk}) {
    for (const int32_t neighbours : {0, 1, 3}) {
      for (const int32_t block_tokens : {8, 16, 32}) {
        for (const int64_t itl_target_ns : {0, 1, 2000}) {
          RunBeside(prompt_tokens, neighbours, block_tokens, itl_target_ns);
        }
      }
    }
  }
}

}  // namespace
}  // namespace polysil
