// How much of a real trace the prefix cache finds: 12,031 requests of the Mooncake conversation
// trace
// (../shared/DATA.md), whose figures were computed by other means.
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kv/kv_manager.h"

namespace polysil {
namespace {

// Each request's blocks by number; equal numbers are equal prefixes.
std::vector<std::vector<TokenId>> ReadTrace(const std::string& path) {
  constexpr std::string_view kKey = "\"hash_ids\": [";
  std::vector<std::vector<TokenId>> requests;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t key = line.find(kKey);
    if (key == std::string::npos) continue;
    std::vector<TokenId>& ids = requests.emplace_back();
    const char* at = line.data() + key + kKey.size();
    const char* const end = line.data() + line.size();
    for (TokenId id = 0; at < end; at += 2) {
      const auto parsed = std::from_chars(at, end, id);
      if (parsed.ec != std::errc()) break;
      ids.push_back(id);
      at = parsed.ptr;
    }
  }
  return requests;
}

// Blocks found, in per mille of all. A block of the trace is a block of one token here.
double HitPerMille(const std::vector<std::vector<TokenId>>& requests, int32_t blocks) {
  // One block more, for the token after the last, which is computed and not kept.
  KvManager kv({.blocks = blocks + 1, .tokens_per_block = 1});
  int64_t total = 0;
  int64_t found = 0;
  for (const std::vector<TokenId>& ids : requests) {
    std::vector<TokenId> tokens = ids;
    tokens.push_back(0);
    const BlockTableId table = kv.Open({});
    const std::optional<int32_t> hit = kv.TryAdmit(table, tokens, 0);
    EXPECT_TRUE(hit.has_value());
    found += hit.value_or(0);
    total += static_cast<int64_t>(ids.size());
    kv.Publish(table, tokens, static_cast<int32_t>(ids.size()));
    kv.Close(table);
    kv.ClearEvents();
  }
  EXPECT_EQ(kv.CheckIntegrity(), OkStatus());
  return 1000.0 * static_cast<double>(found) / static_cast<double>(total);
}

TEST(TraceHitRatio, IsThatOfTheMooncakeConversation) {
  const std::string path = POLYSIL_SHARED_DIR "/traces/mooncake_conversation.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const std::vector<std::vector<TokenId>> requests = ReadTrace(path);
  ASSERT_EQ(requests.size(), 12031U);
  std::set<TokenId> distinct;
  for (const std::vector<TokenId>& ids : requests) distinct.insert(ids.begin(), ids.end());
  struct Figure {
    int32_t blocks;
    int64_t per_mille;
  };
  const std::vector<Figure> figures = {{static_cast<int32_t>(distinct.size()), 366},
                                       {1'000, 45},
                                       {3'000, 65},
                                       {10'000, 212},
                                       {30'000, 326},
                                       {50'000, 355},
                                       {100'000, 364}};
  for (const Figure& figure : figures) {
    const double per_mille = HitPerMille(requests, figure.blocks);
    RecordProperty(std::to_string(figure.blocks), std::to_string(per_mille));
    EXPECT_EQ(std::lround(per_mille), figure.per_mille) << figure.blocks << " blocks";
  }
}

}  // namespace
}  // namespace polysil
