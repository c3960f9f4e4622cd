// Outbox: outputs on their way from the engine thread to the sinks, and the list of streams that
// still wait for their last one. A sink that is slow holds nobody up: what comes meanwhile is
// joined to what waits, so there is at most one output per live sequence. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "polysil/base/ids.h"
#include "polysil/engine/engine.h"

namespace polysil {

class Outbox final {
 public:
  struct Delivery {
    std::shared_ptr<OutputSink> sink;
    SequenceOutput output;
  };

  // A stream per sequence, each of which will get one final output.
  void Open(RequestId id, int32_t sequences, std::shared_ptr<OutputSink> sink);
  // True the first time for a request that is still open.
  bool TryMarkCancelled(RequestId id);
  bool TryMarkStopped(RequestId id, int32_t sequence_index);

  // The engine thread: never blocks. Moves out of the outputs.
  void Put(std::span<SequenceOutput> outputs);

  // The output thread: waits for an output. Absent: closed, and all were taken.
  std::optional<Delivery> Take();
  // ... and says when the sink has had a sequence's final output.
  void Finish(RequestId id);
  void Close();

  // Waits until no stream is open, at most so long. True if so.
  bool WaitEmpty(int64_t timeout_ns) const;

 private:
  struct Stream {
    std::optional<SequenceOutput> pending;
    bool stopped = false;
  };
  struct OpenRequest {
    std::shared_ptr<OutputSink> sink;
    std::vector<Stream> streams;
    int32_t finals_left = 0;
    bool cancelled = false;
  };
  struct Ready {
    RequestId request;
    int32_t sequence_index;
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // for the output thread
  mutable std::condition_variable emptied_;
  absl::flat_hash_map<RequestId, OpenRequest> open_;
  // In order: [taken_, end) of taking_, then ready_.
  std::vector<Ready> taking_;
  size_t taken_ = 0;
  std::vector<Ready> ready_;
  bool closed_ = false;
};

}  // namespace polysil
