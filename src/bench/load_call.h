// LoadCall: one request of a load while it runs: from the bytes of its answer to a CallRecord. Used
// by the thread of the load.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "bench/call_record.h"
#include "bench/http_streams.h"
#include "bench/sse_reader.h"
#include "bench/stream_event.h"
#include "polysil/base/clock.h"

namespace polysil {

class LoadCall final : public HttpStream {
 public:
  // `answer` is the text of the model, for the next turn.
  using OnDone = std::function<void(CallRecord record, std::string answer)>;

  // `record` says which call it is and when it was due, on the clock. cancel_after_tokens: 0:
  // never.
  LoadCall(const Clock& clock, CallRecord record, int32_t cancel_after_tokens, OnDone on_done);

  bool OnBytes(int32_t status, std::string_view bytes) override;
  void OnEnd(const HttpEnd& end) override;

 private:
  // False: no more is wanted.
  void OnEvent(std::string_view data, int64_t now_ns);
  void CountToken(const StreamEvent& event, int64_t now_ns);
  void Fail(std::string_view kind, std::string_view error);
  void FailAtEnd(const HttpEnd& end);

  const Clock& clock_;
  const int32_t cancel_after_tokens_;
  const OnDone on_done_;
  CallRecord record_;
  SseReader reader_;
  std::string answer_;
  std::string body_begin_;  // of what is no stream, for people
  int32_t tokens_ = 0;      // events with a token
  bool done_ = false;       // the server said so
};

}  // namespace polysil
