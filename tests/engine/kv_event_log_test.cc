#include "engine/kv_event_log.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

// Stored and removed in turn; the tokens of event n are n, n.
KvEvents NumberedEvents(int32_t first, int32_t count) {
  KvEvents news;
  for (int32_t n = first; n < first + count; ++n) {
    const bool stores = n % 2 == 1;
    news.events.push_back({.kind = stores ? KvEventKind::kStored : KvEventKind::kRemoved});
    news.events.back().hash[0] = static_cast<uint8_t>(n);
    if (stores) news.tokens.insert(news.tokens.end(), {n, n});
  }
  return news;
}

TEST(KvEventLog, KeepsTheLastAndSaysWhatIsLost) {
  KvEventLog log(8, 2);
  EXPECT_TRUE(log.Read(0, 100).news.events.empty());
  EXPECT_EQ(log.Wait(1, 0), 0U);
  log.Append(NumberedEvents(1, 5));
  log.Append({});
  log.Append(NumberedEvents(6, 6));
  EXPECT_EQ(log.Wait(11, 0), 11U);
  const KvEventBatch all = log.Read(0, 100);
  EXPECT_EQ(all.first, 4U);
  EXPECT_EQ(all.lost, 3U);
  ASSERT_EQ(all.news.events.size(), 8U);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(all.news.events[i].hash[0], 4 + i);
  EXPECT_EQ(all.news.tokens, (std::vector<TokenId>{5, 5, 7, 7, 9, 9, 11, 11}));
}

TEST(KvEventLog, ReadsOnFromANumber) {
  KvEventLog log(8, 2);
  log.Append(NumberedEvents(1, 8));
  const KvEventBatch some = log.Read(3, 2);
  EXPECT_EQ(some.first, 3U);
  EXPECT_EQ(some.lost, 0U);
  ASSERT_EQ(some.news.events.size(), 2U);
  EXPECT_EQ(some.news.tokens, (std::vector<TokenId>{3, 3}));
  EXPECT_TRUE(log.Read(9, 2).news.events.empty());
  // Of another process, which had come further.
  const KvEventBatch anew = log.Read(500, 100);
  EXPECT_EQ(anew.first, 1U);
  EXPECT_EQ(anew.news.events.size(), 8U);
}

}  // namespace
}  // namespace polysil
