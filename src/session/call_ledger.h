// CallLedger: where the time of one call went, from its first byte to its last: the engine's
// account of a sequence with what the edge adds before and after it. The segments do not overlap
// and sum to the time since the call began, whatever becomes of it. Opened by a face through
// TextService::OpenLedger, told of each station by whoever gets there, closed once the answer is
// with the network or the client has gone; then it is counted and logged. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "polysil/base/clock.h"
#include "polysil/base/status.h"
#include "polysil/engine/engine.h"
#include "polysil/engine/latency.h"
#include "session/text_call.h"

namespace polysil {

// In the order in which a call goes through them, but for the engine's, which take turns.
enum class LatencySegment {
  kReceive,   // read, route and parse the request; wait for a thread where its text is long
  kTokenize,  // check it, render the chat template, tokenise
  kQueue,     // the engine's five: see SequenceLatency
  kPrefill,
  kDecode,
  kWait,
  kPreempted,
  kDetokenize,  // from the engine's output to the face: the output thread, detokenizer, stop
                // strings
  kFlush,       // write the answer, until the network has it
};
inline constexpr size_t kLatencySegments = 9;

std::string_view Name(LatencySegment segment);  // "receive"

struct LatencySegments {
  std::array<int64_t, kLatencySegments> ns{};

  int64_t& operator[](LatencySegment segment) { return ns[static_cast<size_t>(segment)]; }
  int64_t operator[](LatencySegment segment) const { return ns[static_cast<size_t>(segment)]; }
  int64_t total_ns() const;
};

struct CallLatency {
  LatencySegments first_token;  // until the first token was with the network; zero: there was none
  LatencySegments total;        // until now, or until the ledger was closed
  // Of the sequence that ended last, whose time the engine's segments are.
  int32_t prefill_steps = 0;
  int32_t decode_steps = 0;
  int32_t preemptions = 0;
};

// Calls that are over, by segment. Thread-safe.
class LatencyTotals final {
 public:
  using Histograms = std::array<Histogram, kLatencySegments>;  // in seconds

  LatencyTotals();
  void Observe(const LatencySegments& segments);
  Histograms Read() const;

 private:
  mutable std::mutex mutex_;
  Histograms histograms_;
};

class CallLedger final {
 public:
  // `begun_ns`: of the clock, which must outlive the ledger. `id`: what the log calls the call by;
  // safe to be written there.
  CallLedger(const Clock& clock, std::shared_ptr<LatencyTotals> totals, int64_t begun_ns,
             std::string id);
  // Closes it.
  ~CallLedger();
  CallLedger(const CallLedger&) = delete;
  CallLedger& operator=(const CallLedger&) = delete;

  int64_t begun_ns() const { return begun_ns_; }

  // Stations, in this order; those that a call does not reach are left out.
  void OnReceived();
  void OnTokenized();
  // The first output with a token; its text goes to the face now.
  void OnFirstToken(const SequenceLatency& engine);
  void OnFirstTokenSent();
  // The output that ends the call; the end goes to the face now.
  void OnEnd(const Status& status, const TextUsage& usage, const SequenceLatency& engine);
  // The call was refused: it never came to the engine, or the engine did not take it.
  void OnRefused(const Status& status);
  // The answer is out. What comes later changes nothing.
  void Close();

  CallLatency latency() const;

 private:
  enum class Phase { kReceiving, kTokenizing, kRunning, kFlushing, kClosed };

  // Adds what passed since the last station to `segment`.
  void Lap(LatencySegment segment);
  void AddEngine(const SequenceLatency& engine);
  LatencySegment CurrentSegment() const;
  void WriteLog() const;

  const Clock& clock_;
  const std::shared_ptr<LatencyTotals> totals_;
  const int64_t begun_ns_;
  const std::string id_;

  mutable std::mutex mutex_;  // guards what follows
  Phase phase_ = Phase::kReceiving;
  int64_t mark_ns_;  // the last station
  int64_t first_token_ns_ = 0;
  bool had_first_token_ = false;
  bool first_token_sent_ = false;
  CallLatency latency_;
  TextUsage usage_;
  std::string_view outcome_ = "cancelled";  // until something else is known
};

}  // namespace polysil
