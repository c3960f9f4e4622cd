// KvEventFeed: the streams of those who watch the prefix cache. One thread waits for news and wakes
// the watchers; each reads from the engine's log as fast as its client takes it, one batch at a
// time, so that a slow one delays nobody and holds no more than one batch. Owned by AdminService.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "polysil/v1/admin.pb.h"
#include "session/text_slot.h"

namespace polysil {

class KvEventFeed final {
 public:
  // `slot` outlives it.
  explicit KvEventFeed(const TextSlot& slot);
  ~KvEventFeed();
  KvEventFeed(const KvEventFeed&) = delete;
  KvEventFeed& operator=(const KvEventFeed&) = delete;

  // A stream of the events from number `from` on. The slot is not empty any more.
  grpc::ServerWriteReactor<v1::KvEventBatch>* Watch(grpc::CallbackServerContext* context,
                                                    uint64_t from);
  // Ends all streams, and those to come, with UNAVAILABLE. Idempotent.
  void Stop();

 private:
  class Watcher;
  class Reactor;

  void Run();
  // Until there are some. False: it is time to stop.
  bool WaitForWatchers();
  std::vector<std::shared_ptr<Watcher>> Watchers();

  const TextSlot& slot_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Watcher>> watchers_;  // ended ones go with the next news
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace polysil
