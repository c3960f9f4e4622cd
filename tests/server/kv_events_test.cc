// Admin.WatchKvEvents: every watcher gets all events in order at its own pace; one that is too slow
// is told how many it lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/grpc_rig.h"
#include "server/proto_call.h"

namespace polysil {
namespace {

KvBlockName NumberedName(uint64_t number) {
  KvBlockName name{};
  for (size_t i = 0; i < 8; ++i) name[i] = static_cast<uint8_t>(number >> (8 * i));
  return name;
}

std::string TextOf(const KvBlockName& name) {
  return {name.begin(), name.end()};
}

// One client's view: what it got, and whether numbers and names belong together.
struct EventReader {
  explicit EventReader(v1::Admin::Stub& admin, uint64_t from = 0) {
    v1::WatchKvEventsRequest request;
    request.set_from(from);
    reader = admin.WatchKvEvents(&context, request);
  }
  // Reads one batch. False: the stream is over.
  bool Read() {
    v1::KvEventBatch batch;
    if (!reader->Read(&batch)) return false;
    lost += batch.lost();
    EXPECT_EQ(batch.first(), next + batch.lost());
    next = batch.first();
    for (const v1::KvEvent& event : batch.events()) {
      EXPECT_EQ(event.kind(), v1::KvEvent::REMOVED);
      EXPECT_EQ(event.hash(), TextOf(NumberedName(next)));
      ++next;
      ++events;
    }
    return true;
  }
  void ReadTo(uint64_t number) {
    while (next <= number && Read()) {
    }
    EXPECT_EQ(next, number + 1);
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::KvEventBatch>> reader;
  uint64_t next = 1;
  uint64_t lost = 0;
  uint64_t events = 0;
};

TEST(KvEventStreams, TwoWatchersSeeAllInOrder) {
  GrpcRig rig;
  for (uint64_t i = 1; i <= 10; ++i) rig.engine.RemoveKvBlock(NumberedName(i));
  EventReader first(*rig.admin);
  first.ReadTo(10);
  EventReader second(*rig.admin);
  std::thread reading([&] { second.ReadTo(700); });
  for (uint64_t i = 11; i <= 700; ++i) rig.engine.RemoveKvBlock(NumberedName(i));
  first.ReadTo(700);
  reading.join();
  EXPECT_EQ(first.events, 700U);
  EXPECT_EQ(second.events, 700U);
  EXPECT_EQ(first.lost + second.lost, 0U);
  EventReader later(*rig.admin, 695);
  later.next = 695;
  later.ReadTo(700);
  EXPECT_EQ(later.events, 6U);
}

TEST(KvEventStreams, TheSlowOneIsToldWhatItLost) {
  GrpcRig rig;
  // A connection of its own, whose window does not grow.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto narrow = v1::Admin::NewStub(grpc::CreateCustomChannel(
      rig.server->address(), grpc::InsecureChannelCredentials(), arguments));
  EventReader fast(*rig.admin);
  EventReader slow(*narrow);
  // Far more than the log keeps, and than a connection takes from a client that does not read.
  constexpr uint64_t kEvents = 60'000;
  for (uint64_t i = 1; i <= kEvents; ++i) {
    rig.engine.RemoveKvBlock(NumberedName(i));
    if (i % 500 == 0) fast.ReadTo(i);
  }
  EXPECT_EQ(fast.events, kEvents) << "the slow one keeps nobody back";
  EXPECT_EQ(fast.lost, 0U);
  slow.ReadTo(kEvents);
  EXPECT_GT(slow.lost, 0U);
  EXPECT_EQ(slow.lost + slow.events, kEvents);
}

TEST(KvEventStreams, EndWithTheClientOrTheServer) {
  GrpcRig rig;
  rig.engine.RemoveKvBlock(NumberedName(1));
  EventReader gone(*rig.admin);
  gone.ReadTo(1);
  gone.context.TryCancel();
  EXPECT_FALSE(gone.Read());
  EXPECT_EQ(gone.reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EventReader left(*rig.admin);
  left.ReadTo(1);
  rig.server->Stop(std::chrono::seconds(60));
  EXPECT_FALSE(left.Read());
  EXPECT_EQ(left.reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(KvEventStreams, MessagesSayWhatHappened) {
  KvEventBatch batch{.first = 7, .lost = 2};
  batch.news.events = {
      {.kind = KvEventKind::kCleared},
      {.kind = KvEventKind::kStored,
       .tier = KvTier::kDevice,
       .hash = NumberedName(5),
       .parent = NumberedName(4)},
      {.kind = KvEventKind::kRemoved, .tier = KvTier::kDevice, .hash = NumberedName(5)},
      {.kind = KvEventKind::kStored, .tier = KvTier::kHost, .hash = NumberedName(5)}};
  batch.news.tokens = {1, 2, 3, 4};
  const v1::KvEventBatch message = WriteKvEvents(batch);
  EXPECT_EQ(message.first(), 7U);
  EXPECT_EQ(message.lost(), 2U);
  ASSERT_EQ(message.events_size(), 4);
  EXPECT_EQ(message.events(0).kind(), v1::KvEvent::CLEARED);
  EXPECT_EQ(message.events(1).kind(), v1::KvEvent::STORED);
  EXPECT_EQ(message.events(1).tier(), v1::KvEvent::DEVICE);
  EXPECT_EQ(message.events(1).hash(), TextOf(NumberedName(5)));
  EXPECT_EQ(message.events(1).parent_hash(), TextOf(NumberedName(4)));
  EXPECT_THAT(message.events(1).token_ids(), testing::ElementsAre(1, 2));
  EXPECT_EQ(message.events(2).kind(), v1::KvEvent::REMOVED);
  EXPECT_TRUE(message.events(2).token_ids().empty());
  EXPECT_EQ(message.events(3).tier(), v1::KvEvent::HOST);
  EXPECT_TRUE(message.events(3).parent_hash().empty());
  EXPECT_THAT(message.events(3).token_ids(), testing::ElementsAre(3, 4));
}

TEST(KvEventStreams, AWishReachesTheEngine) {
  GrpcRig rig;
  v1::GenerateRequest request;
  request.mutable_prompt()->set_text("abc");
  v1::CacheRetention* wish = request.add_cache_retention();
  wish->set_seconds(1.5);
  wish = request.add_cache_retention();
  wish->set_tokens(2);
  wish->set_seconds(60);
  ASSERT_TRUE(rig.Generate(request).status.ok());
  const Request seen = rig.engine.submitted().at(0);
  ASSERT_EQ(seen.retention.size(), 2U);
  EXPECT_EQ(seen.retention[0].tokens, static_cast<int32_t>(seen.prompt.size()));
  EXPECT_EQ(seen.retention[0].keep_ns, 1'500'000'000);
  EXPECT_EQ(seen.retention[1].tokens, 2);
  wish->set_seconds(0);
  EXPECT_EQ(rig.Generate(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace polysil
