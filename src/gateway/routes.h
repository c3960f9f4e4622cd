// Routes: which endpoint answers which request, and the small endpoints themselves. Knows no
// sockets. Thread-safe; shared by the gateway and by requests that are still worked on when it
// ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/exchange.h"
#include "gateway/openai_reply.h"
#include "session/text_slot.h"

namespace polysil {

class Routes final : public std::enable_shared_from_this<Routes> {
 public:
  // `slot` outlives it.
  Routes(const TextSlot& slot, std::string version);

  // What can be refused before the body is read: an unknown path (404), a wrong method (405).
  std::optional<HttpReply> CheckHead(std::string_view method, std::string_view path) const;

  // Answers `exchange`, now or later. On the connection's thread; long bodies are worked on
  // elsewhere.
  void Handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange);

  // The path as it may stand in a log: one of ours, or "other".
  static std::string_view LogName(std::string_view path);

 private:
  // What needs no text service; none: it does.
  std::optional<HttpReply> GetAlways(std::string_view path) const;
  // The rest is called with a service in the slot.
  TextService& service() const { return *slot_.get(); }
  HttpReply Get(std::string_view path) const;
  void Post(HttpRequest request, const std::shared_ptr<Exchange>& exchange);
  void Generate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange, bool chat,
                std::shared_ptr<CallLedger> ledger);
  StatusOr<std::string> Tokenize(std::string_view body) const;
  StatusOr<std::string> Detokenize(std::string_view body) const;
  std::string ModelObject(const std::string& name) const;
  HttpReply Refusal(const Status& status) const;
  HttpReply Models() const;
  HttpReply Model(const std::string& name) const;
  ReplyIdentity NewIdentity(bool chat, const std::optional<std::string>& model);

  const TextSlot& slot_;
  const std::string version_;
  const int64_t started_s_;   // Unix time
  const uint64_t id_prefix_;  // so that ids differ between processes
  std::atomic<uint64_t> ids_ = 0;
};

}  // namespace polysil
