#include "bench/sse_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace polysil {
namespace {

using Events = std::vector<std::string>;

Events Read(const std::vector<std::string>& pieces) {
  Events events;
  SseReader reader;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(reader.Feed(piece, [&](std::string_view data) { events.emplace_back(data); }));
  }
  return events;
}

TEST(SseReader, PiecesOfAnySizeGiveTheSameEvents) {
  for (const std::string line_end : {"\n", "\r\n", "\r"}) {
    std::string text;
    for (const char* line : {"data: {\"a\": 1}", "", ": a comment", "event: x", "data: one",
                             "data:two", "", "id: 3", "", "data", "", "data: [DONE]", ""}) {
      text += line + line_end;
    }
    const Events expected = {"{\"a\": 1}", "one\ntwo", "", "[DONE]"};
    EXPECT_EQ(Read({text}), expected);
    for (size_t first = 0; first <= text.size(); ++first) {
      for (size_t second = first; second <= text.size(); second += 3) {
        EXPECT_EQ(
            Read({text.substr(0, first), text.substr(first, second - first), text.substr(second)}),
            expected)
            << first << " " << second;
      }
    }
  }
}

TEST(SseReader, WhatHasNotEndedIsNoEvent) {
  EXPECT_EQ(Read({"data: one\n"}), Events{});
  EXPECT_EQ(Read({"data: one\n\ndata: tw"}), Events{"one"});
  EXPECT_EQ(Read({"database: one\n\n"}), Events{});
}

TEST(SseReader, AnEventHasABound) {
  SseReader reader;
  const std::string piece(1 << 16, 'x');
  int fed = 0;
  while (reader.Feed(piece, [](std::string_view) { FAIL() << "there is no event"; })) {
    ASSERT_LT(++fed, 100);
  }
  EXPECT_EQ(fed, static_cast<int>(SseReader::kEventBytesMax >> 16));
  // Many lines are no way around it.
  SseReader lines;
  const std::string line = "data: " + std::string(1000, 'x') + "\n";
  fed = 0;
  while (lines.Feed(line, [](std::string_view) { FAIL() << "there is no event"; })) {
    ASSERT_LT(++fed, 2000);
  }
}

}  // namespace
}  // namespace polysil
